"""A batch bolt acks thousands of tuples at once; the spout gets the acks in portions, whatever happens between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.worker.network_of_workers import InMemory, Net
from topology_api import BatchBolt, Bolt, FailTuple, Failure, Replay, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.ack_router import PORTION
from worker.tasks.batch_bolt import BatchBoltTask

COUNT = 3 * PORTION + 17
CONF = {"topology.message.timeout.secs": 20, "topology.max.spout.pending": None}
HERE = {"w1": ["numbers/0", "others/0", "store/0", "pass/0"]}
APART = {"w1": ["numbers/0", "others/0", "pass/0"], "w2": ["store/0"]}


class World:
    """The records of the components of one test."""

    def __init__(self) -> None:
        #: The final calls of the batch's tuples: (message id, "ack" or why it failed).
        self.final_calls: list[tuple[int, str]] = []
        #: For each acked tree of the others: how many of the batch's tuples had their final call by then.
        self.between: list[int] = []
        self.batches: list[int] = []
        #: The action of each call of `Pass`.
        self.dawdle: Callable[[], None] = lambda: None


#: Components are pickled; these are the shared records.
WORLD = World()


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    fresh = World()
    monkeypatch.setitem(globals(), "WORLD", fresh)
    return fresh


class Numbers(Spout):
    """Emits numbers: many to the batch bolt, or, as `others`, one in every call for as long as the test runs."""

    outputs = ("number",)

    def __init__(self, name: str, count: int, replay: Replay | None = None) -> None:
        self.name, self.count, self.replay = name, count, replay

    def open(self, context: Any) -> None:
        self.number = 0

    def next_tuple(self) -> float | None:
        if self.number >= self.count:
            return 1.0  # neither the end nor a limit: at these the bolt would execute its partial batch
        self.emit((self.number,), message_id=self.number)
        self.number += 1
        return 0.0 if self.name == "others" else None

    def ack(self, message_id: Any) -> None:
        if self.name == "others":
            WORLD.between.append(len(WORLD.final_calls))
        else:
            WORLD.final_calls.append((message_id, "ack"))

    def fail(self, message_id: Any, failure: Failure) -> None:
        if self.name == "numbers":
            WORLD.final_calls.append((message_id, failure.error or failure.reason))


class Pass(Bolt):
    """Does nothing, slowly."""

    def execute(self, tup: Tuple) -> None:
        WORLD.dawdle()


class Store(BatchBolt):
    """Takes everything as one batch, and acks or fails it as the test says."""

    batch_size = COUNT
    batch_interval = 5.0

    def __init__(self, way: str = "ack") -> None:
        self.way = way

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        WORLD.batches.append(len(tups))
        if self.way == "raise":
            raise FailTuple("not today")
        for tup in tups if self.way == "mixed" else []:
            if tup["number"] % 3 == 0:
                self.fail(tup, "a third")
            elif tup["number"] % 3 == 1:
                self.ack(tup)


def topology(way: str = "ack", others: int = 2000, replay: Replay | None = None) -> Topology:
    """Many numbers in one batch, and other trees beside them."""
    builder = TopologyBuilder("portions")
    builder.set_spout("numbers", Numbers("numbers", COUNT, replay))
    builder.set_spout("others", Numbers("others", others))
    builder.set_bolt("store", Store(way)).shuffle_grouping("numbers")
    builder.set_bolt("pass", Pass()).shuffle_grouping("others")
    return builder.build()


def started(way: str = "ack", hosts: dict[str, list[str]] = HERE, replay: Replay | None = None) -> Net:
    net = Net(topology(way, replay=replay), hosts, InMemory(rounds=1), conf=CONF)
    net.start()
    return net


def gathered(net: Net) -> int:
    """Tuples that the batch bolt holds."""
    bolts = net.nodes["w1"].worker.bolts
    return sum(len(bolt.gathered) for bolt in bolts if isinstance(bolt, BatchBoltTask))


def note(told: list[int], number: int) -> int:
    told.append(number)
    return number


def between_two_portions(world: World) -> Callable[[], bool]:
    """Whether only some of the batch's tuples have their final call."""
    return lambda: 0 < len(world.final_calls) < COUNT


def test_acks_of_a_batch_come_in_portions_and_other_trees_get_theirs_between_them(world: World) -> None:
    net = started()
    told = [0]
    assert net.run(20, lambda: note(told, len(world.final_calls)) == COUNT)
    portions = [after - before for before, after in pairwise(told) if after > before]
    assert portions == [PORTION] * 3 + [17]
    assert [number for number in world.between if 0 < number < COUNT] != []
    assert world.final_calls == [(number, "ack") for number in range(COUNT)]


