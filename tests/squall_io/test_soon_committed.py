"""From a line to a committed row in a second and a half, with spouts that look often and a sink that commits often."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall_io.files import FileSpout
from squall_io.spark import CommittedRows, HdfsLines, SparkSink
from squall_io.spark.manifest.state import read_state
from squall_io.spark.stores import open_files
from tests.squall_io.sink_without_spark import without_spark
from topology_api import Spout, Topology, TopologyBuilder

SCHEMA = "line string"
WANTED = 1.5


def topology(name: str, spout: Spout, table: Path) -> Topology:
    builder = TopologyBuilder(name)
    builder.set_spout("rows", spout)
    builder.set_bolt("store", SparkSink(str(table), SCHEMA, batch_interval=0.5)).shuffle_grouping("rows")
    return builder.build()


def committed(table: Path) -> int:
    with open_files(str(table)) as files:
        return sum(entry.rows for entry in read_state(files).entries)


@pytest.mark.parametrize("spout", [FileSpout, HdfsLines])
def test_a_line_is_a_committed_row_soon(
    spout: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that appears complete; and then the row is soon in the table of a topology that reads the first one's."""
    without_spark(monkeypatch)
    source, table, further = tmp_path / "in", tmp_path / "table", tmp_path / "further"
    source.mkdir()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology("first", spout(str(source), follow=True, poll_interval=0.2), table))
        cluster.advance(5)
        for number in range(3):
            (source / "_new").write_text(f"line {number}\n")
            os.rename(source / "_new", source / f"{number}.txt")
            cluster.advance(WANTED)
            assert committed(table) == number + 1
        rows = CommittedRows(str(table), "line", follow=True, poll_interval=0.2)
        cluster.submit(topology("second", rows, further))
        cluster.advance(5)
        assert committed(further) == 3
        (source / "3.txt").write_text("line 3\n")
        cluster.advance(2 * WANTED)
        assert committed(further) == 4
