"""Tuples of an output as bytes that Spark keeps until the output is read, and back: Arrow's stream format, with its schema.

An output with a schema is written by it, and passed to Spark unchanged when read. Without one every task writes by the
types that it has seen so far; what differs from the merged types is read as values and checked again.
Must not know: Spark, tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.replay.records import MOST_BYTES, Buffer, Checked
from squall_io.spark.rows.arrow import plain_rows
from squall_io.spark.rows.checker import RowChecker

if TYPE_CHECKING:
    import pyarrow as pa


def to_blobs(tuples: Checked) -> Iterator[bytes]:
    """Yield tuples as blobs of limited size."""
    import pyarrow as pa

    table = tuples.checker.table(tuples.columns)
    blobs = min(table.num_rows, table.nbytes // MOST_BYTES + 1)
    each = -(-table.num_rows // blobs)
    for start in range(0, table.num_rows, each):
        into = pa.BufferOutputStream()
        with pa.ipc.new_stream(into, table.schema) as writer:
            writer.write_table(table.slice(start, each))
        yield into.getvalue().to_pybytes()


def from_blob(blob: Buffer, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yield the tuples of a blob, by the schema of the whole output."""
    import pyarrow as pa

    from squall_io.spark.rows.arrow import arrow_schema

    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        table = reader.read_all()
    if not table.schema.equals(arrow_schema(checker.schema)):
        columns, bad = checker.split(list(plain_rows(table.columns, table.num_rows)))
        if bad:  # values of both types were values of the one that they make together
            raise ReplayFailed(f"a value does not fit the type that was found for it: {bad[0][1]}")
        table = checker.table(columns)
    yield from table.to_batches()
