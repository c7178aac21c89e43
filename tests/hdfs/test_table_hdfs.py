"""`squall table` on HDFS: in a JVM of its own only for files, without a Spark session; also for sweeps. `squall compact` and
`squall vacuum` there, by WebHDFS."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from squall_cli.main import squall
from squall_io.spark import committed_files
from squall_io.spark.delta.comparing import LogState, compare_log
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.manifest.layout import TABLE
from squall_io.spark.manifest.tables import FolderTaken
from squall_io.spark.stores import WEBHDFS, open_files
from tests.hdfs_servers import HdfsServer
from tests.spark.batches import SinkTask
from tests.squall_cli.run_process import environment
from tests.squall_io import compacted_tables

pytestmark = pytest.mark.slow


def test_a_table_on_hdfs_is_reported_swept_and_verified(hdfs: HdfsServer, hdfs_path: str) -> None:
    with open_files(hdfs_path, conf={WEBHDFS: hdfs.webhdfs}) as files:
        files.put_if_absent("day=1/theirs.txt", b"of others")
        with pytest.raises(FolderTaken, match=r"already has files \(day=1/theirs\.txt\)"):
            SinkTask(files, "word string, day string", partition_by=["day"])
        assert not files.exists(TABLE)
        files.delete("day=1")
        ended = SinkTask(files, "word string, day string", partition_by=["day"], topology="ended").next_name()
        files.put_if_absent(f"{ended.attempt(1)}/day=1/a.txt", b"left")
        files.put_if_absent(f"data/day=1/{ended.data_file(1, 0, '.txt')}", b"moved")
        task = SinkTask(files, "word string, day string", partition_by=["day"])
        task.put({"day=1/a.txt": b"12345", "day=2/a.txt": b"1"}, rows=7)
        gone, _ = task.put({"day=2/a.txt": b"123", "day=2/b.txt": b"1"}, rows=3).files
        listed = committed_files(hdfs_path, {WEBHDFS: hdfs.webhdfs})
        assert len(listed) == 4 and f"{hdfs_path}/{gone.path}" in listed
        assert {path.partition("/data/day=")[0] for path in listed} == {hdfs_path}
        files.delete(gone.path)
        files.put_if_absent("squall-stray.parquet", b"stray")
    done = subprocess.run(  # in a process of its own, so that its JVM must end with it
        [sys.executable, "-m", "squall_cli", "table", hdfs_path, "--verify", "--sweep", "--older-than", "0"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.startswith(f"{hdfs_path}: batches of a stream, parquet, partitioned by day\n")
    assert "10 rows in 2 batches, 4 files, 10 bytes" in done.stdout
    assert re.search(r"(?m)^day=2 +3 +5 bytes$", done.stdout)
    assert re.search(r"(?m)^ended-1 +1 +2 +9 bytes +2", done.stdout)
    assert "deleted: 2 files of 1 batch, 9 bytes\n" in done.stdout
    assert "verified 4 files, 10 bytes: 3 as committed\n" in done.stdout
    assert done.stdout.endswith("  - squall-stray.parquet\n")
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [
            "squall table: 1 file not as committed:",
            f"  - {gone.path} is missing (batch words-1.store.0.1.2)",
        ],
    )


def test_a_table_on_hdfs_is_compacted_and_vacuumed_and_every_batch_reads_as_before(
    hdfs: HdfsServer, hdfs_path: str
) -> None:
    conf = {WEBHDFS: hdfs.webhdfs}
    with open_files(hdfs_path, conf=conf) as files:
        task = SinkTask(files, compacted_tables.DDL, partition_by=["day"])
        enable(files, time.time)
        for number in range(1, 6):
            compacted_tables.put(task, float(number))
        catch_up(files, time.time)
        before = compacted_tables.rows_by_batch(files, conf=conf)
        webhdfs = ["--conf", f"{WEBHDFS}={hdfs.webhdfs}"]
        for command in (["compact"], ["vacuum", "--retention", "0", "--allow-short"]):
            done = CliRunner().invoke(squall, [*command, hdfs_path, *webhdfs], prog_name="squall")
            assert done.exit_code == 0, done.output
        assert "10 files" in done.output and len(committed_files(hdfs_path, conf)) == 2
        assert sum(status.name.endswith(".parquet") for status in files.walk("data")) == 2
        assert compacted_tables.rows_by_batch(files, conf=conf) == before
        assert compare_log(files) == LogState(2)
