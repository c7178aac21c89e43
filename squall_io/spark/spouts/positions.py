"""How far the tasks of a reading spout have come: which units are done, and up to where the others are.

A *unit* is what one task reads on its own: a split of a file, a committed batch. Units are numbered in *series*, and number n
of a series belongs to one task, whatever was read so far: so tasks share them without talking to each other. A task's
record holds its units that are done, and of those begun the position: everything before it is settled, that is acked, or
failed for good. A record stays true for ever, whoever wrote it, so those of all owners of a task that there were may be
put together; what was written last counts no more than the others.
Must not know: files, lines, rows, spouts.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Unit(NamedTuple):
    """What one task reads on its own."""

    series: str
    number: int


def owner_of(unit: Unit, parallelism: int) -> int:
    """The index of the task that reads a unit."""
    return (zlib.crc32(unit.series.encode()) + unit.number) % parallelism


class Ranges:
    """A set of whole numbers, kept as ranges: a million that follow each other take two."""

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
        """How many ranges it takes."""
        return len(self._firsts)


class Done:
    """The units that are done of one task of `parallelism`. What belongs to others is not in it."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.series: dict[str, Ranges] = {}

    def add(self, unit: Unit) -> None:
        """A unit of this task's is done."""
        self.series.setdefault(unit.series, Ranges()).add(self._turn(unit))

    def update(self, other: Done) -> None:
        """All that another record of the same task has."""
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
        """Which of the units of its series that are this task's it is, so that units which follow each other make one range."""
        return unit.number // self.parallelism


class OpenUnit:
    """A unit that is being read: which of its items are under way, and the position below which all are settled."""

    def __init__(self, unit: Unit, position: int) -> None:
        self.unit = unit
        #: Where reading goes on: after the last item that was taken.
        self.next = position
        self.exhausted = False
        self._under_way: deque[int] = deque()
        self._settled: set[int] = set()

    def taken(self, position: int, after: int) -> None:
        """The item at `position` was emitted; the next one is at `after` or later."""
        self._under_way.append(position)
        self.next = after

    def settle(self, position: int) -> None:
        """The item at `position` is settled; once for each that was taken."""
        under_way, settled = self._under_way, self._settled
        if under_way and under_way[0] == position:
            under_way.popleft()
            while under_way and under_way[0] in settled:
                settled.discard(under_way.popleft())
        else:
            settled.add(position)

    @property
    def position(self) -> int:
        """Everything before it is settled."""
        return self._under_way[0] if self._under_way else self.next

    @property
    def done(self) -> bool:
        """Whether all of it is read and settled."""
        return self.exhausted and not self._under_way


class Positions:
    """What one task knows of how far all have come, and how far it has come itself."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.done = Done(index, parallelism)
        self.open: dict[Unit, OpenUnit] = {}
        #: Something has changed since `record` was last asked.
        self.changed = False
        self._others: list[Done] = []
        self._known: dict[Unit, int] = {}

    def learn(self, done: Done, begun: Mapping[Unit, int]) -> None:
        """Take in a record of an earlier owner, or of a task of another parallelism."""
        if (done.index, done.parallelism) == (self.index, self.parallelism):
            self.done.update(done)
        else:
            self._others.append(done)
        for unit, position in begun.items():
            if self.mine(unit):
                self._known[unit] = max(position, self._known.get(unit, 0))

    def mine(self, unit: Unit) -> bool:
        """Whether this task reads it."""
        return owner_of(unit, self.parallelism) == self.index

    def is_done(self, unit: Unit) -> bool:
        """Whether it has been read and settled, by whomever."""
        return unit in self.done or any(unit in done for done in self._others)

    def begin(self, unit: Unit) -> OpenUnit:
        """Start reading it, where it was left."""
        opened = self.open[unit] = OpenUnit(unit, self._known.pop(unit, 0))
        return opened

    def settle(self, unit: Unit, position: int) -> None:
        """An item is settled."""
        opened = self.open.get(unit)
        if opened is not None:
            opened.settle(position)
            self.changed = True
            self._close(opened)

    def exhausted(self, opened: OpenUnit) -> None:
        """There is nothing more in it to take."""
        opened.exhausted = True
        self._close(opened)

    def _close(self, opened: OpenUnit) -> None:
        if opened.done:
            del self.open[opened.unit]
            self.done.add(opened.unit)
            self.changed = True

    def record(self) -> dict[str, Any]:
        """This task's record, as JSON values."""
        begun = {unit: position for unit, position in self._known.items() if not self.is_done(unit)}
        begun.update((unit, opened.position) for unit, opened in self.open.items())
        self.changed = False
        return {
            "index": self.index,
            "parallelism": self.parallelism,
            "done": {
                series: [list(each) for each in ranges] for series, ranges in sorted(self.done.series.items())
            },
            "begun": [[unit.series, unit.number, position] for unit, position in sorted(begun.items())],
        }


def read_record(fields: Mapping[str, Any]) -> tuple[Done, dict[Unit, int]]:
    """What `Positions.record` gave; ValueError, KeyError or TypeError when it is none."""
    index, parallelism = int(fields["index"]), int(fields["parallelism"])
    if not 0 <= index < parallelism:
        raise ValueError(f"task {index} of {parallelism}")
    done = Done(index, parallelism)
    for series, ranges in fields["done"].items():
        done.series[str(series)] = Ranges((int(first), int(last)) for first, last in ranges)
    begun = {Unit(str(series), int(number)): int(position) for series, number, position in fields["begun"]}
    return done, begun
