"""`squall reprocess` from a table on HDFS to another one, published once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from squall_io.spark.results.versions import kept_versions
from squall_io.spark.stores import open_files
from tests.hdfs_servers import HdfsServer
from tests.spark.batches import SinkTask
from tests.spark_session import SMALL_JAVA
from tests.squall_cli.run_process import environment

pytestmark = pytest.mark.slow

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
    "spark.hadoop.dfs.replication": "2",
    "spark.sql.shuffle.partitions": "1",
}


def reprocess(source: str, target: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: its JVMs end with it."""
    query = "select word, sum(count) as total from rows group by word"
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    tables = ["--input", source, "--output", target]
    return subprocess.run(
        [sys.executable, "-m", "squall_cli", "reprocess", "--sql", query, *tables, "--master", "local[1]", *conf, "--json"],
        env=environment(SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip


def test_a_result_on_hdfs_is_published_once(hdfs: HdfsServer, hdfs_path: str) -> None:
    source, target = f"{hdfs_path}-in", f"{hdfs_path}-out"
    with open_files(source) as files:
        task = SinkTask(files, "word string, count bigint", file_format="json")
        task.put({"part-0.json": b'{"word":"a","count":1}\n{"word":"b","count":2}\n'}, rows=2)
        task.put({"part-0.json": b'{"word":"a","count":3}\n'}, rows=1)

    done = reprocess(source, target)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["published"], outcome["version"]) == (True, 1)
    assert (outcome["rows_in"], outcome["rows_out"]) == (3, 2)

    again = reprocess(source, target)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["published"] is False
    assert again.stderr == "", "no Spark was started"

    with open_files(target) as files:
        [version] = kept_versions(files)
        assert sum(file.size for file in version.files) == outcome["bytes"] > 0
        assert [files.digest(file.path) for file in version.files] == [file.digest for file in version.files]
        assert [status.name for status in files.list("_squall/results")] == [version.attempt]
