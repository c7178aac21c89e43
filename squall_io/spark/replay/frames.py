"""A replay as DataFrames: records go through Spark, and every task of a component runs in a Python worker of Spark's.

    source frame -> records -> (shuffled by target, sorted) -> a component's tasks -> records -> ... -> rows

Spark moves records of about a thousand tuples each, which it does not look into. All records of a task are in one partition,
which may also have records of other tasks.
The first record of each task starts the task, so a task without input also runs.

Until an output is read, its tuples are bytes in Arrow's stream format, which includes the schema. If the caller gave a schema
for the output, tuples are written with that schema, and passed to Spark unchanged. If not, every task writes with the types
that it has seen so far. When the output is read, the types of all tasks are merged; blobs with other types are converted to
values and checked again.

The functions here run on the driver; functions named `in_worker` run in Spark's workers, where Squall must be installed.
Must not know: what tasks do, when frames are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final

from squall_io.spark.replay import records
from squall_io.spark.replay.plan import ReplayPlan, StreamKey
from squall_io.spark.replay.portions import portions_of
from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.replay.records import Buffer, Checked, ErrorNote, Record
from squall_io.spark.replay.sources import route_rows
from squall_io.spark.replay.tasks import run_tasks
from squall_io.spark.rows.arrow import arrow_schema, plain_values
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = "target int, stream int, sender bigint, seq bigint, blob binary"
ERROR_ROWS: Final = (
    "component string, task int, `index` int, call string, stream string, `values` string, error string, traceback string,"
    " sources array<struct<source: string, partition: int, row: bigint>>"
)
#: How many bytes of records a Python worker sends to Spark at once.
_AT_ONCE: Final = 4 << 20

Batches = Iterator["pa.RecordBatch"]


# Stages.


def source_records(frame: DataFrame, plan: ReplayPlan, key: StreamKey) -> DataFrame:
    """Return the rows of a source as records for the tasks of its readers."""
    from pyspark.sql import functions as sql

    def in_worker(batches: Batches) -> Batches:
        if (first := next(batches, None)) is None:
            return
        partition = first.column(first.num_columns - 1)[0].as_py()
        every = chain([first], batches)
        yield from to_arrow(
            route_rows(plan, key, partition, lambda root, least: portions_of(every, root, least))
        )

    # Spark finds columns by name once more, so the columns get distinct names that need no quotes.
    columns = [sql.col(quoted(name)).alias(f"field{place}") for place, name in enumerate(plan.fields_of(key))]
    # The partition's number is a column, since the id of a Spark task counts partitions of the whole stage, including other
    # inputs.
    return frame.select(*columns, sql.spark_partition_id().alias("partition")).mapInArrow(in_worker, RECORDS)


def component_records(
    spark: SparkSession, plan: ReplayPlan, step: str, inputs: Sequence[DataFrame]
) -> DataFrame:
    """Return the records that the tasks of a component send, given the records that they receive (`inputs`)."""
    from pyspark.sql import functions as sql

    tasks = plan.tasks_of[step]
    first, count = tasks[0], len(tasks)

    def in_worker(batches: Batches) -> Batches:
        return to_arrow(run_tasks(plan, from_arrow(batches)))

    beginnings = spark.range(first, first + count, 1, 1).select(
        sql.col("id").cast("int").alias("target"),
        sql.lit(records.BEGIN).alias("stream"),
        sql.lit(-1).cast("bigint").alias("sender"),
        sql.lit(-1).cast("bigint").alias("seq"),
        sql.lit(b"").cast("binary").alias("blob"),
    )
    own = [frame.where(sql.col("target").between(first, first + count - 1)) for frame in inputs]
    together = reduce(lambda one, other: one.unionAll(other), own, beginnings)
    placed = together.repartitionById(count, sql.col("target") - sql.lit(first))
    return placed.sortWithinPartitions("target", "stream", "sender", "seq").mapInArrow(in_worker, RECORDS)


# Outputs and errors.


def output_rows(sent: DataFrame, plan: ReplayPlan, key: StreamKey, schema: Schema) -> DataFrame:
    """Return the tuples of an output as rows of its schema."""

    def in_worker(batches: Batches) -> Batches:
        checker = RowChecker(schema)
        for record in from_arrow(batches):
            yield from from_blob(records.arrived(record), checker)

    return noted(sent, plan.number_of[key]).mapInArrow(in_worker, str(schema))


def error_rows(sent: Sequence[DataFrame], plan: ReplayPlan) -> DataFrame:
    """Return the reported errors."""
    sources = [str(key) for key in plan.sources]

    def in_worker(batches: Batches) -> Batches:
        for record in from_arrow(batches):
            yield errors_to_arrow(records.decode_note(records.arrived(record)), sources)

    every = reduce(lambda one, other: one.unionAll(other), (noted(each, records.ERRORS) for each in sent))
    return every.mapInArrow(in_worker, ERROR_ROWS)


def noted(sent: DataFrame, stream: int) -> DataFrame:
    """Return those records without a target task that belong to one stream, or are notes of one kind."""
    from pyspark.sql import functions as sql

    return sent.where((sql.col("target") == records.NO_TASK) & (sql.col("stream") == stream))


# Arrow.


def from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Yield the records in Arrow batches; blobs are not copied."""
    for batch in batches:
        numbers = [batch.column(place).to_pylist() for place in range(4)]
        blobs = batch.column(4)
        for place, (target, stream, sender, seq) in enumerate(zip(*numbers)):
            yield Record(target, stream, sender, seq, memoryview(blobs[place].as_buffer()))


