"""A queue in a topology: messages are acknowledged at the end of their trees; with state, after the commit of their epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.kit.queue_client import QueueClient
from squall_io.kit.queue_spout import QueueSpout
from tests.squall_io.queues_in_memory import MemoryQueueClient, QueueServer
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Context, FailTuple, TopologyBuilder, Tuple

#: Seconds after which a test gives up.
CAP = 60.0
MESSAGES = [f"m{number}" for number in range(30)]


class SharedQueueSpout(QueueSpout):
    """Reads the queue that the test has in this process."""

    server = QueueServer()

    def __init__(self) -> None:
        self.set_up(("value",), ("value",), 100, None)

    def make_client(self, context: Context) -> QueueClient:
        return MemoryQueueClient(self.server)


class SeenValues(Bolt):
    """Keeps the values that it was given, and waits while the test says so."""

    seen: list[str] = []
    may_go_on = threading.Event()

    threaded = True

    def execute(self, tup: Tuple) -> None:
        if tup["value"] == "refused":
            raise FailTuple("no such order")
        self.seen.append(tup["value"])
        self.may_go_on.wait(CAP)


@pytest.fixture
def server() -> Iterator[QueueServer]:
    server = SharedQueueSpout.server = QueueServer(*MESSAGES)
    SeenValues.seen.clear()
    SeenValues.may_go_on.set()
    yield server
    SeenValues.may_go_on.set()


def topology() -> TopologyBuilder:
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", SharedQueueSpout())
    builder.set_bolt("seen", SeenValues()).shuffle_grouping("orders")
    return builder


def test_with_state_messages_are_acknowledged_after_their_commit(server: QueueServer, tmp_path: Path) -> None:
    never = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 3600}
    with LocalCluster() as cluster:
        cluster.submit(topology().build(), never)
        eventually(lambda: len(SeenValues.seen) == len(MESSAGES), CAP)
        calls = len(server.calls)
        eventually(lambda: len(server.calls) > calls + 20, CAP)
        assert server.done == []
    soon = {**never, "topology.state.path": f"file://{tmp_path}/other", "topology.epoch.secs": 0.1}
    with LocalCluster() as cluster:
        cluster.submit(topology().build(), soon)
        eventually(lambda: sorted(server.done) == sorted(MESSAGES), CAP)


def test_without_state_messages_are_acknowledged_or_rejected_when_their_trees_end(
    server: QueueServer,
) -> None:
    server.ready.append("refused")
    with LocalCluster() as cluster:
        cluster.submit(topology().build())
        eventually(lambda: len(server.done) + len(server.dead) == len(MESSAGES) + 1, CAP)
    assert sorted(server.done) == sorted(MESSAGES)
    assert [message for message, _ in server.dead] == ["refused"]
    assert "no such order" in server.dead[0][1]


def test_what_a_stopped_topology_has_not_processed_is_delivered_again(server: QueueServer) -> None:
    SeenValues.may_go_on.clear()
    with LocalCluster() as cluster:
        cluster.submit(topology().build())
        eventually(lambda: SeenValues.seen, CAP)
        cluster.kill("shop", 0)
        SeenValues.may_go_on.set()
        eventually(lambda: not server.sent, CAP)
    assert sorted([*server.done, *server.ready]) == sorted(MESSAGES)
    assert server.dead == []
    with LocalCluster() as cluster:
        cluster.submit(topology().build())
        eventually(lambda: sorted(server.done) == sorted(MESSAGES), CAP)
