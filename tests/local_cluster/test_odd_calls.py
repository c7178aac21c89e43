"""The calls to its own cluster that a component may make, and those that only the cluster's owner may make."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.gathering import GATHERED, Gathered, Rows, gathered
from topology_api import (
    Bolt,
    NoSuchTopology,
    SquallError,
    Topology,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)

__all__ = ["gathered"]

#: Where the component finds its cluster, which cannot be pickled.
CLUSTERS: list[LocalCluster] = []


class Calls(Bolt):
    """Calls methods of its cluster at its fifth tuple."""

    def __init__(self, *calls: tuple[Any, ...]) -> None:
        self.calls = calls

    def execute(self, tup: Tuple) -> None:
        for name, *args in self.calls if tup["value"] == 5 else ():
            try:
                getattr(CLUSTERS[-1], name)(*args)
                GATHERED.add("answers", f"{name}: done")
            except SquallError as error:
                GATHERED.add("answers", f"{name}: {error}")
        GATHERED.add("executed", tup["value"])


def topology(*calls: tuple[Any, ...]) -> Topology:
    builder = TopologyBuilder("calls")
    builder.set_spout("rows", Rows([(number,) for number in range(100)]))
    builder.set_bolt("bolt", Calls(*calls)).shuffle_grouping("rows")
    return builder.build()


def endless(name: str) -> Topology:
    builder = TopologyBuilder(name)
    builder.set_spout("rows", Rows([(1,)], finishes=False))
    builder.set_bolt("bolt", Calls(), parallelism=4).shuffle_grouping("rows")
    return builder.build()


@pytest.mark.parametrize("simulated", [False, True])
def test_a_call_that_would_wait_for_the_component_itself_is_refused(
    simulated: bool, gathered: Gathered
) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        CLUSTERS.append(cluster)
        cluster.submit(topology(("wait", "calls"), ("shutdown",)))
        if simulated:
            cluster.advance(60)
        cluster.wait("calls", timeout=60)
    assert sorted(gathered["executed"]) == list(range(100))
    assert [answer.split(" cannot be called by a component")[0] for answer in gathered["answers"]] == [
        "wait: wait()",
        "shutdown: shutdown()",
    ]


def test_a_component_cannot_advance_simulated_time(gathered: Gathered) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        CLUSTERS.append(cluster)
        cluster.submit(topology(("advance", 5.0)))
        cluster.advance(60)
        cluster.wait("calls")
    assert "advance: advance() cannot be called by a component" in gathered["answers"][0]


@pytest.mark.parametrize("simulated", [False, True])
def test_a_component_may_kill_its_own_topology(simulated: bool, gathered: Gathered) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        CLUSTERS.append(cluster)
        cluster.submit(topology(("deactivate", "calls"), ("activate", "calls"), ("kill", "calls")))
        if simulated:
            cluster.advance(60)
        gathered.wait_for("answers", 3)
        assert gathered["answers"] == ["deactivate: done", "activate: done", "kill: done"]
    assert len(gathered["executed"]) == len(set(gathered["executed"]))


def test_a_waiting_caller_learns_that_another_thread_shut_the_cluster_down() -> None:
    cluster = LocalCluster()
    cluster.submit(endless("endless"))
    other = threading.Timer(0.05, cluster.shutdown)
    other.start()
    with pytest.raises(SquallError, match="the local cluster has been shut down"):
        cluster.wait("endless", timeout=60)
    other.join()


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize(
    "orders", [["submit", "kill"], ["rebalance", "kill"], ["submit", "rebalance", "kill"]], ids="-".join
)
def test_commands_in_quick_succession_leave_no_topology_behind(
    orders: list[str], simulated: bool, gathered: Gathered
) -> None:
    other = endless("other")
    calls = {
        "submit": ("submit", other),
        "rebalance": ("rebalance", "other", 3),
        "kill": ("kill", "other", 0),
    }
    with LocalCluster(simulated_time=simulated) as cluster:
        CLUSTERS.append(cluster)
        if "submit" not in orders:
            cluster.submit(other)
        cluster.submit(topology(*(calls[order] for order in orders)))
        if simulated:
            cluster.advance(60)
        cluster.wait("calls", timeout=60)
        assert gathered["answers"] == [f"{order}: done" for order in orders]
        with pytest.raises((TopologyFailed, NoSuchTopology)):
            cluster.wait("other", timeout=60)
        cluster.submit(other, name="last")  # one command later, all earlier ones are done
        if simulated:
            cluster.advance(1)
        assert cluster.topologies() == ["calls", "last"]