@pytest.mark.parametrize("hosts", [HERE, APART], ids=["here", "apart"])
@pytest.mark.parametrize("way", ["ack", "mixed"])
def test_no_ack_comes_too_late_though_rounds_of_the_loop_are_slow(
    world: World, hosts: dict[str, list[str]], way: str
) -> None:
    net = started(way, hosts)
    assert net.run(20, lambda: bool(world.batches))
    world.dawdle = lambda: net.clock.move_to(net.clock.now() + 8.0)  # type: ignore[attr-defined]  # a ManualClock
    assert net.run(200, lambda: len(world.final_calls) == COUNT)
    assert "timeout" not in {final_call for _, final_call in world.final_calls}


@pytest.mark.parametrize("way", ["raise", "mixed"])
def test_failures_of_a_batch_come_in_portions_and_each_tuple_has_one_final_call(
    world: World, way: str
) -> None:
    net = started(way)
    assert net.run(20, between_two_portions(world))
    assert net.run(20, lambda: len(world.final_calls) == COUNT)
    wanted = {
        number: "not today" if way == "raise" else "a third" if number % 3 == 0 else "ack"
        for number in range(COUNT)
    }
    assert sorted(world.final_calls) == sorted(wanted.items())


def test_a_worker_that_stops_between_two_portions_reports_its_remaining_acks(world: World) -> None:
    net = started()
    assert net.run(20, between_two_portions(world))
    net.nodes["w1"].worker.stop()
    assert sorted(world.final_calls) == [(number, "ack") for number in range(COUNT)]


@pytest.mark.parametrize("way", ["ack", "raise"])
def test_a_spout_in_a_run_when_its_worker_stops_gets_the_known_acks(world: World, way: str) -> None:
    net = started(way)
    assert net.run(20, between_two_portions(world))
    worker = net.nodes["w1"].worker
    for spout in worker.spouts:
        spout.jobs = 1  # as if a thread of its own were in its `next_tuple`
    worker.stop()
    assert sorted(world.final_calls) == [
        (number, "ack" if way == "ack" else "not today") for number in range(COUNT)
    ]


def test_a_spout_that_is_reassigned_between_two_portions_gets_the_acks(world: World) -> None:
    net = started()
    assert net.run(20, between_two_portions(world))
    worker = net.nodes["w1"].worker
    (spout,) = [task for task in worker.spouts if task.spec.id == "numbers"]
    worker.remove(spout)
    assert sorted(world.final_calls) == [(number, "ack") for number in range(COUNT)]


def test_a_topology_that_is_deactivated_between_two_portions_gets_the_rest(world: World) -> None:
    net = started()
    assert net.run(20, between_two_portions(world))
    net.nodes["w1"].worker.set_active(False)
    assert net.run(20, lambda: len(world.final_calls) == COUNT)
    assert {final_call for _, final_call in world.final_calls} == {"ack"}


def test_a_worker_is_not_drained_before_the_last_portion_has_left_for_other_workers(world: World) -> None:
    net = started(hosts=APART)
    assert net.run(20, between_two_portions(world))
    storing = net.nodes["w2"].worker
    storing.drain()
    assert not storing.drained
    assert net.run(20, lambda: storing.drained)
    assert net.run(20, lambda: len(world.final_calls) == COUNT)
    assert {final_call for _, final_call in world.final_calls} == {"ack"}


def test_tuples_left_when_a_worker_is_killed_between_two_portions_are_replayed(world: World) -> None:
    net = started(hosts=APART, replay=Replay())
    assert net.run(20, between_two_portions(world))
    net.kill("w2")
    net.restart("w2")
    assert net.run(200, lambda: len(world.final_calls) == COUNT)
    assert Counter(number for number, _ in world.final_calls) == Counter(range(COUNT))
    assert COUNT < sum(world.batches) < 2 * COUNT


def test_a_loop_that_goes_to_sleep_does_not_visit_each_tuple_of_a_batch_bolt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net(topology(others=0), HERE, InMemory(), conf=CONF)
    net.start()
    assert net.run(20, lambda: gathered(net) > 0)
    worker = net.nodes["w1"].worker
    asked: list[int] = []
    monkeypatch.setattr(BatchBoltTask, "waiting_roots", lambda task: asked.append(task.id) or set())  # type: ignore[func-returns-value]
    assert worker.next_time() is not None and asked == []
    assert {bolt.spec.id for bolt in worker.bolts if bolt.holds_trees()} == {"store"}
