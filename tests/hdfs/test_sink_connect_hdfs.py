"""SparkSink, read_committed and `squall reprocess` with a Spark Connect server, which is killed meanwhile.

On HDFS too, without Java in the worker: the server writes, and batches are committed by WebHDFS, though the NameNode is killed.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.hdfs_servers import HdfsServer
from tests.spark.connect_servers import run_script
from tests.zookeeper_servers import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Longest time for all of the script.
SECS = 500.0


@pytest.fixture(scope="module")
def found(hdfs: HdfsServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings of connect_hdfs_script, with one server for local files and for HDFS."""
    folder = tmp_path_factory.mktemp("connect")
    over = threading.Event()

    def trouble() -> None:
        eventually(lambda: (folder / "now").exists() or over.is_set(), SECS, every=0.1)
        if not over.is_set():
            hdfs.namenode.kill()
            (folder / "killed").touch()
            hdfs.start()

    helper = threading.Thread(target=trouble, daemon=True)
    helper.start()
    try:
        table = f"{hdfs.url}/connect/table"
        run_script("tests.hdfs.connect_hdfs_script", folder, table, hdfs.webhdfs, seconds=SECS)
    finally:
        over.set()
        helper.join(SECS)
    answer: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return answer


def test_rows_are_stored_once_by_a_spark_connect_server_that_is_killed_and_restarted(
    found: dict[str, Any],
) -> None:
    local = found["local"]
    assert local["differences"] == []  # whatever the types
    assert local["many"] == [20_000, 20_000, 1]  # acked, stored, files
    assert local["settled"] == [60, 0]
    assert local["numbers"] == list(range(60)) and local["counted"] == 60
    assert local["renewed"]
    assert local["reprocessed"]["published"] and local["reprocessed"]["rows_out"] == 3

    refused = local["refused"]
    assert refused["address"].startswith("NoSession: sc:// is not the address of a Spark Connect server")
    assert 'Cannot modify the value of the Spark config: "spark.driver.memory"' in refused["setting"]
    assert refused["server"].startswith(
        "NoConnectServer: the Spark Connect server sc://127.0.0.1:1/;... does not"
    )
    assert "Connection refused" in refused["server"]
    assert "with master sc://127.0.0.1:" in local["mismatch"]


def test_batches_are_stored_once_by_spark_connect_and_webhdfs_though_the_namenode_is_killed(
    found: dict[str, Any],
) -> None:
    on_hdfs = found["hdfs"]
    assert on_hdfs.pop("writes") >= 4  # three batches, and one more for the failed one
    assert on_hdfs == {
        "acked": True,
        "stored": True,
        "read by the source": True,
        "streamed": True,
        "problems": [],
        "batches": 3,
    }
