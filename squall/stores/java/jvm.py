"""The Java process of a Spark driver or a Hadoop file system: started quietly, watched, and ended with this process.

PySpark's own function for this has three faults: it runs Python code between fork and exec, which can deadlock in a process
with threads; it passes secret settings on the command line; and it lets Java write to this process's own output.

Java writes the names of local files in the encoding of the locale that it starts in. In the C locale each letter beyond ASCII
becomes a "?", for example in the folder of a partition. So Java gets a locale in which it names files as this Python does
(`locale_for_java`).
Must not know: sessions, tables.
"""

from __future__ import annotations

import locale
import logging
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from squall.stores.java.java import require_spark
from squall.stores.java.java_settings import is_secret
from topology_api import SquallError

_log = logging.getLogger(__name__)

#: Seconds that Java may take until it answers; on an idle machine it takes 2 to 4.
_START_SECONDS: Final = 120.0
#: Seconds that Java may take to end before it is killed.
_END_SECONDS: Final = 3.0
#: Seconds between checks whether Java answers.
_POLL_SECONDS: Final = 0.05
#: How many lines of Java's output are kept, to explain why Java ended.
_KEPT_LINES: Final = 200
#: The beginning of a line of Spark's log, "26/11/21 18:25:52 WARN NativeCodeLoader: ...".
_LINE: Final = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)? (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
#: Spark's level -> the level in Squall's log; DEBUG for all other levels. None is above INFO, since a problem that concerns a
#: user is raised as an error of Squall, with its reason.
_LEVELS: Final = {"WARN": logging.INFO, "ERROR": logging.INFO, "FATAL": logging.INFO}
#: Held while PySpark reads the port from this process's environment: two starts at the same time might connect to the wrong
#: Java.
_connecting: Final = threading.Lock()


class JavaFailed(SquallError):
    """Java, or Spark in it, did not start."""


class JavaProcess:
    """A Java process with Py4J's server in it. The Java process ends by itself when this process ends, even by a kill."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        #: Py4J's gateway, once Java answers.
        self.gateway: Any = None
        self._reader = threading.Thread(target=self._read, name=f"squall-jvm-{process.pid}", daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """End the process, within seconds. Does nothing if it has ended."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()  # Java reads its stdin, and ends when stdin closes
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Only after Java has ended: `shutdown` may have to make a connection first, and a frozen Java would not answer.
        if self.gateway is not None:
            with suppress(Exception):  # Java is gone; this closes Python's side
                self.gateway.shutdown()
        self._reader.join(_END_SECONDS)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def why(self) -> str:
        """Return why the process ended, according to its output, in a line or two."""
        lines = tuple(self.lines)  # copied at once: Java may continue to write
        printed = [line.strip() for line in lines if line.strip() and not line.startswith("\tat ")]
        thrown = [line for line in printed if "Exception" in line]
        return " / ".join((thrown or printed)[-3:]) or "it printed nothing"

    def logged(self) -> str:
        """Return the last error in Java's log, or ""."""
        lines = tuple(self.lines)
        errors = [line for line in lines if (found := _LINE.match(line)) and found.group(1) == "ERROR"]
        return _LINE.sub("", errors[-1]) if errors else ""

    def _read(self) -> None:
        """Pass Java's output on to the log."""
        assert self.process.stdout is not None
        level = logging.DEBUG
        with self.process.stdout as output:
            for raw in output:
                line = raw.decode(errors="replace").rstrip()
                if (found := _LINE.match(line)) is not None:
                    level = _LEVELS.get(found.group(1), logging.DEBUG)
                self.lines.append(line)
                _log.log(level, "%s", line)


def start_jvm(
    conf: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> JavaProcess:
    """Start Java with Spark's classes and connect to it. Raises `NotInstalled` or `JavaFailed`. `environ`: variables to add to
    this process's environment.
    """
    require_spark()
    _quieten_py4j()
    from pyspark.find_spark_home import _find_spark_home

    command = [str(Path(_find_spark_home(), "bin", "spark-submit"))]
    for name, value in conf.items():
        if not is_secret(name):
            command += ["--conf", f"{name}={value}"]
    with tempfile.TemporaryDirectory(prefix="squall-jvm-") as folder:
        connection = Path(folder, "connection")
        with _connecting:
            inherited = dict(os.environ)
        env = {
            **inherited,
            **locale_for_java(sys.getfilesystemencoding(), locale.nl_langinfo(locale.CODESET)),
            **(environ or {}),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        }
        try:
            process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # Ctrl-C in the terminal is for this process
            )
        except OSError as error:
            raise JavaFailed(f"Spark's Java process cannot be started: {error}") from None
        java = JavaProcess(process)
        try:
            _await_connection(java, connection, progress)
            data = connection.read_bytes()  # port, length of the secret, secret
            port, length = struct.unpack(">ii", data[:8])
            java.gateway = _connect(java, port, data[8 : 8 + length].decode())
            java.gateway.proc = process  # the attribute where PySpark keeps the process that it starts
        except BaseException:
            java.process.kill()
            java.stop()
            raise
    return java


def locale_for_java(file_names: str, codeset: str) -> dict[str, str]:
    """Return the environment variables with which Java names files as Python does. file_names: Python's encoding of file names;
    codeset: the locale's encoding. In the C locale, Python uses UTF-8 although the locale's encoding is ASCII.
    """
    return {"LC_ALL": "C.UTF-8"} if file_names.lower() == "utf-8" != codeset.lower() else {}


def _await_connection(java: JavaProcess, connection: Path, progress: Callable[[], None]) -> None:
    """Wait until the file in which Java writes its port exists (Java renames the finished file into place)."""
    deadline = time.monotonic() + _START_SECONDS
    while not connection.is_file():
        if java.process.poll() is not None:
            java._reader.join(_END_SECONDS)
            raise JavaFailed(
                f"Spark's Java process ended with code {java.process.returncode} as it started: {java.why()}"
            )
        if time.monotonic() > deadline:
            raise JavaFailed(f"Spark's Java process does not answer after {_START_SECONDS:g} s: {java.why()}")
        progress()
        time.sleep(_POLL_SECONDS)


def _connect(java: JavaProcess, port: int, secret: str) -> Any:
    """Connect to a running Java process in PySpark's own way."""
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import launch_gateway

    with _connecting, environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        try:
            return launch_gateway()  # type: ignore[no-untyped-call]
        except (Py4JError, OSError) as error:
            raise JavaFailed(f"Spark's Java process ended as it started ({error}): {java.why()}") from None


def _quieten_py4j() -> None:
    """Silence Py4J: it logs each closed connection, and writes the traceback of each unanswered call to the root logger."""
    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.WARNING)
    root = logging.getLogger()
    if _no_py4j not in root.filters:
        root.addFilter(_no_py4j)


def _no_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process while the `with` block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
