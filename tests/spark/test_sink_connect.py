"""SparkSink, read_committed and `squall reprocess` with a Spark Connect server, which is killed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.connect_servers import run_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_rows_are_stored_once_by_a_spark_connect_server_that_is_killed_and_restarted(
    tmp_path: Path,
) -> None:
    run_script("tests.spark.connect_script", tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["differences"] == []  # whatever the types and the format
    assert found["many"] == [60_000, 60_000, 1]  # acked, stored, files
    assert found["settled"] == [60, 0]
    assert found["numbers"] == list(range(60)) and found["counted"] == 60
    assert found["renewed"]
    assert found["reprocessed"]["published"] and found["reprocessed"]["rows_out"] == 3

    refused = found["refused"]
    assert refused["address"].startswith("NoSession: sc:// is not the address of a Spark Connect server")
    assert 'Cannot modify the value of the Spark config: "spark.driver.memory"' in refused["setting"]
    assert refused["server"].startswith(
        "NoConnectServer: the Spark Connect server sc://127.0.0.1:1/;... does not"
    )
    assert "Connection refused" in refused["server"]
    assert "with master sc://127.0.0.1:" in found["mismatch"]
