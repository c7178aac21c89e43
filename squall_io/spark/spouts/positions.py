"""How far the tasks of a reading spout have read: which units are done, and up to which position the others are.

A *unit* is what one task reads on its own: a split of a file, a committed batch. Units are numbered in *series*, and
number n
of a series belongs to one task, whatever was read so far: so tasks share them without communication. A task's
record holds its finished units, and for each begun unit the position before which everything is settled, that is acked or
failed for good. A record stays true for ever, so the records of all owners that a task ever had can be
combined; the last one written has no precedence.
Must not know: files, lines, rows, spouts.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec


class Unit(NamedTuple):
    """What one task reads on its own."""

    series: str
    number: int


def owner_of(unit: Unit, parallelism: int) -> int:
    """Return the index of the task that reads a unit."""
    return (zlib.crc32(unit.series.encode()) + unit.number) % parallelism


class Ranges:
    """A set of integers, stored as ranges: a million consecutive ones take two."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int | None = None) -> None:
        """Add a number, or all from `first` to `last`."""
        last = first if last is None else last
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_left(self._firsts, last + 2)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._lasts, number)
        return place < len(self._lasts) and self._firsts[place] <= number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts))

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._firsts)


class DoneUnits:
    """The finished units of one of `parallelism` tasks. Units of other tasks are not in it."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.series: dict[str, Ranges] = {}

    def add(self, unit: Unit) -> None:
        """Add a finished unit of this task."""
        self.series.setdefault(unit.series, Ranges()).add(self._turn(unit))

    def update(self, other: DoneUnits) -> None:
        """Add everything in another record of the same task."""
        for series, ranges in other.series.items():
            own = self.series.setdefault(series, Ranges())
            for first, last in ranges:
                own.add(first, last)

    def __contains__(self, unit: Unit) -> bool:
        ranges = self.series.get(unit.series)
        if ranges is None or owner_of(unit, self.parallelism) != self.index:
            return False
        return self._turn(unit) in ranges

    def _turn(self, unit: Unit) -> int:
        """Return a unit's place among those of its series that are this task's, so that consecutive units form one range."""
        return unit.number // self.parallelism


class OpenUnit:
    """A unit being read: which of its items are in flight, and the position below which all are settled."""

    def __init__(self, unit: Unit, position: int) -> None:
        self.unit = unit
        #: Where reading goes on: after the last item that was taken.
        self.next = position
        self.exhausted = False
        self._under_way: deque[int] = deque()
        self._settled: set[int] = set()

    def taken(self, position: int, after: int) -> None:
        """Record that the item at `position` was emitted; the next one is at `after` or later."""
        self._under_way.append(position)
        self.next = after

    def settle(self, position: int) -> None:
        """Record that the item at `position` is settled; once for each emitted one."""
        under_way, settled = self._under_way, self._settled
        if under_way and under_way[0] == position:
            under_way.popleft()
            while under_way and under_way[0] in settled:
                settled.discard(under_way.popleft())
        else:
            settled.add(position)

    @property
    def position(self) -> int:
        """The position before which everything is settled."""
        return self._under_way[0] if self._under_way else self.next

    @property
    def done(self) -> bool:
        """Whether all of it is read and settled."""
        return self.exhausted and not self._under_way


class Positions:
    """What one task knows about how far all tasks have read, and how far it has read itself."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.done = DoneUnits(index, parallelism)
        self.open: dict[Unit, OpenUnit] = {}
        #: Something has changed since `record` was last asked.
        self.changed = False
        self._others: list[DoneUnits] = []
        self._known: dict[Unit, int] = {}

    def learn(self, done: DoneUnits, begun: Mapping[Unit, int]) -> None:
        """Add a record of an earlier owner, or of a task of another parallelism."""
        if (done.index, done.parallelism) == (self.index, self.parallelism):
            self.done.update(done)
        else:
            self._others.append(done)
        for unit, position in begun.items():
            if self.mine(unit):
                self._known[unit] = max(position, self._known.get(unit, 0))

    def mine(self, unit: Unit) -> bool:
        """Whether this task reads the unit."""
        return owner_of(unit, self.parallelism) == self.index

    def is_done(self, unit: Unit) -> bool:
        """Whether the unit has been read and settled, by any task."""
        return unit in self.done or any(unit in done for done in self._others)

    def begin(self, unit: Unit) -> OpenUnit:
        """Start reading a unit, where it was left."""
        opened = self.open[unit] = OpenUnit(unit, self._known.pop(unit, 0))
        return opened

    def settle(self, unit: Unit, position: int) -> None:
        """Record that an item is settled."""
        opened = self.open.get(unit)
        if opened is not None:
            opened.settle(position)
            self.changed = True
            self._close(opened)

    def exhausted(self, opened: OpenUnit) -> None:
        """Record that the unit has no further items."""
        opened.exhausted = True
        self._close(opened)

    def _close(self, opened: OpenUnit) -> None:
        if opened.done:
            del self.open[opened.unit]
            self.done.add(opened.unit)
            self.changed = True

    def record(self) -> dict[str, Any]:
        """Return this task's record, as JSON values."""
        begun = {unit: position for unit, position in self._known.items() if not self.is_done(unit)}
        begun.update((unit, opened.position) for unit, opened in self.open.items())
        self.changed = False
        return {
            "index": self.index,
            "parallelism": self.parallelism,
            "done": {series: list(ranges) for series, ranges in sorted(self.done.series.items())},
            "begun": [[*unit, position] for unit, position in sorted(begun.items())],
        }


class _Record(msgspec.Struct):
    index: int
    parallelism: int
    done: dict[str, list[tuple[int, int]]]
    begun: list[tuple[str, int, int]]


def read_record(fields: Mapping[str, Any]) -> tuple[DoneUnits, dict[Unit, int]]:
    """Return what `Positions.record` returned; `ValueError` if it is none."""
    record = msgspec.convert(fields, _Record)
    if not 0 <= record.index < record.parallelism:
        raise ValueError(f"task {record.index} of {record.parallelism}")
    done = DoneUnits(record.index, record.parallelism)
    done.series = {series: Ranges(ranges) for series, ranges in record.done.items()}
    return done, {Unit(series, number): position for series, number, position in record.begun}


msgspec.json.Decoder(_Record)  # see `envelopes.build_type_info`
