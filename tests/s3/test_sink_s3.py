"""SparkSink stores its rows on S3: with PyArrow in Spark's place, and with a real Spark by Hadoop's s3a."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.stores.files import Files
from squall.stores.s3 import S3Files
from squall_io.spark import SparkSink
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import read_state
from squall_io.spark.sink import sink_table
from squall_io.spark.stores import S3_ENDPOINT
from tests.local_cluster.words_with_state import Count, Words, expected_rows, words_to_rows
from tests.s3_servers import S3Server, s3a_jars
from tests.squall_io.sink_without_spark import PyarrowWriter, without_spark

ROOT = Path(__file__).resolve().parents[2]
TOTAL = 40


class ObjectWriter(PyarrowWriter):
    """Writes a file to a folder on S3."""

    endpoint = ""

    def write(self, rows: Any, folder: str) -> None:
        import pyarrow.parquet

        out = io.BytesIO()
        pyarrow.parquet.write_table(rows.cast(self.schema), out)
        with S3Files(folder, self.endpoint) as files:
            files.replace(f"part-{uuid.uuid4().hex}.parquet", out.getvalue())


def rows_in(files: Files) -> list[Any]:
    import pyarrow.parquet

    paths = [file.path for entry in read_state(files).entries for file in entry.files]
    tables = [pyarrow.parquet.read_table(io.BytesIO(files.read(path))) for path in paths]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_a_sink_has_each_row_once_while_answers_of_the_server_are_lost(
    s3: S3Server, s3_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr(ObjectWriter, "endpoint", s3.url)
    monkeypatch.setattr(sink_table, "TableWriter", ObjectWriter)
    sink = SparkSink(s3_path, "word string, times bigint", conf={S3_ENDPOINT: s3.url})
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.5}
    s3.fails(
        ("PUT", "/data/", "after"), ("PUT", "/data/", "before"), ("PUT", "/_squall/commits/", "after"),
        ("DELETE", "/_squall/staging/", "before"), ("PUT", "/_squall/staging/", "after"),
    )  # fmt: skip
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(TOTAL, 20), Count(), sink), conf)
        cluster.advance(20)
    assert s3.faults() == []
    with S3Files(s3_path, s3.url) as files:
        assert sorted(rows_in(files)) == expected_rows(list(range(TOTAL)))
        assert [status for status in files.walk(STAGING) if not status.is_folder] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_writes_and_reads_a_table_by_s3a(s3: S3Server, s3_path: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    path, out = s3_path.replace("s3:", "s3a:"), tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.s3.spark_s3_script", path, s3.url, s3a_jars(), str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert found["settled"] == [60, 0]
    assert found["rows"] == [[number, number % 3] for number in range(60)]
    assert all(each.startswith(f"{path}/data/day=") for each in found["files"])
    with S3Files(path, s3.url) as files:
        assert [status for status in files.walk(STAGING) if not status.is_folder] == []
