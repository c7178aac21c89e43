"""How far a query of Structured Streaming has read a table: which batches it has had.

Entries may appear in any order: each task of a sink has its own clock, and a listing of HDFS may show the second of two entries
alone. So an offset is a set of batches. It stays small, however many batches and submissions there are, because a checkpoint of
the manifest begins with the entries of the one before, in the same order (see `checkpoints`). An offset names

- `checkpointed`: how many entries at the beginning of the checkpoint are read, and `last`, the batch of the last of these;
- `batches`: those that are read beside these, as ranges of numbers for each owner of a writer id.

Batches are read in the order of the checkpoint, and then by the time of their commits. So `batches` are few: the checkpoint has
them soon, and with the next batch they are part of `checkpointed`.

**Each batch is delivered once.** An offset has a batch for ever: `advance` keeps what was there. Between two offsets are the
batches that only the second one has. The answer is the same whenever Spark asks, also after a restart, and after a compaction,
whose entry has no rows of its own. A batch whose writer id has a new owner waits until the fence of that owner has decided on
it: until then it might be seen now and later not count.
Must not know: Spark, files, where rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.envelopes import build_type_info
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import TableState
from squall_io.spark.reading.moments import Span
from squall_io.spark.spouts.positions import Ranges
from topology_api import SquallError

#: The form of offsets. A Squall refuses those of a newer form.
FORM: Final = 1


class WrongOffset(SquallError):
    """An offset that does not fit the table."""


class Offset(msgspec.Struct, frozen=True):
    """The batches that a query has read. Batches before `since` are never read."""

    since: float | None = None
    checkpointed: int = 0
    last: str | None = None
    batches: Mapping[str, tuple[tuple[int, int], ...]] = {}
    form: int = FORM

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    @classmethod
    def of_json(cls, fields: Mapping[str, Any], root: str) -> Offset:
        """Return the offset that Spark has stored. Raises `WrongOffset`."""
        try:
            offset = msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise WrongOffset(
                f"the checkpoint of the query has an offset that is none of the table {root}: {error}"
            ) from None
        if offset.form > FORM:
            raise WrongOffset(
                f"a newer Squall has written the checkpoint of the query (form {offset.form}, this Squall reads forms up to"
                f" {FORM}): continue the query with that Squall"
            )
        return offset


class Limit(msgspec.Struct, frozen=True):
    """The most that is read at once; one batch is read in any case. None: no limit."""

    files: int | None = None
    rows: int | None = None
    #: Only these batches are read.
    within: frozenset[BatchName] | None = None


class TableReading:
    """A table and the batches of an offset in it. Raises `WrongOffset` if the table does not have them."""

    def __init__(self, root: str, state: TableState, offset: Offset) -> None:
        self._offset = offset
        self._span = Span(since=offset.since)
        self._ranges = {series: Ranges(ranges) for series, ranges in offset.batches.items()}
        self._checkpoint = state.checkpoint.entries
        #: The entries after those that `checkpointed` counts, each with its place in the checkpoint or behind it.
        self._rest = list(enumerate(_in_order(state)))[offset.checkpointed :]
        if (problem := self._problem()) is not None:
            raise WrongOffset(
                f"the query has read another table at {root}, or a copy from a backup has taken its place: {problem}. Start a"
                " new query, with a checkpointLocation of its own, or bring the table back"
            )

    def has(self, place: int, entry: BatchEntry) -> bool:
        """Return whether the offset has the entry at a place."""
        return place < self._offset.checkpointed or entry.batch.number in self._ranges.get(_series(entry), ())

    def unread(self) -> Iterator[BatchEntry]:
        """Yield the batches that are to be read next, in this order."""
        return (entry for place, entry in self.to_read() if not self.has(place, entry))

    def to_read(self) -> Iterator[tuple[int, BatchEntry]]:
        """Yield the batches of sinks since the wanted moment with their places, without those that `checkpointed` counts."""
        return ((place, entry) for place, entry in self._rest if self._is_wanted(entry))

    def advance(self, taken: Iterable[BatchEntry]) -> Offset:
        """Return the offset after `taken`, which are unread. Without any, the offset is the same: a query then waits."""
        names = {entry.batch for entry in taken}
        if not names:
            return self._offset
        read = [
            (place, entry)
            for place, entry in self._rest
            if not self._is_wanted(entry) or entry.batch in names or self.has(place, entry)
        ]
        done = self._offset.checkpointed
        for place, _ in read:
            if place != done or place >= len(self._checkpoint):
                break
            done += 1
        ranges: dict[str, Ranges] = {}
        for place, entry in read:
            if place >= done and self._is_wanted(entry):
                ranges.setdefault(_series(entry), Ranges()).add(entry.batch.number)
        last = str(self._checkpoint[done - 1].batch) if done else None
        return Offset(
            self._offset.since, done, last, {series: tuple(each) for series, each in sorted(ranges.items())}
        )

    def _is_wanted(self, entry: BatchEntry) -> bool:
        return not entry.replaces and self._span.holds(entry.committed)

    def _problem(self) -> str | None:
        done, there = self._offset.checkpointed, len(self._checkpoint)
        if done > there:
            return f"{done} batches of its checkpoint were read, and now it has {there}"
        if done and str(self._checkpoint[done - 1].batch) != self._offset.last:
            return f"batch {self._offset.last} was read, and is not at its place in the checkpoint of the manifest"
        counted: dict[str, Ranges] = {}
        for _, entry in self._rest:
            counted.setdefault(_series(entry), Ranges()).add(entry.batch.number)
        for series, ranges in self._ranges.items():
            for first, last in ranges:
                if not _covers(counted.get(series, Ranges()), first, last):
                    return f"batches from {series}.{first} on were read, and do not count any more"
        return None


def next_offset(reading: TableReading, limit: Limit) -> Offset:
    """Return the offset at which the next rows end."""
    taken: list[BatchEntry] = []
    files = rows = 0
    for entry in reading.unread():
        if limit.within is not None and entry.batch not in limit.within:
            continue
        files, rows = files + len(entry.files), rows + entry.rows
        over = (limit.files is not None and files > limit.files) or (
            limit.rows is not None and rows > limit.rows
        )
        if taken and over:
            break
        taken.append(entry)
    return reading.advance(taken)


def between(root: str, state: TableState, start: Offset, end: Offset) -> list[BatchEntry]:
    """Return the batches that `end` has and `start` does not have, in the order of their commits. Raises `WrongOffset`."""
    before, after = TableReading(root, state, start), TableReading(root, state, end)
    entries = [
        entry for place, entry in before.to_read() if after.has(place, entry) and not before.has(place, entry)
    ]
    return sorted(entries, key=order_of)


def deliverable(state: TableState) -> frozenset[BatchName]:
    """Return the batches that a query may read."""
    return frozenset(entry.batch for entry in _in_order(state))


def _in_order(state: TableState) -> Iterator[BatchEntry]:
    """Yield the entries that count for certain: those of the checkpoint, in its order, then the others by their commits."""
    yield from state.checkpoint.entries
    yield from sorted(state.uncovered, key=order_of)


def order_of(entry: BatchEntry) -> tuple[float, BatchName]:
    """Return what sorts entries in the order of their commits."""
    return entry.committed, entry.batch


def _series(entry: BatchEntry) -> str:
    return f"{entry.batch.writer_id}.{entry.batch.epoch}"


def _covers(ranges: Ranges, first: int, last: int) -> bool:
    return any(begin <= first and last <= end for begin, end in ranges)


build_type_info(Offset)
