"""The log of requests: which segment a task emits next, and where the reading of each writer is.

A *segment* is a file with the requests that were stored together. It is written once, as a whole, by a *writer*: one run of a
task's server. A writer numbers its segments 1, 2, 3 ... and begins one only when the one before is stored. The name of a
writer has the index of its task, so each writer is read by exactly one task, whatever their number: `index % parallelism`. So a
task reads what earlier runs of it have stored, and what such a run still stores after it was given up.

A listing of the files may miss a file that is put meanwhile, and show a later one of the same writer. What a listing has
shown, the next listing shows with all that was before it: that is when a missing number counts as missing.
Must not know: files, requests, the clock.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from topology_api import SquallError

#: Where the reading of each writer is: the number of a segment, and how many of its requests were emitted.
Places = dict[str, list[int]]

#: How many writers of which no segment is left a position names: the newest ones. One of them may still store a request,
#: long after it was given up.
IDLE_WRITERS: Final = 1000

_NAME: Final = re.compile(r"(([0-9]{5})-([0-9a-f]{8})-[0-9a-f]{24})\.([0-9]{10})\.requests")


class LostRequests(SquallError):
    """Requests that were answered 202 are not in the directory any more, and were not emitted yet."""


class Segment(NamedTuple):
    """A segment that is to be emitted. row: how many of its requests were emitted already."""

    writer: str
    number: int
    row: int = 0


def writer_name(index: int, directory: str, unique: str) -> str:
    """Return the name of a writer. directory: 8 hexadecimal digits that the directory has; unique: 24 that no other writer
    has, the time of its start first."""
    return f"{index:05}-{directory}-{unique}"


def file_name(writer: str, number: int) -> str:
    """Return the name of a segment's file."""
    return f"{writer}.{number:010}.requests"


def segment_named(name: str) -> Segment | None:
    """Return the segment that a file has, by its name; None: the file has none."""
    found = _NAME.fullmatch(name)
    return None if found is None else Segment(found[1], int(found[4]))


def index_of(writer: str) -> int:
    """Return the index of the task that a writer was."""
    return int(writer[:5])


def directory_of(writer: str) -> str:
    """Return the digits of the directory in which a writer stores."""
    return writer[6:14]


def age_of(writer: str) -> str:
    """Return what sorts writers by the time of their start."""
    return writer[15:]


