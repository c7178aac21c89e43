"""A bolt task in another worker that is down pauses, others take its shuffled tuples, and its first success ends the pause."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.network_of_workers import InMemory, Net
from topology_api import Bolt, Context, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple
from worker.tasks.bolt import BoltTask
from worker.tracking.ids import first_root

CONF = {"topology.on.outage": "wait", "topology.max.spout.pending": 100}
HOSTS = {"a": ["source/0"], "b": ["pass/0"], "c": ["store/0"], "d": ["store/1"]}


class Numbers(Spout):
    """One number every 25 milliseconds."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=1.0)
    sent = 0

    def next_tuple(self) -> float:
        self.sent += 1
        self.emit((self.sent,), message_id=self.sent)
        return 0.025


class Pass(Bolt):
    outputs = Fields("number")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Store(Bolt):
    """Task 0 fails during `AWAY`, each other task never."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        if self.context.index == 0 and AWAY[0] <= self.context.now() < AWAY[1]:
            raise ConnectionError("no answer")


AWAY = [2.0, 100.0]


def numbers(grouping: str) -> Topology:
    builder = TopologyBuilder("numbers")
    builder.set_spout("source", Numbers())
    builder.set_bolt("pass", Pass()).shuffle_grouping("source")
    declarer = builder.set_bolt("store", Store(), parallelism=2)
    getattr(declarer, f"{grouping}_grouping")("pass", *(["number"] if grouping == "fields" else []))
    return builder.build()


def started(grouping: str) -> Net:
    net = Net(numbers(grouping), HOSTS, InMemory(), conf=CONF)
    net.start()
    return net


def is_down(net: Net) -> bool:
    """Whether the task in worker c has paused."""
    return bool(net.nodes["c"].worker.bolts) and store(net, "c").probing is not None


def store(net: Net, worker: str) -> BoltTask:
    [task] = net.nodes[worker].worker.bolts
    assert isinstance(task, BoltTask)
    return task


def spout(net: Net) -> Any:
    [found] = net.spouts
    return found


def test_shuffled_tuples_of_another_worker_go_around_a_task_that_is_down() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    net.run(1.0)
    before, executed = store(net, "d").executed, store(net, "c").executed
    net.run(10.0)
    assert store(net, "d").executed - before > 360, "forty a second"
    assert store(net, "c").executed - executed <= 4, "probes"
    assert not spout(net).given_up


@pytest.mark.slow
def test_the_first_success_ends_the_pause_and_the_detours() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    assert net.run(200.0, lambda: store(net, "c").probing is None)
    assert net.clock.now() < 100.0 + 60.0
    net.run(5.0)
    one, other = store(net, "c").executed, store(net, "d").executed
    net.run(10.0)
    assert abs((store(net, "c").executed - one) - (store(net, "d").executed - other)) <= 60
    assert spout(net).outages.watched() == [] and not spout(net).given_up


@pytest.mark.slow
def test_keyed_tuples_wait_for_their_task_and_stop_the_source() -> None:
    net = started("fields")
    assert net.run(20.0, lambda: is_down(net))
    net.run(30.0)
    acked = spout(net).acked
    net.run(10.0)
    assert spout(net).acked - acked <= 5 and spout(net).pending <= 200
    assert net.run(200.0, lambda: store(net, "c").probing is None)
    net.run(70.0)
    assert spout(net).acked - acked > 500 and not spout(net).given_up


def test_a_task_that_is_down_pauses_again_in_its_next_process() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    net.kill("c")
    net.run(1.0)
    net.restart("c")
    assert net.run(
        30.0, lambda: "c" in net.nodes and bool(net.nodes["c"].worker.bolts) and store(net, "c").failed > 0
    )
    assert net.run(5.0, lambda: is_down(net)), "the tracker knows that it is down"


def test_a_task_whose_next_process_works_gets_its_share_again() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    net.kill("c")
    net.run(1.0)
    AWAY[1] = net.clock.now()
    try:
        net.restart("c")
        assert net.run(30.0, lambda: bool(net.nodes["c"].worker.bolts) and store(net, "c").executed > 100)
        assert net.run(30.0, lambda: not spout(net).outages.watched()), "the spout task learns that it works"
    finally:
        AWAY[1] = 100.0


def test_a_task_that_moves_while_it_is_avoided_gets_its_share_again() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    net.run(1.0)
    sender = net.nodes["b"].worker
    assert sender.detours.avoided == {3}
    sender.detours.assign(sender.plan, {3})
    [bolt] = sender.bolts
    net.run(0.1)
    route: Any = bolt.emitter.outputs["default"].picked[0]
    assert [box.target for box in route.boxes] == [3, 4] and not sender.detours.avoided


@pytest.mark.slow
def test_notices_do_not_pile_up_at_a_task_that_does_not_run() -> None:
    net = started("shuffle")
    assert net.run(20.0, lambda: is_down(net))
    net.run(60.0)
    for node in net.nodes.values():
        for task in node.worker.tasks.values():
            assert len(task.notices) <= 4


def test_a_task_that_never_failed_in_its_process_says_since_when_it_is_down_and_why() -> None:
    """A store that hangs ends the process in its call: the spout task alone knows of the failures before."""
    net = started("shuffle")
    net.run(10.0, lambda: is_down(net))
    began = store(net, "c").failing_since
    net.kill("c")
    net.run(30.0)
    AWAY[0] = net.clock.now() + 100.0  # nothing fails in the next process
    try:
        net.restart("c")
        assert net.run(30.0, lambda: bool(net.nodes["c"].worker.bolts))
        node, task = net.nodes["c"].worker, store(net, "c")
        claim = spout(net).outages.claim(task.id, net.clock.now())
        assert claim is not None and claim.is_down and "no answer" in str(claim.error)
        for _ in range(2):
            node.detours.hear(task.id, first_root(spout(net).id, 0), claim)
            task.heed()
        assert task.probing is not None and "no answer" in str(task.last_error)
        assert task.failing_since == pytest.approx(began, abs=1.0)
    finally:
        AWAY[0] = 2.0


class Few(Spout):
    """One number each ten seconds, from each of six tasks."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=1.0)
    sent = 0

    def open(self, context: Context) -> None:
        self.index = context.index

    def next_tuple(self) -> float:
        self.sent += 1
        self.emit((f"{self.index}/{self.sent}",), message_id=self.sent)
        return 10.0


def few() -> Net:
    builder = TopologyBuilder("few")
    builder.set_spout("source", Few(), parallelism=6)
    builder.set_bolt("store", Store()).shuffle_grouping("source")
    hosts = {
        "a": ["source/0", "source/1", "source/2"],
        "b": ["source/3", "source/4", "source/5"],
        "c": ["store/0"],
    }
    net = Net(builder.build(), hosts, InMemory(), conf={**CONF, "topology.max.spout.pending": 1})
    net.start()
    return net


def test_the_tuples_of_all_spout_tasks_together_show_that_a_task_is_down() -> None:
    AWAY[:] = [0.0, 40.0]
    try:
        net = few()
        assert net.run(9.0, lambda: is_down(net)), "each spout task has one tuple, which is no verdict"
        net.run(1.0)
        assert all(each.outages.is_down(store(net, "c").id) for each in net.spouts)
        assert net.run(120.0, lambda: store(net, "c").probing is None)
        net.run(70.0)
        assert not any(each.given_up or each.outages.watched() for each in net.spouts)
    finally:
        AWAY[:] = [2.0, 100.0]
