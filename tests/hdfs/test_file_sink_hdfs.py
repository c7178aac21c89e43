"""FileSink on a real HDFS, by WebHDFS and by Java: each row is in one file, though the NameNode is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import complete_topology
from squall.stores.webhdfs import WebHdfsFiles
from squall_io.files import FileSink
from squall_io.files.staging import STAGING
from squall_io.spark import HdfsLines
from squall_io.spark.stores import WEBHDFS
from tests.hdfs_servers import HdfsServer
from tests.local_cluster.words_with_state import Finite, Pass, words_to_rows
from tests.zookeeper_servers import eventually
from topology_api import TopologyBuilder

pytestmark = pytest.mark.slow


def test_each_row_is_in_one_file_though_the_namenode_is_killed_and_a_spout_reads_them(
    troubled_hdfs: HdfsServer, hdfs_path: str, tmp_path: Path
) -> None:
    by_webhdfs = {WEBHDFS: troubled_hdfs.webhdfs}
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.3}
    sink = FileSink(hdfs_path, "jsonl", conf=by_webhdfs)
    with LocalCluster() as cluster, WebHdfsFiles(hdfs_path, troubled_hdfs.webhdfs) as files:
        cluster.submit(words_to_rows(Finite(600, 1_000), Pass(0.005), sink), conf)
        eventually(lambda: any(not each.is_folder for each in files.list("")))
        troubled_hdfs.namenode.restart()
        cluster.wait("words", timeout=120)
        assert files.list(STAGING) == []
    builder = TopologyBuilder("again")
    lines = HdfsLines(hdfs_path, format="jsonl", schema="number long, word string", conf=by_webhdfs)
    builder.set_spout("lines", lines)
    done = complete_topology(builder.build()).emitted("lines")
    assert sorted(number for number, _ in done) == list(range(600))


def test_a_file_is_shown_by_java(hdfs: HdfsServer, hdfs_path: str) -> None:
    sink = FileSink(hdfs_path, "jsonl", conf={"spark.hadoop.dfs.replication": "2"})
    sink.lineage = "0123456789abcdef"
    sink.prepare(context_of("out", 0, 1, Surroundings()))
    try:
        handle = sink.stage(3, [b'{"a": 1}'])
        with WebHdfsFiles(hdfs_path, hdfs.webhdfs) as files:
            assert [each.name for each in files.list(STAGING)] == [handle["staged"]]
            for _ in range(2):
                sink.commit(3, handle)
            assert json.loads(files.read(handle["name"])) == {"a": 1}
            assert files.list(STAGING) == []
    finally:
        sink.cleanup()
