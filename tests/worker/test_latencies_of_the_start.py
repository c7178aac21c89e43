"""Complete latencies leave out the start: the time until all tasks of a topology are open."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.reports.histogram import LatencyHistogram
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Context, Spout, Topology, TopologyBuilder, Tuple
from worker.tasks.spout import add_latencies

#: How long the bolt prepares while the spout's tuples wait.
START_SECS = 3.0


def emission(at: float) -> Any:
    return (0, 0, 0, (), "default", at, None)


def test_a_tree_of_the_start_counts_from_its_end_and_a_later_one_from_its_emission() -> None:
    latency = LatencyHistogram()
    add_latencies(latency, [emission(1.0), emission(2.0), emission(2.0), emission(6.0)], 8.0, 5.0)
    assert latency.count == 4
    assert latency.percentile(100) == pytest.approx(3.0, rel=0.1)
    assert latency.percentile(1) == pytest.approx(2.0, rel=0.1)


class OneAtOnce(Spout):
    """Emits a tuple when it opens, and leaves a note."""

    outputs = ("number",)

    def __init__(self, note: Path) -> None:
        self.note = note

    def open(self, context: Context) -> None:
        self.emit((1,), message_id=1)
        self.note.touch()

    def next_tuple(self) -> None:
        self.finish()


class Slow(Bolt):
    """Prepares for some seconds after the spout has emitted."""

    threaded = True

    def __init__(self, note: Path) -> None:
        self.note = note

    def prepare(self, context: Context) -> None:
        eventually(self.note.exists, 60)
        time.sleep(START_SECS)  # what is measured

    def execute(self, tup: Tuple) -> None:
        pass


def slow_start(note: Path) -> Topology:
    builder = TopologyBuilder("slow-start", conf={"topology.workers": 2})
    builder.set_spout("numbers", OneAtOnce(note))
    builder.set_bolt("slow", Slow(note)).shuffle_grouping("numbers")
    return builder.build()


@pytest.mark.parametrize("processes", [False, True])
def test_a_tuple_that_waits_for_a_bolt_to_prepare_is_not_slow(tmp_path: Path, processes: bool) -> None:
    with LocalCluster(processes=processes) as cluster:
        cluster.submit(slow_start(tmp_path / "note"))
        cluster.wait("slow-start", timeout=120)
        status = cluster.last_status("slow-start")
    numbers = status.components["numbers"]
    assert numbers.acked == 1
    assert numbers.p99 is not None and numbers.p99 < START_SECS
