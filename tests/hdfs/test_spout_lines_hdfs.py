"""HdfsLines on a real HDFS: a killed JVM and a frozen NameNode cost time, and no line. (test_sink_faults_tour.py has a killed
NameNode and a killed DataNode.)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall.stores.java import steady as steady_stores
from squall_io.spark import HdfsLines
from squall_io.spark.stores import open_files
from tests.hdfs_servers import HdfsServer
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Topology, TopologyBuilder, Tuple

pytestmark = pytest.mark.slow

FILES, LINES = 20, 40


class Keep(Bolt):
    """Writes its lines to a file, not too fast: 800 of them take some seconds."""

    def __init__(self, path: Path, secs: float = 0.004) -> None:
        self.path = path
        self.secs = secs

    def execute(self, tup: Tuple) -> None:
        time.sleep(self.secs)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(tup["line"] + "\n")


def topology(path: str, keep: Path) -> Topology:
    builder = TopologyBuilder("reader", conf={"topology.max.spout.pending": 100})
    builder.set_spout("lines", HdfsLines(path, split_bytes=1024), parallelism=2)
    builder.set_bolt("keep", Keep(keep)).shuffle_grouping("lines")
    return builder.build()


@pytest.fixture
def book(hdfs: HdfsServer, hdfs_path: str) -> str:
    """A folder of small files, for many requests to the NameNode."""
    with open_files(hdfs_path, conf={"squall.webhdfs.address": hdfs.webhdfs}) as files:
        for number in range(FILES):
            text = "".join(f"{number}/{line} {'x' * 20}\n" for line in range(LINES))
            assert files.put_if_absent(f"{number:02}.txt", text.encode())
    return hdfs_path


def kept(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_for(path: Path, lines: int) -> None:
    eventually(lambda: len(kept(path)) >= lines, 180, every=0.1)


def freeze_and_thaw(hdfs: HdfsServer) -> None:
    hdfs.namenode.freeze()
    time.sleep(3)
    hdfs.namenode.thaw()


def kill_jvm(hdfs: HdfsServer) -> None:
    (shared,) = steady_stores._shared.values()
    os.kill(shared.jvm.gateway.proc.pid, signal.SIGKILL)


def test_each_line_is_read_once_though_the_jvm_is_killed_and_the_namenode_frozen(
    troubled_hdfs: HdfsServer, book: str, tmp_path: Path
) -> None:
    faults: list[Callable[[HdfsServer], None]] = [kill_jvm, freeze_and_thaw]
    path = tmp_path / "kept"
    with LocalCluster() as cluster:
        cluster.submit(topology(book, path))
        for number, fault in enumerate(faults):
            wait_for(path, 200 * (number + 1))
            fault(troubled_hdfs)
        cluster.wait("reader", timeout=180)
        status = cluster.status("reader")
    expected = sorted(f"{number}/{line} {'x' * 20}" for number in range(FILES) for line in range(LINES))
    assert sorted(kept(path)) == expected
    assert not status.components["lines"].failed
    assert not steady_stores._shared, "the last store that was closed has ended the JVM"
