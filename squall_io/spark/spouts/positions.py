"""Positions: how far the tasks of a reading spout have read. They say which units are done, and how far other units are read.

A *unit* is the input that one task reads alone: a split of a file, or a committed batch. Units are numbered in *series*. Number
n of a series always belongs to the same task, so tasks share units without communication. A task's record has the task's
finished units, and for each begun unit the position before which everything is settled: acked, or failed for good. A record
stays true for ever, so the records of all owners that a task ever had can be combined; their order does not matter.

```
POSITIONS/reader.json                                     what is read, and by which component; put once
POSITIONS/snapshots/<topology id>.json                    what there is to read for a submission; put once
POSITIONS/files/<number>.json                             the files of a reader of lines; see `discovery`
POSITIONS/tasks/<index>of<parallelism>.<owner>.json       the record of one owner of one task
```
Each owner of a task writes its own file, so a superseded owner that still runs overwrites nothing. A starting owner combines
all existing records. Once the result is in its own file, the new owner deletes the files of the previous owners. Records of a
different parallelism are kept: they are small, and describe units that now belong to other tasks.
Must not know: which file system has the folder, what is read, spouts.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from squall.stores.files import AbsentFile, Files
from squall.stores.settled import put_once
from squall_io.kit.in_flight import ItemsInFlight
from squall_io.spark.manifest.envelopes import build_type_info, convert, decode, seal, unseal
from squall_io.spark.manifest.layout import FOLDER, safe
from topology_api import SquallError

READER: Final = "reader.json"
TASKS: Final = "tasks"
KIND: Final = "reader"
TASK_KIND: Final = "reader's position"

_RECORD: Final = re.compile(r"([0-9]+)of([0-9]+)\..*\.json", re.ASCII)
#: How many times loading may start over. It starts over if a file disappears meanwhile.
_ATTEMPTS: Final = 20


class Unit(NamedTuple):
    """The input that one task reads alone."""

    series: str
    number: int


def owner_of(unit: Unit, parallelism: int) -> int:
    """Return the index of the task that reads a unit."""
    return (zlib.crc32(unit.series.encode()) + unit.number) % parallelism


class Ranges:
    """A set of integers, stored as ranges: a million consecutive integers take two numbers."""

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
        """Return the number of ranges."""
        return len(self._firsts)


class DoneUnits:
    """The finished units of one of `parallelism` tasks. Units of other tasks are not in it."""

    def __init__(
        self, index: int, parallelism: int, done: Mapping[str, Iterable[tuple[int, int]]] = {}
    ) -> None:
        self.index = index
        self.parallelism = parallelism
        self.series = {series: Ranges(ranges) for series, ranges in done.items()}

    def add(self, unit: Unit) -> None:
        """Add a finished unit of this task."""
        self.series.setdefault(unit.series, Ranges()).add(self._turn(unit))

    def __contains__(self, unit: Unit) -> bool:
        ranges = self.series.get(unit.series)
        if ranges is None or owner_of(unit, self.parallelism) != self.index:
            return False
        return self._turn(unit) in ranges

    def _turn(self, unit: Unit) -> int:
        """Return a unit's place among this task's units of its series, so that consecutive units form one range."""
        return unit.number // self.parallelism


class OpenUnit(ItemsInFlight):
    """A unit that is being read."""

    __slots__ = ("_settled", "_under_way", "exhausted", "next", "unit")

    def __init__(self, unit: Unit, position: int) -> None:
        super().__init__(position)
        self.unit = unit
        self.exhausted = False

    @property
    def done(self) -> bool:
        """Whether the whole unit is read and settled."""
        return self.exhausted and self.is_settled


class Positions:
    """How far one task has read, and what is known about all other tasks."""

    def __init__(self, index: int, parallelism: int) -> None:
        self.index = index
        self.parallelism = parallelism
        self.done = DoneUnits(index, parallelism)
        self.open: dict[Unit, OpenUnit] = {}
        #: Whether something has changed since the last call of `record`.
        self.changed = False
        self._others: list[DoneUnits] = []
        self._known: dict[Unit, int] = {}

    def learn(self, record: PositionRecord) -> None:
        """Add a record of an earlier owner, or of a task of a different parallelism."""
        if (record.index, record.parallelism) == (self.index, self.parallelism):
            for series, ranges in record.done.items():
                own = self.done.series.setdefault(series, Ranges())
                for first, last in ranges:
                    own.add(first, last)
        else:
            self._others.append(DoneUnits(record.index, record.parallelism, record.done))
        for series, number, position in record.begun:
            unit = Unit(series, number)
            if self.mine(unit):
                self._known[unit] = max(position, self._known.get(unit, 0))

    def mine(self, unit: Unit) -> bool:
        """Return whether this task reads the unit."""
        return owner_of(unit, self.parallelism) == self.index

    @property
    def begun(self) -> list[Unit]:
        """The units of this task that records say were begun, and are neither done nor begun here."""
        return [unit for unit in self._known if not self.is_done(unit)]

    def is_done(self, unit: Unit) -> bool:
        """Return whether the unit has been read and settled, by any task."""
        return unit in self.done or any(unit in done for done in self._others)

    def begin(self, unit: Unit) -> OpenUnit:
        """Start reading a unit at its stored position."""
        opened = self.open[unit] = OpenUnit(unit, self._known.pop(unit, 0))
        return opened

    def exhausted(self, opened: OpenUnit) -> bool:
        """Record that the unit has no further items; return whether it is finished."""
        opened.exhausted = True
        return self.close_if_done(opened)

    def close_if_done(self, opened: OpenUnit) -> bool:
        """Record that a unit is finished, if all of it is read and settled; return whether it is."""
        if not opened.done:
            return False
        del self.open[opened.unit]
        self.done.add(opened.unit)
        self.changed = True
        return True

    def record(self) -> PositionRecord:
        """Return this task's record."""
        begun = {unit: position for unit, position in self._known.items() if not self.is_done(unit)}
        begun.update((unit, opened.position) for unit, opened in self.open.items())
        self.changed = False
        done = {series: list(ranges) for series, ranges in sorted(self.done.series.items())}
        left = [(*unit, position) for unit, position in sorted(begun.items())]
        return PositionRecord(self.index, self.parallelism, done, left)


