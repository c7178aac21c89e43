"""`format("squall")`: a frame has the rows that `read_committed` gives, and a stream has each of them once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.stores.files import OpenStore
from squall_io.spark import register
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.leases import held_leases
from squall_io.spark.manifest.state import read_state
from squall_io.spark.reading.committed import read_committed
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.spark.random_rows import differences, rows_of
from tests.spark.test_formats import FOLDERS, SCHEMAS, as_rows
from tests.zookeeper_servers import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow

WORDS = "word string, count bigint"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "a table")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def loaded(spark: SparkSession, files: OpenStore, **options: object) -> DataFrame:
    """The table by the data source."""
    return spark.read.format("squall").options(**options).load(files.root)  # type: ignore[arg-type]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The content of a frame, sorted as text."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def as_committed(spark: SparkSession, files: OpenStore) -> None:
    """Check that the source gives what `read_committed` gives, to the last bit."""
    wanted, found = read_committed(spark, files.root), loaded(spark, files)
    assert found.schema == wanted.schema
    names = wanted.columns
    assert differences(names, as_rows(wanted.toArrow()), as_rows(found.toArrow())) == []


def test_values_of_all_types_are_those_of_read_committed(spark: SparkSession, files: OpenStore) -> None:
    ddl = SCHEMAS["parquet"]
    task = SinkTask(files, ddl)
    made = [[number, *row[1:]] for number, row in enumerate(rows_of(parse_schema(ddl), 120, seed=5))]
    for first in range(0, 120, 40):
        task.write(spark, made[first : first + 40])
    as_committed(spark, files)
    assert loaded(spark, files).where("n < 7").select("n", "j").count() == 7


def test_partitions_and_added_columns_are_those_of_read_committed(
    spark: SparkSession, files: OpenStore
) -> None:
    ddl = "n bigint, day date, `Te xt=` string, yes boolean, small tinyint"
    by = ["day", "Te xt=", "yes", "small"]
    texts = [None, *FOLDERS[:12]]
    first = [
        (number, date(2026, 1, 1 + number), text, number % 2 == 0 if number else None, -number)
        for number, text in enumerate(texts)
    ]
    SinkTask(files, ddl, partition_by=by).write(spark, [*first, (99, None, None, None, None)])
    later = SinkTask(files, f"{ddl}, added array<int>", partition_by=by, component="later")
    later.write(spark, [(100, date(2026, 2, 1), "a", True, 1, [1, None])])
    as_committed(spark, files)


def test_a_frame_shows_the_table_at_the_moment_it_was_made(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    empty = loaded(spark, files)
    task.write(spark, [("a", 1)], committed=100.0)
    before = loaded(spark, files)
    task.write(spark, [("b", 2)], committed=200.0)
    state = read_state(files)
    assert write_next(files, state.checkpoint, state.uncovered)
    assert (rows(empty), rows(before)) == ([], [("a", 1)])
    assert rows(loaded(spark, files)) == [("a", 1), ("b", 2)]
    assert rows(loaded(spark, files, since=200)) == [("b", 2)]
    until = datetime.fromtimestamp(200, timezone.utc).isoformat()
    assert rows(loaded(spark, files, until=until)) == [("a", 1)]
    spark.sql(
        f"create or replace temporary view words using squall options (path '{files.root}', since '200')"
    )
    assert rows(spark.table("words")) == [("b", 2)]


def test_what_the_source_cannot_do_is_refused_with_the_way_out(spark: SparkSession, files: OpenStore) -> None:
    SinkTask(files, WORDS).write(spark, [("a", 1)])
    refused: dict[str, dict[str, object]] = {
        "; did you mean 'since'?": {"sinse": 1},
        "option 'key' is for squall_io.spark.read_committed(spark, path, key=...)": {"key": "word"},
        "'maxFilesPerTrigger', which is for spark.readStream": {"maxFilesPerTrigger": 1},
        "maxFilesPerTrigger is '0': give a whole number from 1 on": {"maxFilesPerTrigger": 0},
    }
    for text, options in refused.items():
        with pytest.raises(Exception) as raised:
            loaded(spark, files, **options).collect()
        assert text in str(raised.value)
    with pytest.raises(Exception, match="leave out schema"):
        spark.read.format("squall").schema("word string").load(files.root).collect()


def test_a_table_of_another_format_is_refused_with_the_way_out(spark: SparkSession, files: OpenStore) -> None:
    SinkTask(files, WORDS, file_format="json").write(spark, [("a", 1)])
    with pytest.raises(
        Exception, match=r"are json: format\(.squall.\) reads Parquet alone; .*read_committed"
    ):
        loaded(spark, files)


# Streams


class Copy:
    """A query that copies a table into a folder of Parquet files, and can be ended and started again."""

    def __init__(self, spark: SparkSession, files: OpenStore, folder: Path, **options: object) -> None:
        self.spark, self.files, self.options = spark, files, options
        self.target, self.checkpoint = f"file://{folder}/copy", f"file://{folder}/checkpoint"

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start it, or continue it."""
        stream = self.spark.readStream.format("squall").options(**self.options).load(self.files.root)  # type: ignore[arg-type]
        writer = stream.writeStream.format("parquet").option("checkpointLocation", self.checkpoint)
        return writer.trigger(**trigger).start(self.target)

    def run(self) -> int:
        """Copy what is there; return the number of Spark's batches with rows."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120) and query.exception() is None
        return sum(1 for each in query.recentProgress if each.numInputRows)

    def rows(self) -> list[tuple[Any, ...]]:
        """What was copied."""
        return rows(self.spark.read.parquet(self.target))


def test_a_stream_has_each_row_once_over_restarts_while_a_sink_commits(
    spark: SparkSession, files: OpenStore, tmp_path: Path
) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [("first", 0)])
    copy = Copy(spark, files, tmp_path)
    done = threading.Event()

    def commit() -> None:
        for number in range(1, 13):
            task.write(spark, [(f"word {number}", number), ("again", number)], committed=float(-number))
            if number % 5 == 0:
                state = read_state(files)
                write_next(files, state.checkpoint, state.uncovered)
        done.set()

    writer = threading.Thread(target=commit)
    writer.start()
    while not done.is_set():
        query = copy.start(processingTime="100 milliseconds")
        eventually(partial(getattr, query, "lastProgress"), 60)
        query.stop()
    writer.join()
    copy.run()
    assert copy.rows() == rows(read_committed(spark, files.root))
    assert len(copy.rows()) == 25
    assert copy.run() == 0


def test_a_stream_holds_the_table_and_nothing_renews_the_lease_when_it_is_stopped(
    spark: SparkSession, files: OpenStore, tmp_path: Path
) -> None:
    SinkTask(files, WORDS).write(spark, [("a", 1)])
    assert rows(loaded(spark, files)) == [("a", 1)] and not held_leases(files, 0.0)  # a frame holds nothing
    query = Copy(spark, files, tmp_path).start(processingTime="100 milliseconds")
    eventually(lambda: held_leases(files, 0.0), 60)
    [held] = held_leases(files, 0.0)
    who, pid = held.lease.holder.split(", process ")
    assert who.startswith('a stream of format("squall") on ') and Path(f"/proc/{pid}").exists()
    query.stop()
    eventually(
        lambda: not Path(f"/proc/{pid}").exists(), 60
    )  # Spark may kill it before it has given up the lease


def test_the_options_of_a_stream_limit_what_it_reads(
    spark: SparkSession, files: OpenStore, tmp_path: Path
) -> None:
    task = SinkTask(files, WORDS)
    for number in range(4):
        task.write(spark, [("a", number)], committed=100.0 * number)
    copy = Copy(spark, files, tmp_path, maxFilesPerTrigger=1, startingTimestamp=100)
    assert copy.run() == 3
    assert copy.rows() == [("a", 1), ("a", 2), ("a", 3)]
    with pytest.raises(Exception, match=r"spark.readStream has no option 'until'"):
        Copy(spark, files, tmp_path / "other", until=1).start(availableNow=True).awaitTermination(60)
