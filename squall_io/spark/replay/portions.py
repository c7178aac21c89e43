"""Portions: rows of a source as Arrow's columns, which go to the tasks of its readers without becoming Python's values.

A portion says which task gets which of its rows, if columns suffice for that: round robin, and keys. (Texts are hashed by the
compiled core; of other keys each distinct one is hashed once.) Each task gets its rows as blobs, with the root of each row in
the last column, and makes values of the columns, the same that `CommittedRows` emits.
Must not know: Spark, plans.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.replay.records import MOST_BYTES, Buffer, Row, Tuples
from squall_io.spark.rows.arrow import plain_rows, plain_values
from topology_api import GroupingError
from worker.routing.outbox import Outbox
from worker.routing.router import FieldsRoute, Route, ShuffleRoute, StreamOutput
from worker.routing.text_hash import choices_of

if TYPE_CHECKING:
    import pyarrow as pa

#: How an Arrow stream begins; no pickle begins like this.
_BEGINNING: Final = b"\xff\xff\xff\xff"
#: The most tuples of a blob: more cost less each, but a task that has too many errors stops only after a blob.
_MOST_TUPLES: Final = 2000
#: The most bytes that wait to become a portion.
_MOST_WAITING: Final = 16 << 20


class Portion:
    """Rows of a source that are sent together. `first`: the root of the first row."""

    def __init__(self, columns: Sequence[pa.Array], count: int, first: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        roots = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)
        names = [f"field{place}" for place in range(len(columns))]
        self.batch = pa.RecordBatch.from_arrays([*columns, roots], [*names, "root"])

    def __len__(self) -> int:
        count: int = self.batch.num_rows
        return count

    def rows(self) -> list[Row]:
        """Return the rows as plain values."""
        return list(plain_rows(self.batch.columns[:-1], len(self)))

    def chosen(self, positions: Sequence[int]) -> Iterator[Buffer]:
        """Yield the rows at these positions as blobs."""
        import pyarrow as pa

        return blobs_of(self.batch.take(pa.array(positions, pa.int32())))

    def spread(self, output: StreamOutput) -> Iterator[tuple[Outbox, Buffer]] | None:
        """Return the blobs for the outboxes that get the rows; None if single rows must be looked at."""
        if output.many or not all(type(route) in (ShuffleRoute, FieldsRoute) for route in output.picked):
            return None
        # Keys first: if one of them has no hash, round robin must not have gone on.
        fields = [(route, self.by_key(route)) for route in output.picked if isinstance(route, FieldsRoute)]
        if any(choices is None for _, choices in fields):
            return None
        chosen: list[tuple[Route, Any]] = [*fields]
        chosen += [(route, self.in_turn(route)) for route in output.picked if isinstance(route, ShuffleRoute)]
        parts = chain.from_iterable(self.divided(route, choices) for route, choices in chosen)
        return (
            (box, blob)
            for box, part in chain(((box, self.batch) for box in output.fixed), parts)
            for blob in blobs_of(part)
        )

    def in_turn(self, route: ShuffleRoute) -> pa.Array:
        """Return the position of each row's outbox."""
        number, count = len(route.boxes), len(self)
        once = [(route.next + at) % number for at in range(number)]
        route.next = (route.next + count) % number
        return as_array((array("i", once) * (count // number + 1))[:count])

    def by_key(self, route: FieldsRoute) -> pa.Array | None:
        """Return the position of each row's outbox; None if not all keys have one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        place_of = {id(box): place for place, box in enumerate(route.every)}
        if route.only >= 0 and (texts := texts_of(self.batch.column(route.only))) is not None:
            chosen = as_array(choices_of(*texts, len(route.boxes)))
            if len(route.every) == len(route.boxes):
                return chosen
            return pc.take(as_array(array("i", [place_of[id(box)] for box in route.boxes])), chosen)
        try:
            codes, keys = self.distinct(route.positions)
        except pa.ArrowNotImplementedError:  # nested values
            return None
        row: list[Any] = [None] * (self.batch.num_columns - 1)
        places = array("i")
        for key in keys:
            for position, value in zip(route.positions, key):
                row[position] = value
            try:
                places.append(place_of[id(route.pick(tuple(row)))])
            except GroupingError:
                return None
        return pc.take(as_array(places), codes)

    def distinct(self, positions: Sequence[int]) -> tuple[pa.Array, Iterable[Row]]:
        """Return the number of each row's key, and the keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        encoded = [self.batch.column(place).dictionary_encode(null_encoding="encode") for place in positions]
        found = [plain_values(each.dictionary) for each in encoded]
        codes = encoded[0].indices
        if len(encoded) == 1:
            return codes, zip(found[0])
        for each in encoded[1:]:
            more = pc.multiply(codes.cast(pa.int64()), pa.scalar(len(each.dictionary), pa.int64()))
            codes = pc.add(more, each.indices.cast(pa.int64()))
        together = codes.dictionary_encode()
        return together.indices, (key_of(code, found) for code in together.dictionary.to_pylist())

    def divided(self, route: Any, choices: pa.Array) -> Iterator[tuple[Outbox, pa.RecordBatch]]:
        """Yield the rows of each outbox, in their order."""
        import pyarrow.compute as pc

        boxes = route.every
        taken = self.batch.take(pc.array_sort_indices(choices))
        counts = {each["values"]: each["counts"] for each in pc.value_counts(choices).to_pylist()}
        start = 0
        for place in sorted(counts):
            yield boxes[place], taken.slice(start, counts[place])
            start += counts[place]


def key_of(code: int, found: Sequence[Sequence[Any]]) -> Row:
    """Return the values that the number of a key of several fields means."""
    key: list[Any] = []
    for values in reversed(found):
        code, place = divmod(code, len(values))
        key.append(values[place])
    return tuple(reversed(key))


def texts_of(column: pa.Array) -> tuple[memoryview, memoryview] | None:
    """Return the bytes of a column of texts, and where each text begins and the last one ends; None for any other column."""
    import pyarrow as pa

    if column.type != pa.string() or column.null_count:
        return None
    _, offsets, data = column.buffers()
    if data is None:  # all texts are empty
        data = b""
    places = memoryview(offsets).cast("B").cast("i")
    return memoryview(data).cast("B"), places[column.offset : column.offset + len(column) + 1]


def as_array(places: array[int]) -> pa.Array:
    """Return 32-bit integers as an Arrow array, without a copy."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(places), [None, pa.py_buffer(places)])


def portions_of(batches: Iterable[pa.RecordBatch], first: int, least: int) -> Iterator[Portion]:
    """Yield rows of a source, without the last column, as portions of `least` rows, or fewer if the rows are large."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= least or size >= _MOST_WAITING:
            yield from joined(waiting, first)
            first += rows
            waiting, rows, size = [], 0, 0
    yield from joined(waiting, first)


def joined(batches: list[pa.RecordBatch], first: int) -> Iterator[Portion]:
    """Yield batches as portions: one, unless the texts of a column are too large for one."""
    import pyarrow as pa

    for batch in pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else ():
        if batch.num_rows:
            yield Portion(batch.columns[:-1], batch.num_rows, first)
            first += batch.num_rows


def blobs_of(batch: pa.RecordBatch) -> Iterator[Buffer]:
    """Yield rows as blobs of limited size."""
    import pyarrow as pa

    count = batch.num_rows
    if count > _MOST_TUPLES or (count > 1 and batch.nbytes > MOST_BYTES):
        yield from blobs_of(batch.slice(0, count // 2))
        yield from blobs_of(batch.slice(count // 2))
    elif count:
        into = pa.BufferOutputStream()
        with pa.ipc.new_stream(into, batch.schema) as writer:
            writer.write_batch(batch)
        yield into.getvalue().to_pybytes()


def is_portion(blob: Buffer) -> bool:
    """Return whether a blob is a part of a portion; if not, it is a pickle."""
    return bytes(blob[:4]) == _BEGINNING


def decode_portion(blob: Buffer) -> Tuples:
    """Return the tuples of a blob."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        batch = reader.read_next_batch()
    *columns, roots = batch.columns
    ids = memoryview(roots.buffers()[1])[8 * roots.offset : 8 * (roots.offset + len(roots))]
    return Tuples(list(map(plain_values, columns)), len(roots), ids, {})