class PositionRecord(msgspec.Struct):
    """What one owner of a task has read. Raises `ValueError` for an impossible task."""

    index: int
    parallelism: int
    #: This task's finished units, as ranges by series.
    done: dict[str, list[tuple[int, int]]]
    #: Series, number and position of the units that are not finished.
    begun: list[tuple[str, int, int]]

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.parallelism:
            raise ValueError(f"task {self.index} of {self.parallelism}")


class EmittedSoFar(msgspec.Struct):
    """The position of a task whose topology keeps positions in its commits: what the task has emitted."""

    #: The submission whose tasks have agreed on the input.
    submission: str
    #: The folder of positions; None: this task has not opened it yet.
    folder: str | None = None
    #: The digest of what the tasks have agreed on; None: this task has not read that yet.
    agreed: str | None = None
    #: What the task has emitted; or, if the number of tasks was another one, what each of those has.
    records: list[PositionRecord] = []


def merged(positions: Sequence[EmittedSoFar]) -> EmittedSoFar:
    """Return what all tasks have emitted, for those of another parallelism."""
    first = next((each for each in positions if each.folder is not None), positions[0])
    # A task that has not agreed has not seen what the folder knows of its share, either.
    agreed = first.agreed if all(each.agreed for each in positions) else None
    records = [record for each in positions for record in each.records]
    return EmittedSoFar(first.submission, first.folder, agreed, records)


# The folder


class LostInput(SquallError):
    """What a task is to continue is not there any more."""


class ReaderMismatch(SquallError):
    """A folder of positions belongs to a different reader."""


class ReaderIdentity(msgspec.Struct, frozen=True):
    """A reader and its input; a folder of positions belongs to one reader."""

    topology: str
    component: str
    #: The input: its path, and everything else that determines its contents.
    reads: str

    def __str__(self) -> str:
        return f"{self.component} of topology {self.topology}, which reads {self.reads}"