def to_arrow(sent: Iterable[Record]) -> Batches:
    """Yield records as Arrow batches of limited size."""
    import pyarrow as pa

    types = [pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.binary()]

    def batch() -> pa.RecordBatch:
        columns = [pa.array(column, kind) for column, kind in zip(zip(*waiting), types)]
        return pa.RecordBatch.from_arrays(columns, list(Record._fields))

    waiting: list[tuple[int, int, int, int, Buffer]] = []
    size = 0
    for target, stream, sender, seq, blob in sent:
        for each in to_blobs(blob) if isinstance(blob, Checked) else (blob,):
            waiting.append((target, stream, sender, seq, each))
            size += len(each)
            if size >= _AT_ONCE:
                yield batch()
                waiting, size = [], 0
    if waiting:
        yield batch()


def to_blobs(tuples: Checked) -> Iterator[bytes]:
    """Yield tuples as blobs of limited size."""
    import pyarrow as pa

    table = tuples.checker.table(tuples.columns)
    blobs = min(table.num_rows, table.nbytes // records.MOST_BYTES + 1)
    each = -(-table.num_rows // blobs)
    for start in range(0, table.num_rows, each):
        into = pa.BufferOutputStream()
        with pa.ipc.new_stream(into, table.schema) as writer:
            writer.write_table(table.slice(start, each))
        yield into.getvalue().to_pybytes()


def from_blob(blob: Buffer, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yield the tuples of a blob, in the schema of the whole output."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        table = reader.read_all()
    if not table.schema.equals(arrow_schema(checker.schema)):
        columns, bad = checker.split_columns(list(map(plain_values, table.columns)), table.num_rows)
        if bad:  # every value of the task's types is also valid for the merged types
            raise ReplayFailed(
                f"a value does not fit the type that was inferred for it: {'; '.join(bad[min(bad)])}"
            )
        table = checker.table(columns)
    yield from table.to_batches()


def errors_to_arrow(notes: Sequence[ErrorNote], sources: Sequence[str]) -> pa.RecordBatch:
    """Return errors as rows of `ERROR_ROWS`."""
    import pyarrow as pa

    texts = ("values", "error", "traceback")
    rows = [
        vars(note)
        | {name: printable(getattr(note, name)) for name in texts}
        | {"sources": [{**row._asdict(), "source": sources[row.source]} for row in note.sources]}
        for note in notes
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(parse_schema(ERROR_ROWS)))


def printable(text: str | None) -> str | None:
    """Return a text without lone surrogates, which UTF-8 cannot encode."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")
