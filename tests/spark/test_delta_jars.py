"""Spark with Delta's own jars reads a table by its Delta log, in an environment of its own with the Spark that they are for.

With `--soak` only: it installs some 450 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from squall.stores.local import LocalFiles
from squall_io.spark.compaction.compacting import compact
from squall_io.spark.compaction.parquet_merges import merge_parquet
from squall_io.spark.delta.following import catch_up, enable, newest_version
from squall_io.spark.manifest.rewriting import Wanted
from tests.spark.batches import SinkTask
from tests.squall_io import compacted_tables

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1800)]

PACKAGES = ("pyspark==4.0.1", "delta-spark==4.0.0")
JARS = "io.delta:delta-spark_2.13:4.0.0"
#: Prints the rows of each version; the last words are the table, the folder for jars, and the versions.
READ = f"""
import json, sys
from pyspark.sql import SparkSession
table, jars, *versions = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.jars.packages", {JARS!r}).config("spark.jars.ivy", jars)
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.getOrCreate()
def rows(version):
    read = spark.read.format("delta").option("versionAsOf", version).load(table)
    return sorted(list(row) for row in read.select("n", "text", "day").collect())
print(json.dumps([rows(version) for version in versions]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Delta's Spark."""
    folder = tmp_path_factory.mktemp("delta-spark")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "-q", *PACKAGES], check=True)
    return folder / "bin" / "python"


def test_each_version_has_the_same_rows_before_and_after_a_compaction(python: Path, tmp_path: Path) -> None:
    files = LocalFiles(f"file://{tmp_path}/table")
    task = SinkTask(files, compacted_tables.DDL, partition_by=["day"])
    enable(files, time.time)
    for number in range(1, 6):
        compacted_tables.put(task, float(number))
    catch_up(files, time.time)
    compact(files, Wanted(data=task.table.data), merge_parquet, "a test")
    assert newest_version(files) == 2
    batches = compacted_tables.rows_by_batch(files).values()
    wanted = sorted(tuple(values) for batch in batches for _, _, values in batch)
    env = {**os.environ, "PYSPARK_PYTHON": str(python)}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(python), "-c", READ, str(tmp_path / "table"), str(tmp_path / "jars"), "1", "2"],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [sorted(map(tuple, rows)) for rows in found] == [wanted, wanted]
