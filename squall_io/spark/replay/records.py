"""The records that tasks of a replay exchange: about a thousand tuples for one task, or a note with errors or totals.

Spark shuffles and sorts records, but does not look into blobs. A task's records are ordered by (target, stream, sender, seq).
So if a task runs again, or twice, it gets the same input in the same order, and gives the same output.
A blob has the values by columns (which is faster and takes less than half the size of rows), and for each tuple the source row
that its tree began with. Tuples that a bolt emitted are pickled, since they may have any values; for texts and numbers
Arrow takes as long (measured: 140 ns for a text and a float there and back). Rows of a source are Arrow's columns already,
and stay that (portions.py). A blob of an output's tuples has Arrow's columns, with a schema, and no source rows.

A component that is not an output passes its notes to the first component that reads from it, and that component passes them on.
So all notes arrive with the outputs, and no frame has to be kept only for notes.
Must not know: Spark, Arrow, tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.rows.checker import Columns, RowChecker
from squall_io.spark.rows.types import Type
from topology_api.packing import dumps_by_value
from worker.routing.outbox import OutboxContents

Row: TypeAlias = tuple[Any, ...]
#: Further trees of a tuple, as in the worker's batches.
More: TypeAlias = dict[int, tuple[tuple[int, int], ...]]
#: Whatever `pickle.loads` reads from.
Buffer: TypeAlias = "bytes | memoryview"

# Values of `Record.stream` for records without tuples.
#: The first record of every task.
BEGIN: Final = -3
#: The counts and problems of a task.
TOTALS: Final = -2
#: A list of errors.
ERRORS: Final = -1
#: `Record.target` of a record that no task reads.
NO_TASK: Final = -1

#: The most tuples of a blob.
MOST_TUPLES: Final = 1000
#: The most bytes of a blob, unless a single tuple is larger.
MOST_BYTES: Final = 1 << 20
#: The most tuples of an output in one blob.
MOST_ROWS: Final = 4096
#: The most error texts in a task's totals.
FIRST: Final = 3

#: How many bits of a sender's number are the partition's number.
_SENDER_BITS: Final = 32
#: How many bits of a root are the row's position in its partition.
_ROW_BITS: Final = 36
#: How many bits of a root are the partition's number.
_PARTITION_BITS: Final = 20
#: The most sources: a source's number takes the remaining bits of a root, which has 63 bits.
MOST_SOURCES: Final = 1 << (63 - _ROW_BITS - _PARTITION_BITS)


class Record(NamedTuple):
    """Tuples for a task, or a note. The first four fields decide the order of records."""

    #: The task that reads the record, or NO_TASK.
    target: int
    #: The number of the stream in the plan; negative: see BEGIN.
    stream: int
    #: The task that sent the record, or a partition of a source.
    sender: int
    #: The number of the record among the records of its sender.
    seq: int
    #: Bytes, or `Checked` in the process that emitted an output's tuples.
    blob: Buffer | Checked


@dataclass(frozen=True)
class Checked:
    """Tuples of an output as columns, and the checker that accepted them."""

    columns: Columns
    checker: RowChecker = field(compare=False)


def arrived(record: Record) -> Buffer:
    """Return the bytes of a record that came from Spark."""
    assert not isinstance(record.blob, Checked)
    return record.blob


# Tuples


class Tuples(OutboxContents):
    """The contents of a blob of tuples."""

    __slots__ = ()

    def row(self, at: int) -> Row:
        """Return the values of a tuple."""
        return tuple([column[at] for column in self.columns])

    def trees(self, at: int) -> list[int]:
        """Return the roots of the trees of a tuple."""
        root = int.from_bytes(self.roots[8 * at : 8 * at + 8], "little", signed=True)
        return [root, *(root for root, _ in self.more.get(at, ()))]

    def part(self, start: int, stop: int) -> Tuples:
        """Return the tuples from `start` up to `stop`."""
        more = {at - start: pairs for at, pairs in self.more.items() if start <= at < stop}
        columns = [column[start:stop] for column in self.columns]
        return Tuples(columns, stop - start, self.roots[8 * start : 8 * stop], more)


class Unpicklable(Exception):
    """A value among the rows cannot be pickled. `encode_all` halves the rows until the tuple with this value is alone."""


def encode(tuples: Tuples) -> bytes:
    """Return tuples as bytes. Raises `Unpicklable`."""
    return dumps((tuples.size, tuples.columns, tuples.roots, tuples.more or None))


def decode(blob: Buffer) -> Tuples:
    """Return the tuples of a blob. Errors of unpickling a user's value are raised unchanged."""
    count, columns, roots, more = pickle.loads(blob)
    return Tuples(columns, count, roots, more or {})


