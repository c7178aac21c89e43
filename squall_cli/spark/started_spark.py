"""The session of a command that uses Spark, and the file systems of its tables. Each is started when it is first needed.

Spark's progress is shown on standard error: as a bar on a terminal, elsewhere as a line every few seconds. This module also has
the options that all commands that publish results share, and the JSON form of a run's outcome.
Must not know: the results of commands.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from squall_cli.terminal import formats
from squall_cli.terminal.interrupts import all_as_ctrl_c
from squall_cli.terminal.lines import console, is_terminal, write
from squall_cli.terminal.views import EVERY
from squall_io.spark.reading.moments import Span
from squall_io.spark.results.progress import Watch, watch
from squall_io.spark.session.request import SessionRequest
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from squall.stores.files import OpenStore
    from squall.stores.java.hadoop import Jvm
    from squall_io.spark.results.publishing import OutputTable
    from squall_io.spark.results.versions import Published


#: Seconds between two polls.
_POLL_SECS: Final = 0.2


class SparkProgress:
    """The progress display of a command that uses Spark. Its `with` block ends before the result is printed."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.out = sys.stderr if out is None else out
        self.clock = clock
        self.watched: Watch | None = None
        self._began = clock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Bar | None = None

    def __enter__(self) -> SparkProgress:
        if is_terminal(self.out):
            self._bar = _bar(self.out)
        return self

    def announce(self, text: str) -> None:
        """Print the current step."""
        if self._bar is None:
            write(self.out, text)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def follow(self, session: Any) -> None:
        """Show the progress of the session from now on."""
        self.watched = watch(session)
        if self._bar is not None:
            self._bar.add_task("planning", total=None)
            self._bar.start()
        self._thread = threading.Thread(target=self._run, name="squall-spark-progress", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Cancel Spark's jobs, if Spark can be reached."""
        if self.watched is not None:
            with suppress(Exception):  # the session itself may be broken
                self.watched.cancel()

    def _run(self) -> None:
        assert self.watched is not None
        next_line = self._began + EVERY
        shown = ""
        while not self._over.wait(_POLL_SECS):
            try:
                progress = self.watched.poll()
            except Exception:  # the driver has died or is being stopped: the caller reports that
                return
            if self._bar is not None:
                task, known = self._bar.tasks[0].id, progress.tasks or None
                self._bar.update(task, description=str(progress), total=known, completed=progress.tasks_done)
            elif self.clock() >= next_line and progress.stages and str(progress) != shown:
                shown = str(progress)
                next_line = self.clock() + EVERY
                write(self.out, f"{formats.duration(self.clock() - self._began)}  {shown}")

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        if self.watched is not None:
            with suppress(Exception):
                self.watched.close()


def _bar(out: IO[str]) -> Bar:
    """Return rich's progress bar, which disappears when it is done."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Bar(*columns, console=console(out), transient=True)


#: The error text of an interrupted command that publishes results. It is unknown whether the command's last step was done.
INTERRUPTED: Final = (
    "interrupted. The table is unchanged, unless the result was just being published; run the same command again to finish"
    " the work"
)


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """Options of a command that publishes versions."""

    span: Span
    file_format: str | None
    partition_by: tuple[str, ...] | None
    keep: int
    again: bool
    master: str | None
    conf: Mapping[str, str]

    @contextmanager
    def started(self) -> Iterator[StartedSpark]:
        """Provide Spark for the command. Turn an interruption into an error that says what happened to the result."""
        try:
            with StartedSpark(self.master, self.conf) as spark:
                yield spark
        except KeyboardInterrupt:
            raise SquallError(INTERRUPTED) from None

    def open_output(self, files: OpenStore) -> OutputTable:
        """Open the table of a result."""
        from squall_io.spark.results.publishing import open_output

        return open_output(files, self.file_format, self.partition_by, self.keep)


def why_already(again: bool, code: str = "job") -> str:
    """Return why a result was not published again."""
    if again:
        return "by the same command, which was cut off, or which runs at the same time"
    return f"the same {code} over the same rows (--again runs it anyway)"


def version_in_json(published: Published) -> dict[str, Any]:
    """Return the version that a run has published as JSON values."""
    version = published.version
    return {
        "published": published.ours,
        "version": version.number,
        "files": len(version.files),
        "bytes": version.size,
        "schema": version.schema,
    }


class StartedSpark:
    """A command's session, file systems and progress display; all end with the command's `with` block."""

    def __init__(self, master: str | None, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = conf
        self.stack = ExitStack()
        self.progress = SparkProgress()
        self._session: Any = None
        self._jvm: Jvm | None = None

    def __enter__(self) -> StartedSpark:
        self.stack.enter_context(all_as_ctrl_c())
        self.progress.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        with self.stack:  # the display ends before the session, since it polls the session
            self.progress.__exit__(*raised)

    def watched(self, text: str = "") -> Any:
        """Return the session. From now on the session's progress is shown below the current step."""
        session = self.session()
        if text:
            self.progress.announce(text)
        self.progress.follow(session)
        return session

    def session(self) -> Any:
        """Return the session. Raises any error of its start."""
        from squall_io.spark.session.sessions import shared_session

        if self._session is None:
            self.progress.announce("starting Spark")
            self._session = self.stack.enter_context(shared_session(self._master, self._conf)).session
        return self._session

    def store(self, path: str) -> OpenStore:
        """Open the file system at a path. One small JVM serves all file systems, so that the command can check whether there is
        any work before it starts Spark. With Spark Connect, the session gives access to the file systems instead.
        """
        from squall.stores.java.hadoop import Jvm
        from squall.stores.paths import scheme_of
        from squall_io.spark.stores import open_files
        from squall_io.spark.stores.opening import needs_jvm

        connect = SessionRequest.of(self._master, self._conf).is_connect
        if not connect and self._jvm is None and needs_jvm(scheme_of(path), self._conf):
            self._jvm = Jvm.own(self._conf)
            self.stack.callback(self._jvm.close)
        session = self.session() if connect else None
        return self.stack.enter_context(open_files(path, session=session, jvm=self._jvm, conf=self._conf))

    def held_store(self, path: str, reader: str) -> OpenStore:
        """Open the file system at a path as `store` does; if a table is there, keep its files until the end. `reader`: names
        the command to a vacuum."""
        from squall_io.spark.retention.holding import held

        files = self.store(path)
        self.stack.enter_context(held(files, reader))
        return files