def default_folder(below: str, submission: str, component: str) -> str:
    """Return the default folder of positions below a table or a folder of text. Readers of the table or of the text ignore the
    folder of positions. Each submission of a topology has a different one.
    """
    return f"{below}/{FOLDER}/readers/{safe(submission)}.{safe(component)}"


def require_reader(files: Files, reader: ReaderIdentity) -> None:
    """Check that the folder belongs to this reader, and claim it if it is new. Raises `ReaderMismatch`."""
    fields = _agreed(files, READER, KIND, lambda: msgspec.to_builtins(reader))
    existing = convert(KIND, ReaderIdentity, fields, f"{files.root}/{READER}")
    if existing != reader:
        raise ReaderMismatch(
            f"the positions in {files.root} belong to another reader:\n"
            f"  theirs: {existing}\n"
            f"  this:   {reader}\n"
            "Give a different folder, or delete this folder if the reader that it belongs to is no longer needed."
        )


def agree(files: Files, topology_id: str, snapshot: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the input that existed when this submission's first task started, the same for all tasks."""
    return _agreed(files, f"snapshots/{safe(topology_id)}.json", "reader's snapshot", snapshot)


def agreed_before(files: Files, begin: EmittedSoFar) -> Mapping[str, Any]:
    """Return the input that the tasks of an earlier start have agreed on. Raises `LostInput`."""
    path = f"{files.root}/snapshots/{safe(begin.submission)}.json"

    def lost() -> Mapping[str, Any]:
        raise LostInput(
            f"{path} is gone, which says what the committed positions are positions of: put it back, or set another "
            "topology.state.path, with which everything is read again"
        )

    snapshot = agree(files, begin.submission, lost)
    if digest_of_snapshot(snapshot) != begin.agreed:
        raise LostInput(
            f"{path} is another file than when the positions were committed: put the earlier one back, or set another "
            "topology.state.path, with which everything is read again"
        )
    return snapshot


def digest_of_snapshot(snapshot: Mapping[str, Any]) -> str:
    """Return the digest of what tasks have agreed on."""
    return hashlib.sha256(msgspec.json.encode(snapshot, order="deterministic")).hexdigest()


def _agreed(files: Files, path: str, kind: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a record that is put once, by the first caller."""
    try:
        data = files.read(path)
    except AbsentFile:
        data = put_once(files, path, seal(kind, make()))
    return unseal(kind, data, f"{files.root}/{path}")


class PositionRecords:
    """The files of one owner of one task."""

    def __init__(self, files: Files, positions: Positions, owner: str) -> None:
        self._files = files
        self._positions = positions
        self._path = f"{TASKS}/{positions.index}of{positions.parallelism}.{owner}.json"
        self._before: list[str] = []

    def load(self) -> None:
        """Combine the records of all owners of all tasks. Raises `UnreadableRecord`."""
        for _ in range(_ATTEMPTS):
            with suppress(AbsentFile):  # a different owner has just combined the file into its own
                return self._load()
        self._load()

    def _load(self) -> None:
        self._before = []
        for status in self._files.list(TASKS):
            if (named := _RECORD.fullmatch(status.name)) is None or status.is_folder:
                continue
            same_parallelism = int(named[2]) == self._positions.parallelism
            same_task = same_parallelism and int(named[1]) == self._positions.index
            if same_parallelism and not same_task:
                continue  # it is the record of another task, with the same parallelism
            path = f"{self._files.root}/{status.path}"
            data = self._files.read(status.path)
            self._positions.learn(decode(TASK_KIND, PositionRecord, data, path))
            if same_task and status.path != self._path:
                self._before.append(status.path)

    def save(self) -> None:
        """Write how far the task has read; then delete the files of the task's previous owners."""
        record = self._positions.record()
        try:
            self._files.replace(self._path, seal(TASK_KIND, record))
        except BaseException:
            self._positions.changed = True
            raise
        while self._before:
            self._files.delete(self._before[-1])
            self._before.pop()


def owner_name(topology_id: str, incarnation: tuple[int, int]) -> str:
    """Return the owner of a task, as part of a file name."""
    return f"{safe(topology_id)}.{incarnation[0]}.{incarnation[1]}"


build_type_info(ReaderIdentity, PositionRecord, EmittedSoFar)
