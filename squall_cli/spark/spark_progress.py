"""Shows on standard error how far Spark is: a bar on a terminal, otherwise a line every few seconds.

Must not know: what Spark computes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from squall_cli.terminal import formats
from squall_cli.terminal.lines import console, is_terminal, write
from squall_cli.terminal.plain_lines import EVERY
from squall_io.spark.results.progress import JobProgress, Watch, watch

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

#: Seconds between two polls.
_POLL_SECS: Final = 0.2


class SparkProgress:
    """The display of a command that uses Spark; entered, and left before the result is printed."""

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
        """Print what is being done now."""
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
        """Make Spark give up its work, if it can be reached."""
        if self.watched is not None:
            with suppress(Exception):  # the session may be what is broken
                self.watched.cancel()

    def _run(self) -> None:
        assert self.watched is not None
        next_line = self._began + EVERY
        shown = ""
        while not self._over.wait(_POLL_SECS):
            try:
                progress = self.watched.poll()
            except Exception:  # the driver has died, or is being stopped: the caller reports it
                return
            if self._bar is not None:
                _show(self._bar, progress)
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


def _show(bar: Bar, progress: JobProgress) -> None:
    task = bar.tasks[0].id
    bar.update(task, description=str(progress), total=progress.tasks or None, completed=progress.tasks_done)
