"""SparkSink on HDFS without Java in the worker: a Spark Connect server writes, and batches are committed by WebHDFS."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.hdfs_servers import HdfsServer
from tests.spark.connect_servers import ConnectServer, run_script
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow


def test_batches_are_stored_once_by_spark_connect_and_webhdfs_though_the_namenode_is_killed(
    troubled_hdfs: HdfsServer, hdfs_path: str, tmp_path: Path
) -> None:
    def trouble() -> None:
        eventually((tmp_path / "now").exists, 200)
        troubled_hdfs.namenode.kill()
        (tmp_path / "killed").touch()
        troubled_hdfs.start()

    server = ConnectServer(tmp_path).start()
    helper = threading.Thread(target=trouble, daemon=True)
    try:
        helper.start()
        run_script("tests.hdfs.connect_hdfs_script", server.url, hdfs_path, troubled_hdfs.webhdfs, tmp_path)
    finally:
        server.kill()
        helper.join(300)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("writes") >= 4  # three batches, and one more for the failed one
    assert found == {"acked": True, "stored": True, "problems": [], "batches": 3}
