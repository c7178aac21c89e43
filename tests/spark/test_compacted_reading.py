"""A compacted table has the same rows for all readers, in the same order, also when the old files are gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.stores.files import Files, OpenStore
from squall_io.spark.compaction.compacting import compact
from squall_io.spark.compaction.parquet_merges import merge_parquet
from squall_io.spark.compaction.spark_merges import SparkMerges
from squall_io.spark.manifest.rewriting import Wanted
from squall_io.spark.manifest.state import read_state
from squall_io.spark.reading.committed import choose, read_committed
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.spark.random_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

#: A column of each type.
WIDE = (
    "n bigint NOT NULL, day string, t tinyint, s smallint, i int, f float, d double, b boolean, text string, raw binary, "
    "date date, at timestamp, local timestamp_ntz, small decimal(5,2), middle decimal(18,4), large decimal(38,10), "
    "list array<int>, lists array<array<string>>, map map<string,bigint>, "
    "struct struct<a: int, b: struct<c: timestamp, d: array<decimal(10,3)>>>"
)
MORE = f"{WIDE}, added string"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "a table")) as opened:
        yield opened


def made(ddl: str, count: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows in three partitions; many have the keys of other batches."""
    found = rows_of(parse_schema(ddl), count, seed)
    for at, row in enumerate(found):
        row[0], row[1] = at * (1 + seed % 3), ("a", "b c", None)[at % 3]
    return [tuple(row) for row in found]


def drop_replaced(files: Files) -> None:
    """Delete the files of replaced batches, as a vacuum does."""
    state = read_state(files)
    kept = {path for entry in state.entries for path in entry.paths}
    for path in {path for entry in state.replaced for path in entry.paths} - kept:
        files.delete(path)


def rows(frame: DataFrame) -> list[str]:
    """The rows of a frame, sorted."""
    return sorted(map(repr, frame.toArrow().to_pylist()))


def seen(spark: SparkSession, files: Files) -> dict[str, Any]:
    """What readers see."""
    return {
        "all": rows(read_committed(spark, files.root)),
        "keyed": rows(read_committed(spark, files.root, key="n")),
        "since": rows(read_committed(spark, files.root, since=12)),
        "a batch": [rows(read_committed(spark, files.root, at, at + 1)) for at in (10, 13, 15)],
        "keyed since": rows(read_committed(spark, files.root, since=13, until=15, key=["n", "day"])),
        "digest": choose(files).read.snapshot,
    }


def test_all_values_are_the_same_for_all_readers_after_a_compaction_and_without_the_old_files(
    spark: SparkSession, files: OpenStore
) -> None:
    old = SinkTask(files, WIDE, partition_by=["day"])
    new = SinkTask(files, MORE, partition_by=["day"], component="other")
    for number in range(6):
        task = new if number % 2 else old
        task.write(spark, made(MORE if number % 2 else WIDE, 40, number), committed=10.0 + number)
    before = seen(spark, files)
    plain = rows(spark.read.parquet(f"{files.root}/data"))
    done = compact(files, Wanted(data="data"), merge_parquet, "a test")
    assert (done.files_before, done.files_after, done.rows) == (18, 3, 240)
    assert seen(spark, files) == before
    drop_replaced(files)
    assert seen(spark, files) == before
    new_plain = spark.read.option("mergeSchema", "true").parquet(f"{files.root}/data")
    assert len(plain) == new_plain.count() == 240
    # Again, with small files between: ranges of a compacted file are mixed with those.
    for at in (9.5, 12.5, 20.0):
        old.write(spark, made(WIDE, 10, int(at * 2)), committed=at)
    before = seen(spark, files)
    assert compact(files, Wanted(data="data"), merge_parquet, "a test").made == 1
    assert seen(spark, files) == before
    drop_replaced(files)
    assert seen(spark, files) == before


@pytest.mark.parametrize("file_format", ["csv", "json", "orc"])
def test_other_formats_are_merged_by_spark_and_read_in_ranges(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    schema = "n bigint, day string, text string"
    old = SinkTask(files, schema, file_format=file_format, partition_by=["day"])
    new = SinkTask(files, f"{schema}, more int", file_format=file_format, partition_by=["day"], index=1)
    for number in range(4):
        given = [(at, "ab"[at % 2], f"{number} {at}\n,") for at in range(6)]
        if number % 2:
            new.write(spark, [(*row, number) for row in given], committed=10.0 + number)
        else:
            old.write(spark, given, committed=10.0 + number)
    reads: list[dict[str, Any]] = [
        {},
        {"key": "n"},
        {"since": 11},
        {"since": 11, "until": 13, "key": ["n", "day"]},
    ]
    before = [rows(read_committed(spark, files.root, **read)) for read in reads]
    done = compact(files, Wanted(data="data"), SparkMerges(spark, files, old.table), "a test")
    assert (done.files_before, done.files_after, done.rows) == (8, 2, 24)
    drop_replaced(files)
    assert [rows(read_committed(spark, files.root, **read)) for read in reads] == before
