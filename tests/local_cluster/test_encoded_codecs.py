"""With `encode`, the frames of a cluster in one process go through the topology's codec."""

from __future__ import annotations

from local_cluster import LocalCluster
from tests.local_cluster.gathering import Gather, Gathered, Rows, advance_to_the_end, gathered
from topology_api import TopologyBuilder

__all__ = ["gathered"]


def run_over(codec: str) -> None:
    """A set, from one worker to another."""
    builder = TopologyBuilder("sets", {"topology.workers": 2, "topology.transport.codec": codec})
    builder.set_spout("rows", Rows([({1, 2},)]))
    builder.set_bolt("gather", Gather()).shuffle_grouping("rows")
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(builder.build())
        advance_to_the_end(cluster, "sets", 60)


def test_pickle_carries_a_set(gathered: Gathered) -> None:
    run_over("pickle")
    assert gathered["rows acked"] == [0]


def test_msgpack_fails_a_tuple_with_a_set_as_it_would_between_processes(gathered: Gathered) -> None:
    run_over("msgpack")
    [(_, failure)] = gathered["rows failed"]
    assert "this is a builtins.set" in failure.error
