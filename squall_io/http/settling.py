"""Which segments of the log may be deleted: those to which no task goes back any more.

With epochs a topology may be sent back to any commit that it keeps, so a segment goes when a number of commits are past it.
Without epochs it goes when all of its requests are settled, and all segments of its writer before it are gone: so a missing
number always means the same.
Must not know: files, requests, tuples.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from squall_io.http.segments import Places, Segment, SegmentReader
from squall_io.kit.in_flight import ItemsInFlight

#: Positions beyond the kept commits: of the epochs that are under way.
UNDER_WAY: Final = 2


class SettledLog(Protocol):
    """What is settled of what was emitted."""

    def emitted(self, segment: Segment) -> int:
        """Record an emission; return its number."""

    def finished(self, segment: Segment) -> None:
        """Record that all requests of a segment were emitted."""

    def settle(self, number: int, segment: Segment) -> None:
        """Record that an emission is acked, or has failed for good."""

    def asked(self, position: Places) -> None:
        """Record a position that the runtime has asked for."""

    def restart(self, position: Places) -> None:
        """Begin again at a position: what was emitted is emitted again."""

    def deletable(self, reader: SegmentReader) -> list[Segment]:
        """Return the segments that may be deleted, in the order in which they are to be."""

    def deleted(self, segment: Segment) -> None:
        """Forget a segment, which is deleted."""

    def backlog(self, reader: SegmentReader) -> int:
        """Return the bytes of the segments that are not processed yet."""


class SettledByCommits:
    """With epochs. keep: how many commits the topology keeps."""

    def __init__(self, keep: int) -> None:
        self._most = keep + UNDER_WAY
        self._flight = ItemsInFlight(0)
        self._first = 0
        #: The positions that may still be returned to, each with the number of emissions before it.
        self._asked: deque[tuple[int, Places]] = deque()

    def emitted(self, segment: Segment) -> int:
        """Record an emission; return its number."""
        number = self._flight.next
        self._flight.taken(number, number + 1)
        return number

    def finished(self, segment: Segment) -> None:
        """Do nothing: positions say it."""

    def settle(self, number: int, segment: Segment) -> None:
        """Record that an emission is committed."""
        if number >= self._first:
            self._flight.settle(number)

    def asked(self, position: Places) -> None:
        """Record a position."""
        self._asked.append((self._flight.next, position))

    def restart(self, position: Places) -> None:
        """Begin again at a position."""
        self._first = self._flight.next
        self._flight = ItemsInFlight(self._first)
        self._asked.clear()
        self.asked(position)

    def deletable(self, reader: SegmentReader) -> list[Segment]:
        """Return the segments before the oldest position that may still be returned to."""
        asked, settled = self._asked, self._flight.position
        committed = sum(1 for emitted, _ in asked if emitted <= settled)
        while committed > self._most:
            asked.popleft()
            committed -= 1
        if committed < self._most:
            return []
        oldest = asked[0][1]
        return [
            Segment(writer, number)
            for writer in reader.writers
            if writer in oldest
            for number in reader.numbers(writer)
            if number < oldest[writer][0]
        ]

    def deleted(self, segment: Segment) -> None:
        """Do nothing."""

    def backlog(self, reader: SegmentReader) -> int:
        """Return the bytes that the last commit is not past. What only older commits need does not count: while nothing is
        emitted there are no commits, so it would stay."""
        settled = self._flight.position
        committed: Places = {}
        for emitted, places in self._asked:
            if emitted <= settled:
                committed = places
        return reader.bytes_from(committed)


class SettledByAcks:
    """Without epochs."""

    def __init__(self) -> None:
        #: How many requests of a segment are open, and whether all were emitted.
        self._open: dict[tuple[str, int], int] = {}
        self._finished: set[tuple[str, int]] = set()
        self._count = 0

    def emitted(self, segment: Segment) -> int:
        """Record an emission; return its number."""
        self._open[segment[:2]] = self._open.get(segment[:2], 0) + 1
        self._count += 1
        return self._count

    def finished(self, segment: Segment) -> None:
        """Record that all requests of a segment were emitted."""
        self._finished.add(segment[:2])

    def settle(self, number: int, segment: Segment) -> None:
        """Record that an emission is acked, or has failed for good."""
        if segment[:2] in self._open:
            self._open[segment[:2]] -= 1

    def asked(self, position: Places) -> None:
        """Do nothing: positions are not kept."""

    def restart(self, position: Places) -> None:
        """Begin again."""
        self._open.clear()
        self._finished.clear()

    def deletable(self, reader: SegmentReader) -> list[Segment]:
        """Return, of each writer, the first segments that are settled."""
        found: list[Segment] = []
        if not self._finished:
            return found
        for writer in reader.writers:
            for number in reader.numbers(writer):
                key = (writer, number)
                if key not in self._finished or self._open.get(key):
                    break
                found.append(Segment(writer, number))
        return found

    def deleted(self, segment: Segment) -> None:
        """Forget a segment."""
        self._open.pop(segment[:2], None)
        self._finished.discard(segment[:2])

    def backlog(self, reader: SegmentReader) -> int:
        """Return the bytes that are not deleted."""
        return reader.bytes
