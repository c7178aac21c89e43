"""Spark's own reader meets only rows below a table's folder of data files: see `tests/squall_io/test_plain_readers.py`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from squall_io.spark.manifest import commit as commit_steps
from tests.squall_io.test_delta_readers import ROWS, parquet
from tests.squall_io.test_plain_readers import DAYS, commit_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: As in test_plain_readers: what Spark does about a file of rows, and about one of JSON, beside a file of rows.
MET = {
    "_x.parquet": "--",
    ".x.parquet": "--",
    "_folder/x.parquet": "--",
    ".folder/x.parquet": "--",
    "folder/x.parquet": "--",
    "x": "rE",
    "x.tmp": "rE",
    "x.parquet.tmp": "rE",
    "x.json": "rE",
    "_folder/x.json": "--",
    "_delta_log/x.json": "--",
}


@pytest.mark.slow
def test_which_names_spark_skips(spark: SparkSession, tmp_path: Path) -> None:
    found = {}
    for name in MET:
        found[name] = "".join(
            _met(spark, tmp_path, name, each) for each in (parquet(2), b'{"kind": "table"}')
        )
    assert found == MET


def _met(spark: SparkSession, folder: Path, name: str, content: bytes) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / name).parent.mkdir(parents=True)
    (folder / "beside.parquet").write_bytes(parquet(1))
    (folder / name).write_bytes(content)
    try:
        return {ROWS: "-", 2 * ROWS: "r"}[spark.read.parquet(folder.as_uri()).count()]
    except (PySparkException, Py4JJavaError):
        return "E"


def test_at_each_step_of_a_commit_spark_meets_rows_and_nothing_else(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        commit_steps, "map_concurrently", lambda call, things: [call(each) for each in things]
    )
    parts: set[int] = set()

    def look(committed: set[int], moving: int | None) -> None:
        if not (tmp_path / "data").exists():
            return
        rows = spark.read.parquet((tmp_path / "data").as_uri()).select("number", "day").collect()
        found = [row["number"] for row in rows]
        rest = [number for number in found if number not in committed]
        assert set(rest) <= {moving}
        assert all(found.count(number) == len(DAYS) * ROWS for number in committed)
        # Spark guesses a partition column's type from the folders: it is a date as long as all look like dates.
        assert {row["day"] and str(row["day"]) for row in rows} <= {"2026-01-01", "a:b", None}
        parts.add(len(rest))

    commit_batches(tmp_path, look)
    assert parts == {0, ROWS, 2 * ROWS, 3 * ROWS}
