"""`squall table --key` has Spark count the rows that are replays, and reports failures there with advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall
from squall_io.spark.reading.committed import KeyCounts, read_committed
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def counted(path: Path, *more: str) -> Result:
    """In the session of the tests, which the command takes for the user's own."""
    return CliRunner().invoke(squall, ["table", str(path), *more], prog_name="squall")


def test_rows_are_counted_by_key(spark: SparkSession, tmp_path: Path) -> None:
    with open_files(str(tmp_path)) as files:
        SinkTask(files, "count bigint, null string").write(
            spark, [(1, "a"), (2, "a"), (2, "a"), (None, "a"), (2, None)]
        )
        kept = read_committed(spark, files.root, key=["count", "null"]).count()
    result = counted(tmp_path, "--key", "COUNT,null")
    assert result.exit_code == 0 and result.stderr.startswith("starting Spark\n")
    assert result.stdout.endswith(
        "\n\nby count, null: 2 keys, 1 duplicate, 2 rows with a null in the key in 5 rows\n"
    )
    answer = json.loads(counted(tmp_path, "--key", "count,null", "--json").stdout)["by_key"]
    assert answer == {
        **vars(KeyCounts(("count", "null"), 5, 2, 2)),
        "key": ["count", "null"],
        "duplicates": 1,
    }
    assert kept == answer["rows"] - answer["duplicates"]


def test_a_failure_in_spark_is_reported_in_one_sentence_and_damaged_rows_are_not_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_files(str(tmp_path)) as files:
        [file] = SinkTask(files, "word string").write(spark, [("a",)]).files
    (tmp_path / file.path).write_bytes(b"PAR1 and nothing of it PAR1")
    result = counted(tmp_path, "--key", "word")
    assert result.exit_code == 1
    said = result.stderr.splitlines()[-1]
    assert said.startswith(
        f"squall table: the keys of {tmp_path} could not be counted: Spark: corrupted file"
    )
    assert said.endswith("; --verify names damaged files")
    result = counted(tmp_path, "--key", "word", "--verify")
    assert result.exit_code == 1
    assert (
        "starting Spark" not in result.stderr and f"  - {file.path} has 27 bytes instead of" in result.stderr
    )
