"""A rebalance promises: remaining tasks keep instances and state; those of a component whose number changed are closed and
created again; each key has one owner at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import Bolt, Context, Failure, Spout, Topology, TopologyBuilder

LOG: list[tuple[Any, ...]] = []
LEFT: list[int] = []


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    LOG.clear()
    LEFT[:] = range(600)
    yield


class Source(Spout):
    """Emits the remaining numbers, ten a second, whichever task is called."""

    outputs = ("key", "number")

    def open(self, context: Context) -> None:
        LOG.append(("open", context.component, context.index))

    def next_tuple(self) -> float:
        if LEFT:
            number = LEFT.pop(0)
            self.emit((number % 17, number), message_id=number)
        return 0.005

    def ack(self, message_id: Any) -> None:
        LOG.append(("ack", message_id))

    def fail(self, message_id: Any, failure: Failure) -> None:
        LOG.append(("fail", message_id, failure.reason))

    def close(self) -> None:
        LOG.append(("close", "source"))


class Owner(Bolt):
    """Records which of its tasks gets which key, by the number of tasks."""

    outputs = ("key",)

    def prepare(self, context: Context) -> None:
        self.context = context
        self.seen = 0
        LOG.append(("prepare", context.component, context.index))

    def execute(self, tup: Any) -> None:
        self.seen += 1
        context = self.context
        LOG.append(("key", context.component, context.parallelism, context.index, tup["key"]))
        self.emit((tup["key"],))

    def cleanup(self) -> None:
        LOG.append(("cleanup", self.context.component, self.context.index, self.seen))


def topology(workers: int) -> Topology:
    builder = TopologyBuilder("keys", conf={"topology.workers": workers})
    builder.set_spout("source", Source())
    builder.set_bolt("owner", Owner(), parallelism=3).fields_grouping("source", "key")
    builder.set_bolt("after", Owner(), parallelism=2).fields_grouping("owner", "key")
    return builder.build()


def count(what: str, *details: Any) -> int:
    return sum(entry[: 1 + len(details)] == (what, *details) for entry in LOG)


def until_active(cluster: LocalCluster) -> None:
    for _ in range(1000):
        cluster.advance(0.1)
        if cluster.status("keys").state == "ACTIVE":
            return
    raise AssertionError("the rebalance does not end")


def test_in_one_worker_only_the_component_that_grew_is_created_again() -> None:
    with LocalCluster(simulated_time=True, seed=3) as cluster:
        cluster.submit(topology(1))
        cluster.advance(1.0)
        cluster.rebalance("keys", parallelism={"owner": 5})
        until_active(cluster)
        cluster.advance(1.0)
        assert count("open", "source") == 1
        assert count("close", "source") == 0
        assert count("prepare", "after") == 2
        assert count("cleanup", "after") == 0
        assert count("cleanup", "owner") == 3
        assert count("prepare", "owner") == 3 + 5
        for _ in range(200):
            cluster.advance(0.1)
    assert count("ack") == 600
    assert count("fail") == 0


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("tasks", [1, pytest.param(2, marks=pytest.mark.soak), 7])
def test_each_key_has_one_owner_for_each_number_of_tasks_and_nothing_is_lost(
    workers: int, tasks: int
) -> None:
    with LocalCluster(simulated_time=True, seed=3) as cluster:
        cluster.submit(topology(workers))
        cluster.advance(1.0)
        cluster.rebalance("keys", parallelism={"owner": tasks})
        until_active(cluster)
        for _ in range(200):
            cluster.advance(0.1)
        status = cluster.status("keys")
    owners: dict[tuple[str, int, int], set[int]] = {}
    for what, *entry in LOG:
        if what == "key":
            component, parallelism, index, key = entry
            owners.setdefault((component, parallelism, key), set()).add(index)
    assert owners
    assert all(len(tasks_of_key) == 1 for tasks_of_key in owners.values()), owners
    assert {parallelism for component, parallelism, _ in owners if component == "owner"} == {3, tasks}
    assert count("ack") == 600
    assert count("key", "owner") == 600
    assert status.components["owner"].executed == 600, "counts of closed tasks are kept"
