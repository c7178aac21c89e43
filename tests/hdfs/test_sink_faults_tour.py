"""A pipeline of worker processes from HDFS to HDFS, through all kinds of faults: everything is in the table, completely.

With --soak: test_sink_faults.py shows each fault by itself, and test_pipeline_hdfs.py the pipeline.
"""

from __future__ import annotations

import io
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall.stores.files import FilesError, FilesUnavailable, OpenStore
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import read_state, require_readable
from squall_io.spark.stores import open_files
from tests.hdfs.line_pipeline import topology
from tests.hdfs_servers import HdfsServer
from tests.spark_classes import small_java
from tests.zookeeper_servers import eventually

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(600)]

FILES, LINES = 18, 300
#: Longest pause of the flow: a killed NameNode takes many seconds on a busy machine, and so does Spark.
FLOW_SECS = 150.0


class Tour:
    """The running pipeline, and its faults."""

    def __init__(self, cluster: LocalCluster, hdfs: HdfsServer, files: OpenStore) -> None:
        self.cluster = cluster
        self.hdfs = hdfs
        self.files = files

    def rows(self) -> int:
        """Number of committed rows; 0 while HDFS does not answer."""
        try:
            return sum(entry.rows for entry in read_state(self.files).entries)
        except FilesError:
            return 0

    def flows(self, more: int = 200) -> None:
        """Wait until this many more rows are committed."""
        before = self.rows()
        assert before + more < FILES * LINES, "everything was over too early: give it more lines"
        try:
            # A look reads the whole manifest, from daemons that have the pipeline to serve.
            eventually(lambda: self.rows() >= before + more, FLOW_SECS, every=0.5)
        except AssertionError:
            pytest.fail(f"{self.rows()} rows are committed, {before} were; the workers:\n{self.logs()}")

    def logs(self) -> str:
        """The last lines of the workers' logs."""
        workers = self.cluster.workers("pipeline")
        return "\n".join((worker.directory / "worker.log").read_text()[-4000:] for worker in workers)

    def pid(self) -> int:
        (worker,) = self.cluster.workers("pipeline")
        return worker.pid

    def committed(self) -> Counter[int]:
        """How often each number is in the table, which has some."""
        return eventually(self._committed)

    def _committed(self) -> Counter[int]:
        try:
            return Counter(numbers_in(self.files))
        except (
            FilesUnavailable
        ):  # after a restart of the NameNode a DataNode may find its connection closed, once
            return Counter()

    def kill_all_java_of_the_worker(self) -> None:
        """The sinks' driver, and the spouts' client of the file system."""
        killed = [child for child in children(self.pid()) if name_of(child) == "java"]
        assert len(killed) == 2
        for child in killed:
            os.kill(child, signal.SIGKILL)

    def kill_the_worker(self) -> None:
        os.kill(self.pid(), signal.SIGKILL)

    def kill_a_datanode(self) -> None:
        self.hdfs.datanodes[0].kill()

    def freeze_the_namenode_for_30_seconds(self) -> None:
        self.hdfs.namenode.freeze()
        time.sleep(30)
        self.hdfs.namenode.thaw()

    def kill_the_namenode(self) -> None:
        self.hdfs.namenode.kill()
        time.sleep(2)
        self.hdfs.namenode.start()

    def rebalance(self) -> None:
        self.cluster.rebalance("pipeline", parallelism={"sink": 1})


def children(pid: int) -> list[int]:
    """The children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has just ended has no children
            found += map(int, (task / "children").read_text().split())
    return found


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def numbers_in(files: OpenStore) -> list[int]:
    """The committed rows, read without Spark; each batch has the number in its entry."""
    import pyarrow.parquet as pq

    found: list[int] = []
    for entry in require_readable(files, read_state(files)).entries:
        batch: list[int] = []
        for file in entry.files:
            batch += pq.read_table(io.BytesIO(files.read(file.path)), columns=["number"])[
                "number"
            ].to_pylist()
        assert len(batch) == entry.rows, f"batch {entry.batch} is incomplete"
        found += batch
    return found


def test_lines_get_into_the_table_through_every_fault_and_once_by_key(
    troubled_hdfs: HdfsServer, hdfs_path: str
) -> None:
    conf = {"squall.webhdfs.address": troubled_hdfs.webhdfs}
    with open_files(f"{hdfs_path}-lines", conf=conf) as lines, open_files(hdfs_path, conf=conf) as files:
        for number in range(FILES):
            text = "".join(f"{number * LINES + line} {'x' * 20}\n" for line in range(LINES))
            assert lines.put_if_absent(f"{number}.txt", text.encode())
        with LocalCluster(processes=True, slots=1) as cluster:
            cluster.submit(topology(f"{hdfs_path}-lines", hdfs_path, small_java()))
            tour = Tour(cluster, troubled_hdfs, files)
            tour.flows()
            tour.kill_all_java_of_the_worker()
            tour.kill_a_datanode()
            tour.flows()
            tour.freeze_the_namenode_for_30_seconds()
            tour.flows()
            tour.kill_the_namenode()
            tour.flows()
            assert set(tour.committed().values()) == {1}, "none of these faults makes a line come twice"
            tour.kill_the_worker()
            tour.rebalance()
            cluster.wait("pipeline", timeout=300)
            failed = cluster.status("pipeline").components["lines"].failed
        found = tour.committed()
        assert sorted(found) == list(range(FILES * LINES)), "lines are missing in the table"
        assert not failed, "no tree failed for good"
        # These may come again: the trees that were open when the worker was killed, and when it was rebalanced.
        assert found.total() - FILES * LINES <= 2 * 2 * (400 + 150)
        assert files.walk(STAGING) == []