def encode_all(tuples: Tuples, refuse: Callable[[Tuples], None]) -> Iterator[bytes]:
    """Yield tuples as blobs of limited size; call `refuse` with each single tuple that cannot be pickled."""
    count = tuples.size
    if count <= MOST_TUPLES:
        try:
            blob = encode(tuples)
        except Unpicklable:
            if count == 1:
                return refuse(tuples)
        else:
            if len(blob) <= MOST_BYTES or count == 1:
                yield blob
                return
    for start, stop in ((0, count // 2), (count // 2, count)):
        yield from encode_all(tuples.part(start, stop), refuse)


def dumps(value: object) -> bytes:
    """Return a value as a pickle that includes the classes of a script. Raises `Unpicklable`."""
    try:
        return pickle.dumps(value, 5)
    except Exception:
        try:
            return dumps_by_value(value, 5)
        except Exception as error:
            raise Unpicklable(f"{type(error).__name__}: {error}") from error


# Senders, and the source rows of trees


def partition_sender(stream: int, partition: int) -> int:
    """Return the sender number of a source's partition, which differs from all tasks' numbers."""
    return (stream + 1) << _SENDER_BITS | partition


def sent_by_partition(sender: int) -> int | None:
    """Return the partition of a source that a sender's number means; None for the number of a task."""
    return sender & ((1 << _SENDER_BITS) - 1) if sender >> _SENDER_BITS else None


class Origin(NamedTuple):
    """A row of a source."""

    #: The number of the source's stream.
    source: int
    partition: int
    row: int


def first_root(source: int, partition: int) -> int:
    """Return the root of a partition's first row; the next rows have the next numbers. No root is 0, since 0 means no tree."""
    if partition >> _PARTITION_BITS:
        raise ReplayFailed(
            f"a source has more than {1 << _PARTITION_BITS:,} partitions: give frame.coalesce(n) instead"
        )
    return (source << _PARTITION_BITS | partition) << _ROW_BITS | 1


def origin_of(root: int) -> Origin:
    """Return the row that a tree began with."""
    place = root >> _ROW_BITS
    row = (root & ((1 << _ROW_BITS) - 1)) - 1
    return Origin(place >> _PARTITION_BITS, place & ((1 << _PARTITION_BITS) - 1), row)


# Notes


@dataclass(frozen=True)
class ErrorNote:
    """A tuple that failed, or a call that raised."""

    component: str
    task: int
    index: int
    call: str
    #: The tuple's stream; None if no tuple failed.
    stream: str | None
    values: str | None
    error: str | None
    traceback: str
    #: The source rows that the tuple results from.
    sources: tuple[Origin, ...]

    @property
    def text(self) -> str:
        """The error as text for a message."""
        what = f"{self.component}[{self.task}] {self.call}"
        given = "" if self.values is None else f" of {self.values}"
        lines = [f"{what}{given}: {self.error or 'the tuple was failed'}"]
        return "\n  ".join([*lines, *self.traceback.splitlines()])


@dataclass(frozen=True)
class ComponentTotals:
    """The counts of all tasks of a component."""

    executed: int = 0
    emitted: int = 0
    failed: int = 0
    #: Tuples that a rich bolt neither acked nor failed.
    unsettled: int = 0
    errors: int = 0


@dataclass
class Totals:
    """The counts and problems of one task."""

    component: str
    task: int
    executed: int = 0
    emitted: int = 0
    failed: int = 0
    unsettled: int = 0
    errors: int = 0
    #: Texts of the task's first errors.
    first: list[str] = field(default_factory=list)
    #: Why the task could not be run at all.
    fatal: str | None = None
    #: The types of the values of output streams without a schema, by number and field.
    kinds: dict[int, list[Type]] = field(default_factory=dict)
    #: Why the values of an output stream without a schema have no common type.
    conflicts: dict[int, str] = field(default_factory=dict)


def decode_note(blob: Buffer) -> Any:
    """Return the errors of a record (`list[ErrorNote]`), or its `Totals`."""
    return pickle.loads(blob)
