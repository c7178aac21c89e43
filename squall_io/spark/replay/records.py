"""What travels between the tasks of a replay: a record is some thousand tuples for one task, or a note.

Spark shuffles and sorts records and never inspects one. Within a task their order is that of (target, stream, sender,
seq), so that a task that is run again, or twice, gets the same input in the same order and gives the same output.
A blob holds the values by columns (less than half the size of rows, and faster) and, for each tuple, the source row that
its
tree began with. Tuples of an output need neither: they are kept as columns that fit a schema, for Arrow.
Must not know: Spark, Arrow, tasks.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.rows.checker import Columns, RowChecker
from topology_api.packing import dumps_by_value

Row: TypeAlias = tuple[Any, ...]
#: Further trees of a tuple, as in a batch of the worker's.
More: TypeAlias = dict[int, tuple[tuple[int, int], ...]]
#: Whatever `pickle.loads` reads from.
Buffer: TypeAlias = "bytes | memoryview"

#: `Record.stream` of what is no tuple. The first record of every task is its beginning.
BEGIN: Final = -3
TOTALS: Final = -2
ERRORS: Final = -1
#: `Record.target` of what no task reads.
NO_TASK: Final = -1

#: Tuples of a blob, at most, and bytes that one should have at most.
MOST_TUPLES: Final = 1000
MOST_BYTES: Final = 1 << 20
#: Tuples of an output that become one blob, at most.
MOST_ROWS: Final = 4096

_SENDER_BITS: Final = 32
_ROW_BITS: Final = 36
_PARTITION_BITS: Final = 20
#: Streams that may come out of frames: what is left of 63 bits.
MOST_SOURCES: Final = 1 << (63 - _ROW_BITS - _PARTITION_BITS)


class Record(NamedTuple):
    """Tuples for a task, or a note, and its place in the order."""

    target: int
    """The task that reads it, or NO_TASK."""
    stream: int
    """The number of the stream in the plan; negative: see BEGIN."""
    sender: int
    """The task that sent it, or a partition of a source."""
    seq: int
    """Numbers what one sender sends."""
    blob: Buffer | Checked
    """Bytes wherever Spark has it; `Checked` in the process where an output's tuples were emitted."""


@dataclass(frozen=True)
class Checked:
    """Tuples of an output as columns, and the checker that accepted them."""

    columns: Columns
    checker: RowChecker = field(compare=False)


def arrived(record: Record) -> Buffer:
    """Return the bytes of a record that came from Spark."""
    assert not isinstance(record.blob, Checked)
    return record.blob


@dataclass
class Tuples:
    """The contents of a blob of tuples."""

    rows: list[Row]
    roots: list[int]
    more: More


class Unpicklable(Exception):
    """A value among the rows cannot be pickled; trying the rows one by one tells which."""


def encode(rows: list[Row], roots: list[int], more: More) -> bytes:
    """Return tuples as bytes; `Unpicklable`."""
    return dumps((len(rows), columns_of(rows), array("q", roots).tobytes(), more or None))


def columns_of(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return rows as columns; none for no rows. `zip(*rows)` has an iterator for each row: ten times as slow for a thousand."""
    return [list(map(itemgetter(place), rows)) for place in range(len(rows[0]) if rows else 0)]


def decode(blob: Buffer) -> Tuples:
    """Return the tuples of a blob. Errors of unpickling a user's value come through."""
    count, columns, roots, more = pickle.loads(blob)
    rows = list(zip(*columns)) if columns else [()] * count
    return Tuples(rows, memoryview(roots).cast("q").tolist() if count else [], more or {})


def encode_all(rows: list[Row], roots: list[int], more: More) -> list[bytes]:
    """Return tuples as blobs of limited size."""
    if len(rows) <= MOST_TUPLES:
        blob = encode(rows, roots, more)
        if len(blob) <= MOST_BYTES or len(rows) == 1:
            return [blob]
    half = len(rows) // 2
    below = {at: pairs for at, pairs in more.items() if at < half}
    above = {at - half: pairs for at, pairs in more.items() if at >= half}
    return [*encode_all(rows[:half], roots[:half], below), *encode_all(rows[half:], roots[half:], above)]


def dumps(value: object) -> bytes:
    """Return a value as a pickle that includes the classes of a script. `Unpicklable`."""
    try:
        return pickle.dumps(value, 5)
    except Exception:
        try:
            return dumps_by_value(value, 5)
        except Exception as error:
            raise Unpicklable(f"{type(error).__name__}: {error}") from error


# Who sent it, and which row it began with.


def partition_sender(stream: int, partition: int) -> int:
    """Return the sender number of a source's partition; no task has such a number."""
    return (stream + 1) << _SENDER_BITS | partition


def sent_by_partition(sender: int) -> int | None:
    """Return the partition of a source that a sender stands for; None for a task."""
    return sender & ((1 << _SENDER_BITS) - 1) if sender >> _SENDER_BITS else None


class Origin(NamedTuple):
    """A row of a source."""

    source: int
    """The number of the source's stream."""
    partition: int
    row: int


def first_root(source: int, partition: int) -> int:
    """Return the root of a partition's first row; the next rows count up. Never 0, which means no tree."""
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
