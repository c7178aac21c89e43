"""Who changed what, and who was refused: two bounded files in the state directory of a Nimbus, one JSON object a line.

`changes.jsonl` has every request of an operator that changes something, with its outcome; `refused.jsonl` has requests without
valid credentials. They are two files so that a flood of refusals cannot push the changes out. Only the daemon's user may read
them. A Nimbus writes what it answered itself: look at the files of all Nimbuses. No token is in any line.
Any thread may write. If the disk does not accept a line, the request is answered nevertheless, and the log says so.
Must not know: HTTP, the meaning of requests.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

CHANGES: Final = "changes.jsonl"
REFUSED: Final = "refused.jsonl"
#: The size in bytes at which a file is renamed, and how many renamed files are kept: at most 50 MB and 10 MB together.
CHANGES_BYTES: Final = 10_000_000
CHANGES_OLDER: Final = 4
REFUSED_BYTES: Final = 5_000_000
REFUSED_OLDER: Final = 1
#: The most refusals that are written in a second; further ones are only counted.
REFUSED_A_SECOND: Final = 10
#: The most characters of a text in a line.
LONGEST: Final = 300
#: Seconds between two warnings in the log about refusals, or about a disk that accepts no line of them.
WARN_SECS: Final = 60.0


@dataclass(eq=False)
class BoundedLines:
    """A file of lines. When it has `most` bytes, it is renamed to `.1`, and `.1` to `.2`; the oldest is deleted."""

    path: Path
    most: int
    older: int

    def append(self, line: str, durable: bool = False) -> None:
        """Append a line; `durable`: return when it is on the disk. Raises `OSError`."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self.path, flags, 0o600)
        try:
            os.fchmod(file, 0o600)  # whatever the umask, and if the file existed
            data = f"{line}\n".encode()
            before = os.fstat(file).st_size
            if os.write(file, data) < len(data):  # the disk is full: half a line would spoil the next one
                os.ftruncate(file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(file)
            size = os.fstat(file).st_size
        finally:
            os.close(file)
        if size >= self.most:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(self.older, 0, -1):
            earlier = self.path if number == 1 else self._older(number - 1)
            with suppress(FileNotFoundError):
                os.replace(earlier, self._older(number))

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class ChangeFiles:
    """The two files."""

    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        """`directory`: the state directory; `now`: returns seconds since 1970."""
        self._now = now
        self._changes = BoundedLines(directory / CHANGES, CHANGES_BYTES, CHANGES_OLDER)
        self._refused = BoundedLines(directory / REFUSED, REFUSED_BYTES, REFUSED_OLDER)
        self._lock = threading.Lock()
        #: By file, the time of the last warning.
        self._warned: dict[str, float] = {}
        #: The second of the last refusal, and how many refusals there were in it.
        self._second = (0, 0)
        #: Refusals that were not written since the last one that was.
        self._left_out = 0

    def changed(self, what: str, address: str, status: int, details: Mapping[str, object]) -> None:
        """Write a change. what: the request, such as "kill"; status: that of the answer; details: the kind of credentials
        ("who"), names, and what the request and its answer say."""
        entry = {"what": what, "address": address, "status": status, **details}
        with self._lock:
            self._append(self._changes, entry, durable=True)

    def refused(self, why: str, address: str, request: str) -> None:
        """Write that a request was refused because of its credentials."""
        now = self._now()
        with self._lock:
            second, written = self._second
            written = written + 1 if second == int(now) else 1
            self._second = int(now), written
            if written > REFUSED_A_SECOND:
                self._left_out += 1
                return
            more = {"not_written_before": self._left_out} if self._left_out else {}
            self._left_out = 0
            entry = {"why": why, "address": address, "request": request, **more}
            self._append(self._refused, entry, durable=False)
            if self._is_time_to_warn(REFUSED):
                _log.warning("a request from %s was refused: %s; see %s", address, why, self._refused.path)

    def _append(self, file: BoundedLines, entry: Mapping[str, object], durable: bool) -> None:
        moment = datetime.fromtimestamp(self._now(), timezone.utc).isoformat(timespec="milliseconds")
        line = json.dumps({"time": moment, **{key: _bounded(value) for key, value in entry.items()}})
        try:
            file.append(line, durable)
        except OSError as error:
            if durable or self._is_time_to_warn(
                file.path.name
            ):  # each change is somewhere: operators cause few
                _log.error(
                    "%s accepts no line (%s); this one is only here: %s", file.path, error.strerror, line
                )

    def _is_time_to_warn(self, what: str) -> bool:
        now = self._now()
        if now - self._warned.get(what, -WARN_SECS) < WARN_SECS:
            return False
        self._warned[what] = now
        return True


def _bounded(value: object) -> object:
    """Return a value that is not long."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) <= LONGEST:
        return value
    return f"{text[:LONGEST]}..."
