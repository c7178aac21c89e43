"""Builds environments with the packages that topologies require. Topologies with the same requirements share one.

```
<state>/environments/<key>/
  requirements.txt     the requirements, as the submitter wrote them
  constraints.txt      the versions that workers themselves need: the build fails if they contradict the requirements
  wheels/              shipped packages. With these, nothing is installed from elsewhere, regardless of this host's settings
                       of pip and uv. Without them, these settings (such as a site's package index) apply
  venv/                the environment; squall.pth adds Squall's own folders to its module path, after the packages
  build.log            the commands of each try, and their output
  ready                written last: without it the environment is built again
```

The key is a digest of all inputs. The build uses uv if it is installed, else venv and pip. It runs in a separate process, so
code that packages run during their installation cannot reach the supervisor. An environment variable marks the process
and all its children. So if this supervisor is killed during a build, a later supervisor finds these processes.
Must not know: topologies, workers, how files are fetched (a function is given).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from squall.atomic_files import write_bytes
from squall.daemon.process_stat import all_processes
from squall.guarded_files import is_file, open_to_append
from squall.packages import archives
from squall.security.private_files import make_private_folder
from supervisor.log_files import tail
from supervisor.processes import kill_marked, own_folders
from supervisor.removals import delete
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

LOG: Final = "build.log"
READY: Final = "ready"
#: Environment variable of a build and all its children; the value is the build's directory.
MARK: Final = "BUILDER_OF_SQUALL"
#: Packages that a worker process itself imports: an environment must have the same versions of these packages as the
#: supervisor.
WORKERS_NEED: Final = ("cloudpickle", "msgspec", "pyzmq")
#: Seconds that one step of a build may take.
LONGEST_STEP: Final = 1800.0
#: The most that an error shows of the log: lines, characters of each line, and bytes in total.
_TAIL_LINES, _LINE_LENGTH, _TAIL_BYTES = 8, 200, 8192
#: How many bytes of the output of earlier tries are kept.
_MOST_LOG: Final = 1024 * 1024
#: The most bytes of a requirements file.
_MOST_REQUIREMENTS: Final = 1024 * 1024
#: The most bytes of shipped wheels.
_MOST_WHEELS: Final = 8 * 1024 * 1024 * 1024
#: Squall itself, which requirements often name although it is already installed.
_OURSELVES: Final = re.compile(r"\s*squall\s*([=<>!~;#].*)?", re.IGNORECASE)
#: The first version of pip that has the option --python.
_PIP_FOR_OTHERS: Final = (22, 3)
#: Environment variables hidden from pip and uv: they would make these tools see the supervisor's packages as installed, or
#: install packages outside of the environment.
_HIDDEN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER", "PIP_PREFIX")
#: Prefixes of environment variables with settings of pip and uv. Such settings could add sources to the shipped wheels.
_SETTINGS: Final = ("PIP_", "UV_")
#: Settings of pip and uv that name no sources.
_NO_SOURCES: Final = ("PIP_CACHE_DIR", "UV_CACHE_DIR")

#: How many times to look for processes of an earlier supervisor's builds.
_KILL_ROUNDS: Final = 100
#: Seconds between two looks.
_KILL_PAUSE: Final = 0.01

#: A context manager that fetches a file by its SHA-256.
Fetched = Callable[[str], AbstractContextManager[Path]]


class BuildFailed(SquallError):
    """An environment cannot be built. The text gives the reason and the end of the log."""


class Environment(msgspec.Struct, frozen=True):
    """The inputs of an environment: a digest of all inputs (`key`), and digests of shipped files."""

    key: str
    requirements: str
    wheels: str | None


class Environments:
    """All environments of one supervisor."""

    def __init__(self, root: Path, uv: str | None = None, python: str | None = None) -> None:
        """`uv`: the path of uv; None: look for uv on PATH; "": do not use uv. `python`: the Python of the environments."""
        self.root = root
        self._uv = shutil.which("uv") if uv is None else uv or None
        self._python = python or sys.executable
        self._constraints = constraints()
        self._building: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def of(self, files: Mapping[str, str]) -> Environment | None:
        """Return the environment for a topology with these files; None: the topology has no requirements."""
        requirements = files.get("requirements")
        if requirements is None:
            return None
        wheels = files.get("wheels")
        parts = [
            requirements,
            wheels,
            sys.version,
            sys.implementation.cache_tag,
            self._python,
            self._constraints,
        ]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
        return Environment(key, requirements, wheels)

    def log(self, key: str) -> Path:
        """Return the log of a build."""
        return self.root / key / LOG

    def make(self, environment: Environment, fetched: Fetched) -> str:
        """Return the Python of an environment, after building the environment if it is missing. Raises `BuildFailed`,
        `OSError`, or the errors of `fetched`."""
        directory = self.root / environment.key
        python = directory / "venv" / "bin" / "python"
        if (directory / READY).exists() and python.exists():
            return str(python)
        make_private_folder(directory)
        # The file exists if only other parts of the environment were removed.
        (directory / READY).unlink(missing_ok=True)
        for name in ("venv", "wheels"):
            shutil.rmtree(directory / name, ignore_errors=True)
        if not is_file(directory / LOG):  # packages run code of their own while they are built
            delete(directory / LOG)
        with fetched(environment.requirements) as file:
            write_bytes(directory, "requirements.txt", _requirements(file))
        if environment.wheels is not None:
            with fetched(environment.wheels) as file:
                archives.unpack(file, directory / "wheels", _MOST_WHEELS, _MOST_WHEELS)
        lines = "".join(f"{line}\n" for line in self._constraints)
        write_bytes(directory, "constraints.txt", lines.encode())
        try:
            self._build(directory, python)
        except BaseException:
            shutil.rmtree(directory / "venv", ignore_errors=True)
            raise
        shutil.rmtree(directory / "wheels", ignore_errors=True)
        os.sync()  # after a power failure, an environment that is marked as ready must be complete
        write_bytes(directory, READY, b"", durable=True)
        return str(python)

    def close(self) -> None:
        """Kill running builds."""
        with self._lock:
            self._closed = True
            for pid in self._building:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def sweep(self) -> None:
        """Kill and remove builds of an earlier supervisor. Every build is found: a process that is just being started keeps the
        state directory locked until the process has its mark."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.root):
                if not (self.root / name / READY).exists():
                    _end_builders(self.root / name)
                    for part in ("venv", "wheels"):
                        shutil.rmtree(self.root / name / part, ignore_errors=True)

    def _build(self, directory: Path, python: Path) -> None:
        with open(open_to_append(directory / LOG, 0o600), "ab") as log:
            if log.tell() > _MOST_LOG:
                log.truncate(0)
            log.write(time.strftime("# %Y-%m-%d %H:%M:%S\n").encode())
            for name, command in self._steps(directory, python).items():
                log.write(f"$ {' '.join(command)}\n".encode())
                log.flush()
                begin = log.tell()
                ending = self._run(command, directory, log)
                if ending:
                    raise BuildFailed(f"{name} ended with {ending}{_tail(directory / LOG, begin)}")
                if name in ("pip", "uv"):
                    _add_our_folders(directory / "venv")

    def _steps(self, directory: Path, python: Path) -> dict[str, list[str]]:
        """Return the commands of a build, in order, by their names."""
        venv = str(directory / "venv")
        alone = (directory / "wheels").is_dir()
        source = ["--no-index", "--find-links", "wheels"] if alone else []
        what = [*source, "-r", "requirements.txt", "-c", "constraints.txt"]
        if self._uv is not None:
            isolated = ["--no-config"] if alone else []
            install = [self._uv, "pip", "install", *isolated, "--no-progress", "--python", str(python)]
            make = [self._uv, "venv", "--no-progress", "--python", self._python, venv]
            steps = {"uv venv": make, "uv": [*install, *what]}
        else:
            isolated = ["--isolated"] if alone else []
            how = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
            make, pip = [self._python, "-m", "venv"], [str(python), "-m", "pip"]
            if _own_pip_serves_others():
                make = [*make, "--without-pip"]
                pip = [self._python, "-m", "pip", "--python", str(python)]
            steps = {"venv": [*make, venv], "pip": [*pip, *isolated, "install", *how, *what]}
        check = "from squall.packages.distributions import check_ours; check_ours(); import worker.process.assemble"
        return {**steps, "the test import of Squall's worker in the environment": [str(python), "-c", check]}

    def _run(self, command: Sequence[str], directory: Path, log: BinaryIO) -> str:
        """Run one step. Return how the step failed, or "" if it succeeded."""
        environ = tools_environment(os.environ, alone=(directory / "wheels").is_dir())
        environ[MARK] = str(directory)
        with self._lock:  # so that `close` sees every process
            if self._closed:
                raise BuildFailed("the supervisor is ending")
            process = subprocess.Popen(
                list(command),
                cwd=directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._building.add(process.pid)
        try:
            return _ending(process.wait(LONGEST_STEP))
        except subprocess.TimeoutExpired:
            return f"SIGKILL, since it was not done after {LONGEST_STEP:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also children that the step left behind
            process.wait()
            with self._lock:
                self._building.discard(process.pid)


def tools_environment(inherited: Mapping[str, str], alone: bool) -> dict[str, str]:
    """Return the environment variables of pip and uv. `alone`: leave out the settings of this host that could name sources."""
    environ = {name: value for name, value in inherited.items() if name not in _HIDDEN}
    if not alone:
        return environ
    kept = [name for name in environ if name in _NO_SOURCES or not name.startswith(_SETTINGS)]
    return {**{name: environ[name] for name in kept}, "PIP_CONFIG_FILE": os.devnull}


def _own_pip_serves_others() -> bool:
    """Return whether the supervisor's pip can install into an environment. An environment without its own pip is built seconds
    faster."""
    try:
        major, minor = importlib.metadata.version("pip").split(".")[:2]
        return (int(major), int(minor)) >= _PIP_FOR_OTHERS
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def constraints() -> tuple[str, ...]:
    """Return the supervisor's versions of the packages that workers need, as constraints for pip."""
    found = []
    for name in WORKERS_NEED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name)}")
    return tuple(found)


