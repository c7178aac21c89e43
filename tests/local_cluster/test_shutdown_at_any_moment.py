"""A cluster is shut down in the middle of an operation: nothing is started afterwards, and nothing is left behind.

It uses real time: the thread of the cluster must not go on after its last command.
"""

from __future__ import annotations

import threading

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL
from topology_api import Bolt, Context, Fields, Spout, SquallError, Topology, TopologyBuilder, Tuple


class One(Spout):
    """Emits one tuple and then nothing; never finishes."""

    outputs = Fields("number")

    def open(self, context: Context) -> None:
        self.left = 1
        JOURNAL.note("opened")

    def next_tuple(self) -> float | None:
        if not self.left:
            return 60.0
        self.left -= 1
        self.emit((1,), message_id=1)
        return None

    def close(self) -> None:
        JOURNAL.note("closed")


class Keep(Bolt):
    """Keeps its tuple for ever, so that a drain waits; in a thread of its own."""

    auto_ack = False
    threaded = True

    def prepare(self, context: Context) -> None:
        JOURNAL.note("prepared", context.index)

    def execute(self, tup: Tuple) -> None:
        JOURNAL.note("executed")

    def cleanup(self) -> None:
        JOURNAL.note("cleaned up")


def topology() -> Topology:
    builder = TopologyBuilder("kept")
    builder.set_spout("one", One())
    builder.set_bolt("keep", Keep(), parallelism=2).shuffle_grouping("one")
    return builder.build()


def test_a_shutdown_during_a_rebalance_starts_no_worker() -> None:
    JOURNAL.clear()
    before = set(threading.enumerate())
    with LocalCluster() as cluster:
        cluster.submit(topology())
        JOURNAL.wait_for("executed")
        cluster.rebalance("kept", workers=2)
        assert cluster.status("kept").state == "REBALANCING"
    assert set(threading.enumerate()) <= before
    kinds = JOURNAL.kinds()
    assert (kinds.count("opened"), kinds.count("closed")) == (1, 1)
    assert (kinds.count("prepared"), kinds.count("cleaned up")) == (2, 2)


@pytest.mark.parametrize("simulated_time", [False, True])
def test_after_a_shutdown_every_call_is_refused(simulated_time: bool) -> None:
    JOURNAL.clear()
    cluster = LocalCluster(simulated_time=simulated_time)
    cluster.submit(topology())
    cluster.shutdown()
    cluster.shutdown()  # a second one has nothing to do
    with pytest.raises(SquallError, match="has been shut down"):
        cluster.submit(topology(), name="other")
    with pytest.raises(SquallError, match="has been shut down"):
        cluster.kill("kept")
