"""Where `print()` and the log of user code go while Squall draws on the terminal, or keeps stdout for JSON.

User code prints from the cluster's thread at any time. With a live table, the lines of user code are gathered and shown above
the table. With --json, the whole process's stdout becomes stderr, so that nothing, not even a child process, can write into
the JSON. The streams are replaced before the user's file is imported, so a log handler that the file creates for `sys.stderr`
gets the new stream.
Must not know: topologies, the contents of the table.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

from squall.reports.events import Event, subject
from squall.reports.log_lines import EntryFormatter
from squall.worker_files import EXIT_UNOPENED

#: The most characters that wait for the next drawing. If there are more, the thread that wrote them draws at once.
MOST_WAITING = 64 * 1024


class Gathered:
    """Text that waits to be shown above the table."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.parts: list[str] = []
        self.size = 0
        #: Draws the gathered text; None: nothing is drawn, and text goes to the real stream.
        self.show: Callable[[], None] | None = None
        self.process = os.getpid()

    def takes(self) -> bool:
        """Whether text is gathered. A forked child does not gather text, but writes directly."""
        return self.show is not None and self.process == os.getpid()

    def add(self, text: str) -> None:
        """Keep a text for the next drawing."""
        with self.lock:
            self.parts.append(text)
            self.size += len(text)
            full = self.size > MOST_WAITING
        if full and self.show is not None:
            self.show()

    def pop(self, unfinished: bool = False) -> str:
        """Remove and return the gathered text up to the last line end, or all of it if `unfinished`."""
        with self.lock:
            text = "".join(self.parts)
            end = len(text) if unfinished else text.rfind("\n") + 1
            self.parts = [text[end:]] if end < len(text) else []
            self.size = len(text) - end
        return text[:end]


class UserStream:
    """Replaces sys.stdout or sys.stderr: passes text to the real stream, or gathers it."""

    def __init__(self, real: IO[str], gathered: Gathered) -> None:
        self._real = real
        self._gathered = gathered

    def write(self, text: str) -> int:
        if not self._gathered.takes():
            return self._real.write(text)
        self._gathered.add(str(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if not self._gathered.takes():
            self._real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def gather_user_output() -> Gathered:
    """Replace sys.stdout and sys.stderr with streams that gather text while a view draws, and otherwise pass text through."""
    gathered = Gathered()
    sys.stdout = UserStream(sys.stdout, gathered)
    sys.stderr = UserStream(sys.stderr, gathered)
    return gathered


def let_debugger_in(give_back: Callable[[], None]) -> None:
    """Make `breakpoint()` in a component call `give_back` first, since the debugger needs the terminal."""
    before = sys.breakpointhook

    def hook(*arguments: Any, **named: Any) -> Any:
        give_back()
        if before is not sys.__breakpointhook__ or "PYTHONBREAKPOINT" in os.environ:
            return before(*arguments, **named)
        from pdb import Pdb

        Pdb().set_trace(sys._getframe(1))  # pdb.set_trace() would stop in this function
        return None

    sys.breakpointhook = hook


def keep_stdout() -> IO[str]:
    """Reserve stdout: only the returned stream writes to stdout; everything else in this process goes to stderr."""
    sys.stdout.flush()
    try:
        number = sys.stdout.fileno()
        ours: IO[str] = os.fdopen(os.dup(number), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), number)
    except (OSError, io.UnsupportedOperation):
        # stdout is not a real file, for example in tests that run the command in their own process.
        ours = sys.stdout
    sys.stdout = sys.stderr
    return ours


class ToStderr(logging.Handler):
    """Writes to the current sys.stderr, which may have been replaced since this handler was made."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def show_log(topology: str) -> None:
    """Show the log of the topology's components at level INFO and above, unless the user's file has configured logging."""
    form = "%(asctime)s %(levelname)s %(component)s: %(message)s"
    log = logging.getLogger(f"squall.{topology}")
    if _show_records(log, form, name_component):
        log.setLevel(logging.INFO)


def show_supervisor() -> None:
    """Show when worker processes start and end, unless the user's file has configured logging. If a component cannot be opened,
    this is shown only once."""
    _show_records(logging.getLogger("supervisor"), "%(asctime)s %(message)s", NoUnopenedAgain().filter)


def _show_records(log: logging.Logger, form: str, sift: Callable[[logging.LogRecord], bool]) -> bool:
    """Show a logger's records, unless it already has handlers."""
    if log.hasHandlers():
        return False
    handler = ToStderr()
    handler.setFormatter(EntryFormatter(form, "%H:%M:%S"))
    handler.addFilter(sift)
    log.addHandler(handler)
    return True


class NoUnopenedAgain(logging.Filter):
    """Drops repeated messages about a worker that could not open its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[Event] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        event: Event | None = getattr(record, "event", None)
        if event is None or event.cause is None or event.cause.status != EXIT_UNOPENED:
            return True
        key = subject(event)
        new = key not in self._seen
        self._seen.add(key)
        return new


def name_component(record: logging.LogRecord) -> bool:
    """Set the record's `component`, with the index of the task, from the end of its logger's name."""
    component, _, index = record.name.split(".", 2)[-1].rpartition(".")
    record.component = f"{component}#{index}" if component else record.name
    return True