def _requirements(file: Path) -> bytes:
    """Return a requirements file with Squall itself commented out."""
    with open(file, "rb") as opened:
        data = opened.read(_MOST_REQUIREMENTS + 1)
    if len(data) > _MOST_REQUIREMENTS:
        raise BuildFailed(f"the requirements are longer than {_MOST_REQUIREMENTS:,} bytes")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BuildFailed(f"the requirements are not UTF-8: {error}") from None
    kept = [f"# {line}  (it is here)" if _OURSELVES.fullmatch(line) else line for line in lines]
    return "".join(f"{line}\n" for line in kept).encode()


def _add_our_folders(venv: Path) -> None:
    """Add the supervisor's module folders to the environment's module path, after the environment's packages.

    Call this function only when everything is installed: pip would treat packages in these folders as installed.
    """
    standard = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    folders = [folder for folder in own_folders() if os.path.realpath(folder) not in standard]
    for packages in venv.glob("lib/python*/site-packages"):
        (packages / "squall.pth").write_text("".join(f"{folder}\n" for folder in folders))


def _end_builders(directory: Path) -> None:
    """Kill the builds that still run in a directory."""
    for _ in range(_KILL_ROUNDS):  # the next round finds processes that the builds start meanwhile
        if not kill_marked(all_processes(), MARK, directory):
            return
        time.sleep(_KILL_PAUSE)


def _ending(status: int) -> str:
    return "" if not status else f"status {status}" if status > 0 else signal.Signals(-status).name


def _tail(log: Path, begin: int) -> str:
    """Return the last lines of the part of a log after the offset `begin`, indented."""
    written = tail(log, begin, _TAIL_BYTES).splitlines()
    lines = [line.rstrip()[:_LINE_LENGTH] for line in written if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_TAIL_LINES:])
