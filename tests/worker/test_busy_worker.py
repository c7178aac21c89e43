"""A worker that always has work: tuples for idle tasks leave soon, those for busy ones in whole frames."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import worker.loop.worker
from squall.transport.credit import SendWindow
from squall.transport.frames import Batch
from tests.worker.network_of_workers import InMemory, Net
from topology_api import Bolt, Failure, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.links import IDLE_FLUSH_PAUSE, IDLE_FLUSH_SECONDS, LONGEST_WAIT_IN_OUTBOX, Flush, Links
from worker.tasks.task import Task

HERE = {"w1": ["many/0", "rare/0", "work/0", "first/0", "second/0"]}
APART = {"w1": ["many/0", "rare/0", "work/0", "first/0"], "w2": ["second/0"]}
#: Seconds for each tuple of the flood.
WORK = 0.00002
#: Tuples in a burst of the flood: more than a round can process.
BURST = 500


class World:
    """The actions and records of one test's components."""

    def __init__(self) -> None:
        self.spend: Callable[[float], None] = lambda seconds: None
        self.now: Callable[[], float] = lambda: 0.0
        #: Seconds from emission to ack of the rare trees.
        self.took: list[float] = []


#: Components are pickled; these are the shared records.
WORLD = World()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    fresh = World()
    monkeypatch.setitem(globals(), "WORLD", fresh)
    return fresh


class Many(Spout):
    outputs = ("number",)

    def next_tuple(self) -> float | None:
        for _ in range(BURST):
            self.emit((1,))
        return 0.0


class Rare(Spout):
    """One tree after another."""

    outputs = ("number",)

    def open(self, context: Any) -> None:
        self.under_way = False

    def next_tuple(self) -> float | None:
        if not self.under_way:
            self.under_way = True
            self.emit((1,), message_id=WORLD.now())
        return 0.001

    def ack(self, message_id: Any) -> None:
        WORLD.took.append(WORLD.now() - message_id)
        self.under_way = False

    def fail(self, message_id: Any, failure: Failure) -> None:
        raise AssertionError(failure)


class Work(Bolt):
    def execute(self, tup: Tuple) -> None:
        WORLD.spend(WORK)


class Pass(Bolt):
    outputs = ("number",)

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class End(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


def topology() -> Topology:
    """Many tuples to one bolt; beside them one tree at a time through two others."""
    builder = TopologyBuilder("busy")
    builder.set_spout("many", Many())
    builder.set_spout("rare", Rare())
    builder.set_bolt("work", Work()).shuffle_grouping("many")
    builder.set_bolt("first", Pass()).shuffle_grouping("rare")
    builder.set_bolt("second", End()).shuffle_grouping("first")
    return builder.build()


def run(world: World, hosts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let it run for a second; return how many tuples the frames for the busy bolt had."""
    sizes: list[int] = []
    links: Any = worker.loop.worker.Worker.kind_of_links  # or what the test put in its place

    class Noted(links):  # type: ignore[misc]
        def number(self, batch: Batch, credited: bool) -> None:
            if batch.source.component == "many":
                sizes.append(len(batch.rows))
            super().number(batch, credited)

    monkeypatch.setattr(worker.loop.worker.Worker, "kind_of_links", Noted)
    net = Net(topology(), hosts, InMemory(rounds=10_000), conf={"topology.max.spout.pending": None})
    clock: Any = net.clock
    world.now = clock.now
    world.spend = lambda seconds: clock.move_to(clock.now() + seconds)
    net.start()
    end = clock.now() + 1.0
    assert net.run(10, lambda: clock.now() >= end)
    return sizes


@pytest.mark.parametrize("hosts", [HERE, APART], ids=["here", "apart"])
def test_a_tree_of_idle_tasks_does_not_wait_until_outboxes_are_full(
    world: World, hosts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = run(world, hosts, monkeypatch)
    assert len(world.took) > 20
    # Two hops and the way back, each with rounds of the loop of up to 6 ms; by the longest wait alone it would be twice that.
    assert sorted(world.took)[len(world.took) // 2] < LONGEST_WAIT_IN_OUTBOX
    full = [size for size in sizes if size == max(sizes)]
    assert len(full) > len(sizes) / 2, sizes


def test_the_search_for_idle_tasks_takes_a_small_share_of_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost, looks = 0.004, [0.0]

    class Slow(Links):
        def flush(self, task: Task, what: Flush) -> bool:
            if what is Flush.IDLE:
                looks.append(world.now())
                world.spend(cost)
            return super().flush(task, what)

    monkeypatch.setattr(worker.loop.worker.Worker, "kind_of_links", Slow)
    run(world, HERE, monkeypatch)
    rounds = [after - before for before, after in pairwise(looks) if after - before > 1.5 * cost]
    assert len(rounds) > 2
    assert min(rounds[1:]) >= IDLE_FLUSH_PAUSE * cost > IDLE_FLUSH_SECONDS


def test_a_window_is_idle_when_all_frames_are_confirmed_and_more_may_be_sent() -> None:
    window = SendWindow(2)
    assert window.idle
    window.next_frame()
    assert not window.idle
    window.grant(3)
    assert window.idle
    window.close()
    assert not window.idle
    assert not SendWindow(0).idle


def test_emissions_before_a_pause_leave_in_the_same_round(world: World) -> None:
    builder = TopologyBuilder("rare")
    builder.set_spout("rare", Rare())
    builder.set_bolt("end", End()).shuffle_grouping("rare")
    net = Net(builder.build(), {"w1": ["rare/0"], "w2": ["end/0"]}, InMemory())
    world.now = net.clock.now
    net.start()
    assert net.run(5, lambda: len(world.took) > 2)
    node = net.nodes["w1"]
    (peer,) = node.exchange.peers.values()
    (spout,) = node.worker.spouts
    rounds = 0
    for _ in range(2000):
        before, sent = spout.emitter.emitted, peer.link.in_flight.sent
        node.step()
        if spout.emitter.emitted > before:
            rounds += 1
            assert peer.link.in_flight.sent > sent
        net.nodes["w2"].step()
        net.world.go_on(net.clock.now(), False)
    assert rounds > 100


class InACall:
    """A spout's task whose thread is in the middle of a run."""

    jobs = 1

    def wants_run(self) -> bool:
        raise AssertionError("no other thread may touch it now")


def test_a_pausing_worker_does_not_query_a_spout_whose_thread_is_busy(world: World) -> None:
    builder = TopologyBuilder("rare")
    builder.set_spout("rare", Rare())
    net = Net(builder.build(), {"w1": ["rare/0"]}, InMemory())
    net.start()
    worker = net.nodes["w1"].worker
    worker.spouts[:] = [InACall()]  # type: ignore[list-item]
    assert worker.flushing.pauses
