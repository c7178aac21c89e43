"""The end of a remote log. It is read in pieces, followed while the log grows, and split into entries.

A log is read by byte offsets (negative offsets count from the end). When the file is rotated, which may happen at any time,
offsets restart at 0. A worker that restarts on the same host continues the same file; on a different host it has a new file.
Must not know: how the log is reached, where entries are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec

from squall.api.answers import LogAnswer
from squall.reports.log_lines import CONTINUED

#: Bytes of the first read from the end of a log.
FIRST: Final = 16 * 1024
#: Bytes of each later request.
PIECE: Final = 256 * 1024
#: The most bytes that are read from the end of a log.
MOST: Final = 4 * 1024 * 1024

#: A line of a worker's log: `2026-03-01 12:00:00,123 INFO count[4] text`.
LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (\S+) (.*)", re.DOTALL)

#: (offset, limit) -> the piece of the log that begins at this offset.
Ask = Callable[[int, int], "LogAnswer"]


class LogEntry(msgspec.Struct, frozen=True):
    """One log entry. `text` may have several lines. `time`, `level` and `place` are "" if the log does not have them."""

    worker: str
    host: str
    time: str
    level: str
    place: str
    text: str

    def of(self, component: str | None) -> bool:
        """Whether a task of this component logged the entry; always true if `component` is None."""
        return component is None or self.place.startswith(f"{component}[")

    @property
    def lines(self) -> list[str]:
        """Return the entry as its lines in the log; no line but the first looks like an entry."""
        head = f"{self.time} {self.level} {self.place} " if self.time else ""
        return (head + self.text.replace("\n", f"\n{CONTINUED}")).split("\n")


def entries(worker: str, host: str, lines: Iterable[str]) -> list[LogEntry]:
    """Group lines into entries: a line without a time continues the previous entry, if that entry has a time."""
    found: list[LogEntry] = []
    for line in lines:
        match = LINE.fullmatch(line)
        if match is not None:
            found.append(LogEntry(worker, host, *match.groups()))
        elif found and found[-1].time:
            found[-1] = msgspec.structs.replace(
                found[-1], text=f"{found[-1].text}\n{line.removeprefix(CONTINUED)}"
            )
        else:
            found.append(LogEntry(worker, host, "", "", "", line))
    return found


def merged(of_workers: Iterable[list[LogEntry]]) -> list[LogEntry]:
    """Merge the entries of several logs by time; each log keeps its own order."""
    keyed: list[tuple[str, LogEntry]] = []
    for found in of_workers:
        keyed += zip(accumulate((entry.time for entry in found), max), found)
    return [entry for _, entry in sorted(keyed, key=lambda pair: pair[0])]


@dataclass(eq=False)
class Tail:
    """One worker's log."""

    worker: str
    host: str
    ask: Ask
    #: The offset of the next read.
    offset: int = 0
    #: The beginning of an unfinished line.
    rest: str = ""

    def last(self, number: int, component: str | None = None, following: bool = True) -> list[LogEntry]:
        """Return the last `number` entries; if a component is given, only its entries. An unfinished line is included unless
        `following`."""
        window = FIRST
        while True:
            start, text = self.end_of_log(window)
            lines = text.split("\n")
            if start > 0:
                lines = lines[1:]  # the window began inside this line
            *lines, self.rest = lines or [""]
            if not following:
                lines += self.close()
            found = [entry for entry in self.entries(lines) if entry.of(component)]
            if len(found) >= number or start <= 0 or window >= MOST:
                return found[-number:] if number else []
            window *= 4

    def end_of_log(self, window: int) -> tuple[int, str]:
        """Return the last bytes as text, with their offset in the log; `window` is their number."""
        answer = self.ask(-window, window)
        start, text = answer.offset, answer.text
        self.offset = answer.next_offset
        while self.offset < answer.size and self.offset > answer.offset:
            answer = self.ask(self.offset, PIECE)  # the answer was shorter than requested
            text += answer.text
            self.offset = answer.next_offset
        return start, text

    def more(self, component: str | None = None) -> list[LogEntry]:
        """Return the entries since the last call."""
        lines: list[str] = []
        for _ in range(MOST // PIECE):
            answer = self.ask(self.offset, PIECE)
            if answer.size < self.offset:
                lines += self.close()
                self.offset = 0
                continue
            self.offset = answer.next_offset
            *whole, self.rest = (self.rest + answer.text).split("\n")
            lines += whole
            if self.offset >= answer.size or not answer.text:
                break
        return [entry for entry in self.entries(lines) if entry.of(component)]

    def close(self) -> list[str]:
        """Return the unfinished last line, if there is one. Call this when the log has ended."""
        lines = [self.rest] if self.rest else []
        self.rest = ""
        return lines

    def entries(self, lines: Iterable[str]) -> list[LogEntry]:
        return entries(self.worker, self.host, lines)
