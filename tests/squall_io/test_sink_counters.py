"""The counters of a SparkSink: they say what is in its table, and how long commits take. Pyarrow writes the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.spark import SparkSink
from squall_io.spark.manifest.state import read_state
from squall_io.spark.stores import open_files
from tests.local_cluster.words_with_state import Count, Words, words_to_rows
from tests.squall_io.sink_without_spark import without_spark

TOTAL = 120


@pytest.mark.parametrize("with_epochs", [False, True])
def test_the_counters_say_what_is_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_epochs: bool
) -> None:
    without_spark(monkeypatch)
    table = tmp_path / "table"
    sink = SparkSink(str(table), "word string, times bigint", batch_size=50, batch_interval=0.5)
    conf = {"topology.state.path": f"file://{tmp_path}/state" if with_epochs else None}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(TOTAL, 20), Count(), sink), conf)
        cluster.advance(60)
        [metrics] = [
            each.metrics for each in cluster.status("words").components.values() if "batches" in each.metrics
        ]
    with open_files(str(table)) as files:
        entries = read_state(files).entries
    assert metrics["rows"] == sum(entry.rows for entry in entries) == TOTAL
    assert metrics["batches"] == len(entries) > 1
    assert metrics["bytes"] == sum(entry.size for entry in entries) > 0
    took = metrics["seconds a commit"]
    assert took["count"] >= len(entries) and 0 < took["p50"] <= took["p99"]
    assert metrics["seconds of the last commit"] > 0
    assert 0 <= metrics["seconds since the last commit"] < 60