class SegmentReader:
    """The segments of one task.

    own: the name of this task's writer, whose segments `stored` reports; all others come from listings.
    strict: whether a missing number is lost; else another process of the task may have settled and deleted it.
    """

    def __init__(self, index: int, parallelism: int, own: str, strict: bool) -> None:
        self._index, self._parallelism, self._own, self._strict = index, parallelism, own, strict
        #: The bytes of each segment that is not deleted, by writer and number.
        self._there: dict[str, dict[int, int]] = {}
        self._next: Places = {own: [1, 0]}
        #: Writers whose next segment is not known, or is missing, and the highest number that the last listing had of each.
        self._doubted: dict[str, int] = {}
        self._turns: deque[str] = deque([own])

    @property
    def bytes(self) -> int:
        """The bytes of all segments that are not deleted."""
        return sum(sum(sizes.values()) for sizes in list(self._there.values()))

    def bytes_from(self, places: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes of the segments that places are not past. A writer that they do not name is not read yet."""
        unread = (0, 0)
        return sum(
            size
            for writer, sizes in list(self._there.items())
            for number, size in list(sizes.items())
            if number >= places.get(writer, unread)[0]
        )

    def stored(self, number: int, size: int) -> None:
        """Record a new segment of this task's own writer, in order."""
        self._there.setdefault(self._own, {})[number] = size
        if self._own not in self._next:
            self._next[self._own] = [number, 0]

    def listed(self, found: Iterable[tuple[str, int]]) -> None:
        """Record a listing, the names of all files with their bytes, that began after the last one had ended. Raises
        LostRequests."""
        seen: dict[str, dict[int, int]] = {}
        for name, size in found:
            segment = segment_named(name)
            if segment is not None and segment.writer != self._own and self.is_mine(segment.writer):
                seen.setdefault(segment.writer, {})[segment.number] = size
        own = self._there.get(self._own)
        self._there = seen if own is None else {**seen, self._own: own}
        known = [each for each in self._turns if each in seen or each == self._own]
        self._turns = deque([*known, *sorted(set(seen).difference(known), key=age_of)])
        lost = [
            text for writer in {**self._next, **seen} if (text := self._settled_doubt(writer)) is not None
        ]
        if lost:
            raise LostRequests(
                f"{'; '.join(lost[:3])}: these requests were answered 202, and were not emitted yet. Restore the files, or set"
                " another topology.state.path, with which reading begins at the earliest segment of each writer"
            )

    def is_mine(self, writer: str) -> bool:
        """Return whether this task reads a writer."""
        return index_of(writer) % self._parallelism == self._index

    @property
    def in_doubt(self) -> bool:
        """Whether another listing would tell what comes next."""
        return bool(self._doubted)

    def ready(self) -> Segment | None:
        """Return the segment to emit now; None: there is none. Writers take turns."""
        turns = self._turns
        for _ in range(len(turns)):
            writer = turns[0]
            place = self._next.get(writer)
            if place is not None and place[0] in self._there.get(writer, ()):
                return Segment(writer, *place)
            turns.rotate(-1)
        return None

    def emitted(self, segment: Segment) -> None:
        """Record that one more request of a segment was emitted."""
        self._next[segment.writer][1] += 1

    def finished(self, segment: Segment) -> None:
        """Record that all requests of a segment were emitted."""
        self._next[segment.writer] = [segment.number + 1, 0]
        self._turns.rotate(-1)

    def numbers(self, writer: str) -> list[int]:
        """Return the segments of a writer that are not deleted, in order."""
        return sorted(self._there.get(writer, ()))

    @property
    def writers(self) -> list[str]:
        """The writers that have segments."""
        return list(self._there)

    def deleted(self, segment: Segment) -> None:
        """Record that a segment was deleted."""
        sizes = self._there.get(segment.writer, {})
        sizes.pop(segment.number, None)
        if not sizes:
            self._there.pop(segment.writer, None)

    def position(self) -> Places:
        """Return where the reading of each writer is."""
        idle = [each for each in self._next if each not in self._there and each != self._own]
        dropped = set(sorted(idle, key=age_of)[: max(0, len(idle) - IDLE_WRITERS)])
        return {writer: list(place) for writer, place in self._next.items() if writer not in dropped}

    def rewind(self, position: Mapping[str, Sequence[int]] | None) -> None:
        """Continue at a position of all tasks, or of this one; None: at the earliest segments."""
        self._next = {
            writer: [int(place[0]), int(place[1])]
            for writer, place in (position or {}).items()
            if self.is_mine(writer)
        }
        self._doubted.clear()
        if self._own not in self._next:
            self._next[self._own] = [min(self._there.get(self._own, {1: 0})), 0]

    @property
    def elsewhere(self) -> int:
        """How many writers of the position have stored into another directory: their segments are not here."""
        here = directory_of(self._own)
        return sum(1 for writer in self._next if directory_of(writer) != here)

    def _settled_doubt(self, writer: str) -> str | None:
        """Find out what comes next of a writer after a listing; return what is lost."""
        numbers, place = self._there.get(writer, {}), self._next.get(writer)
        seen = self._doubted.pop(writer, None)
        if place is not None and (writer == self._own or place[0] in numbers):
            return None
        if place is not None and place[1] and directory_of(writer) == directory_of(self._own):
            if self._strict:
                return f"segment {file_name(writer, place[0])} is gone"
            self._next[writer] = place = [place[0] + 1, 0]
        later = [number for number in numbers if place is None or number > place[0]]
        if not later:
            return None
        if place is None and 1 in numbers:
            self._next[writer] = [1, 0]
        elif seen is None or min(later) > seen:
            self._doubted[writer] = max(later)
        elif place is not None and self._strict:
            return f"segment {file_name(writer, place[0])} is gone, and {min(later)} is there"
        else:
            self._next[writer] = [min(later), 0]
        return None


def merged(positions: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Return the positions of all tasks together. A writer is read by one task at a time; of two places, the later one
    counts."""
    places: dict[str, list[int]] = {}
    for position in positions:
        for writer, place in position.items():
            places[writer] = max(places.get(writer, [0, 0]), list(place))
    return places
