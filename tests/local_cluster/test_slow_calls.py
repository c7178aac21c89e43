"""The shutdown of a cluster while a component's call takes long: it waits for it, on every Python version.

It uses real time: before Python 3.11, futures time out with a different `TimeoutError`.
"""

from __future__ import annotations

import threading

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout
from squall.daemon import command_loop
from topology_api import Bolt, SquallError, Topology, TopologyBuilder, Tuple

ENTERED, GO_ON = threading.Event(), threading.Event()


class Slow(Bolt):
    def execute(self, tup: Tuple) -> None:
        ENTERED.set()
        assert GO_ON.wait(30)


def topology() -> Topology:
    builder = TopologyBuilder("slow")
    builder.set_spout("source", ScriptedSpout("number", [(1,)]))
    builder.set_bolt("slow", Slow()).shuffle_grouping("source")
    return builder.build()


def test_shutdown_reports_a_call_that_has_not_returned_and_ends_the_thread_when_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_loop, "STOP_SECONDS", 0.05)
    ENTERED.clear()
    GO_ON.clear()
    cluster = LocalCluster()
    cluster.submit(topology())
    assert ENTERED.wait(30)
    with pytest.raises(SquallError, match="has not returned"):
        cluster.shutdown()
    GO_ON.set()
    [thread] = [thread for thread in threading.enumerate() if thread.name == "squall-local-cluster"]
    thread.join(30)
    assert not thread.is_alive()
