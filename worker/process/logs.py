"""A worker process's log: one rotating file, each line with its time, its level and the task whose call wrote it.

Text that user code prints also goes to this file, line by line: `sys.stdout` and `sys.stderr` are `LogStream`s. Output of C
code and child processes to the descriptors 1 and 2 bypasses the log, and goes to the file that these descriptors were opened
on. If the disk is full, lines are lost, but the worker continues; the loss is reported once.
Must not know: tasks, calls (a function returns the place of a record).
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import Any, Final

from squall.reports.log_lines import EntryFormatter
from squall.worker_files import LOG

#: The size in bytes at which the file is renamed.
MOST_BYTES: Final = 10_000_000
#: How many renamed files are kept.
OLDER_FILES: Final = 3
#: A line without a line break is written when it has this many characters.
LONGEST_LINE: Final = 32_768
#: Returns the place of a record: a task such as "count[4]", or "" for the worker itself.
Place = Callable[[logging.LogRecord], str]


class LineFormatter(EntryFormatter):
    """`2026-03-01 12:00:00,123 INFO count[4] text`; the worker's own lines have its name instead of a task."""

    def __init__(self, worker: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(place)s %(message)s")
        self.worker = worker
        #: Returns the place of a record, once there are tasks.
        self.place: Place | None = None

    def format(self, record: logging.LogRecord) -> str:
        record.place = (self.place and self.place(record)) or self.worker
        return super().format(record)


class LogFile(RotatingFileHandler):
    """The rotating file. Lines that cannot be written are counted; the first of them is reported on the process's stderr."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path, maxBytes=MOST_BYTES, backupCount=OLDER_FILES, delay=True, encoding="utf-8", errors="replace"
        )
        self.lost = 0
        os.register_at_fork(after_in_child=self.never_rotate)

    def never_rotate(self) -> None:
        """Stop rotating. A child that user code forked may write, but only its parent renames files."""
        self.maxBytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost = self.lost
        super().emit(record)
        if lost and self.lost == lost:
            self.lost = 0
            text = f"{lost} lines were lost before this one: they could not be written"
            super().emit(record_of(logging.WARNING, text))

    def handleError(self, record: logging.LogRecord) -> None:
        """Count a line that could not be written. `logging` would print the error to `sys.stderr`, which leads back here."""
        self.lost += 1
        if self.lost == 1:
            write_stderr(
                f"worker log: a line is lost, perhaps more: {sys.exc_info()[1]!r}: {record.msg!r:.500}"
                f" (logger {record.name!r}, {record.pathname}:{record.lineno})"
            )


class LogStream(io.TextIOBase):
    """A text stream whose lines become log records. Each thread has its own unfinished line."""

    def __init__(self, level: int, descriptor: int, handler: logging.Handler | None = None) -> None:
        self.level = level
        self.descriptor = descriptor
        #: Lines go straight to this handler, past the loggers: a user's handler that writes to `sys.stderr` would lead back
        #: here endlessly.
        self.handler = handler
        self.begun = threading.local()
        self.process = os.getpid()
        #: For callers that write bytes: `sys.stdout.buffer.write(...)`.
        self.buffer = ByteStream(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Return the process's own descriptor, for child processes."""
        return self.descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        begun: str = getattr(self.begun, "text", "")
        if self.process != os.getpid():  # forked: the unfinished line is the parent's
            self.process, begun = os.getpid(), ""
        *lines, rest = (begun + text).split("\n")
        while len(rest) > LONGEST_LINE:
            lines.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        self.begun.text = rest
        for line in lines:
            self.put(line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: only unfinished lines wait here; see `finish`."""

    def finish(self) -> None:
        """Write this thread's unfinished line."""
        rest, self.begun.text = getattr(self.begun, "text", ""), ""
        if rest:
            self.put(rest)

    def put(self, line: str) -> None:
        """Write one line."""
        if line := line.rstrip("\r"):
            (self.handler or logging.getLogger()).handle(record_of(self.level, line))


class ByteStream(io.RawIOBase):
    """Writes bytes into a `LogStream`."""

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        plain = bytes(data)
        self.stream.write(plain.decode("utf-8", "backslashreplace"))
        return len(plain)


def record_of(level: int, text: str) -> logging.LogRecord:
    """Return a log record of a line of text."""
    return logging.LogRecord("", level, "", 0, text, None, None)


def write_stderr(text: str) -> None:
    """Write a line to the process's own stderr, past Python's streams."""
    with suppress(OSError):  # there is no other place to report to
        os.write(2, text.encode("utf-8", "backslashreplace") + b"\n")


def open_log(directory: str, worker: str) -> LineFormatter:
    """Send everything that is logged and printed to the worker's log."""
    handler = LogFile(os.path.join(directory, LOG))
    formatter = LineFormatter(worker)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    sys.stdout = LogStream(logging.INFO, 1, handler)
    sys.stderr = LogStream(logging.WARNING, 2, handler)
    return formatter


def close_log() -> None:
    """Write unfinished lines, and flush every handler."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, LogStream):
            stream.finish()
    for handler in logging.getLogger().handlers:
        with suppress(OSError):
            handler.flush()
