"""Rows of earlier versions and moments, before and after a compaction, a drop of old days and a vacuum, by real readers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.stores.files import OpenStore
from squall_io.spark import hold_table, read_committed
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.delta.history import NoVersion
from squall_io.spark.manifest.leases import held_leases
from squall_io.spark.manifest.tables import read_table
from squall_io.spark.retention.counting import counter
from squall_io.spark.retention.dropping import drop
from squall_io.spark.retention.vacuum import vacuum
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400.0
START = 1_700_000_000.0


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "table")) as opened:
        yield opened


def rows(spark: SparkSession, files: OpenStore, **more: Any) -> list[int]:
    """The column n of what a reader sees."""
    found = read_committed(spark, files.root, **more).select("n").collect()
    return sorted(row["n"] for row in found)


def dropped(spark: SparkSession, files: OpenStore) -> int | None:
    count = counter(files, read_table(files), lambda: spark)
    return drop(files, 30 * DAY, "a test", time.time, count).rows


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_rows_of_old_days_are_dropped_counted_and_read_as_of_before(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    old, young = date(2020, 1, 1), date(2999, 1, 1)
    task = SinkTask(files, "n bigint, day date", file_format=file_format, partition_by=["day"])
    task.write(spark, [(1, old), (2, young), (3, old)], committed=START)
    task.write(spark, [(4, young), (1, young)], committed=START + 1)
    task.write(spark, [(5, old)], committed=START + 2)
    assert dropped(spark, files) == 3
    assert rows(spark, files) == [1, 2, 4]
    assert rows(spark, files, key="n") == [1, 2, 4]
    assert rows(spark, files, since=START + 1) == [1, 4]
    assert rows(spark, files, timestamp=START + 1) == [1, 1, 2, 3, 4]
    assert rows(spark, files, timestamp=START + 2, key="n") == [1, 2, 3, 4, 5]
    assert vacuum(files, 0.0, "a test", lambda: time.time() + 60).files == 2
    assert rows(spark, files) == [1, 2, 4]
    with pytest.raises(NoVersion, match="rows of it were dropped, and a vacuum has deleted their files"):
        rows(spark, files, timestamp=START + 1)


def test_a_version_is_read_and_a_table_is_held(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, "n bigint")
    enable(files, time.time)
    for number in (1, 2, 3):
        task.write(spark, [(number,)], committed=START + number)
        catch_up(files, time.time)
    assert [rows(spark, files, version=version) for version in (1, 2, 3)] == [[1], [1, 2], [1, 2, 3]]
    with hold_table(spark, files.root):
        [held] = held_leases(files, 0.0)
        assert held.lease.holder.startswith("hold_table on ")
    assert held_leases(files, 0.0) == ()
