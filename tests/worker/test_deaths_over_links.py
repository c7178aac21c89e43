"""A tuple that kills its worker is given up after two deaths in its call; a kill from outside costs no tuple an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from squall.running_calls import SIZE, CallMark, begin_calls, calls_in
from squall.worker_files import Death
from tests.worker.network_of_workers import InMemory, Net
from topology_api import BatchBolt, Bolt, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.call_marks import MARK_SECONDS, CallMarks
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask

CONF = {"topology.on.outage": "wait", "topology.max.spout.pending": 30}
KILLER = 17
COUNT = 60
#: Ends the process in whose call it is called; set by a `Story`.
DIE: list[Callable[[], None]] = []


class Sixty(Spout):
    """60 numbers; each failure is replayed after a second."""

    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=1.0, max_delay=1.0)
    sent = 0

    def next_tuple(self) -> float:
        self.emit((self.sent,), message_id=self.sent)
        self.sent += 1
        if self.sent == COUNT:
            self.finish()
        return 0.01


#: For which numbers a call ends the process, or hangs until the process is ended.
FATAL: list[Callable[[int], bool]] = [lambda number: number == KILLER]


def check(tup: Tuple) -> None:
    if FATAL[0](tup[0]):
        DIE[0]()


class Dies(Bolt):
    def execute(self, tup: Tuple) -> None:
        check(tup)


class DiesInAThread(Dies):
    threaded = True


class DiesRich(Bolt):
    """Holds each tuple for a while: only the one in the call is at fault."""

    auto_ack = auto_anchor = False

    def __init__(self) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        check(tup)
        self.held.append(tup)

    def tick(self) -> None:
        for tup in self.held:
            self.ack(tup)
        self.held = []


class DiesLater(Bolt):
    """Many calls at a time; the fatal step comes after a pause."""

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.05)
        check(tup)
        await asyncio.sleep(0.05)


class DiesInABatch(BatchBolt):
    batch_size = 10
    batch_interval = 0.2

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            check(tup)


def sixty(bolt: Any) -> Topology:
    builder = TopologyBuilder("sixty")
    builder.set_spout("source", Sixty())
    builder.set_bolt("store", bolt).shuffle_grouping("source")
    return builder.build()


class Story:
    """Two workers; the one with the bolt dies, and is started again by its supervisor."""

    def __init__(self, bolt: Any) -> None:
        conf = {**CONF, "topology.tick.tuple.freq.secs": 0.5} if isinstance(bolt, DiesRich) else CONF
        self.net = Net(sixty(bolt), {"a": ["source/0"], "b": ["store/0"]}, InMemory(), conf=conf)
        self.buffer = bytearray(SIZE)
        self.deaths = 0
        #: For how long the task was down, and the error that it showed.
        self.said: list[tuple[float, str]] = []
        #: What the process left behind at the moment of its death.
        self.left: bytes | None = None
        DIE[:] = [self.die]
        self.net.start()

    def die(self) -> None:
        if self.left is None:
            self.left = bytes(self.buffer)
            # Nothing of the step in which the process dies gets out.
            self.net.nodes["b"].carrier.send = lambda *_: True  # type: ignore[method-assign]

    def start_again(self, death: Death | None) -> None:
        net = self.net
        net.nodes["b"].worker.asyncio_driver.stop()  # as the process's end does
        net.kill("b")
        net.run(0.5)
        net.number_again("b")
        node = net.begin("b")
        self.left = None
        if death is not None:
            self.buffer = bytearray(SIZE)
            begin_calls(self.buffer, self.deaths)
            node.worker.environment.marks = CallMarks(death, self.buffer, net.clock.now())
        net.tell()
        assert net.run(10.0, lambda: node.worker.started)
        if death is not None:
            marks = node.worker.environment.marks
            assert marks is not None
            marks.report(node.worker.ack_router, node.worker.tasks, node.worker.plan.component_of)
            node.worker.send_controls()

    def run(self, most_deaths: int = 20, hung: bool = False) -> None:
        """Let the bolt's worker die until nothing is left to do. `hung`: its calls hang, and it is ended for that."""
        while not self.net.run(100.0, lambda: self.left is not None or self.settled):
            pass
        while self.left is not None:
            calls = calls_in(self.left, self.deaths) if self.deaths else []
            self.deaths += 1
            assert self.deaths <= most_deaths
            if hung:
                self.net.run(8.0)
            why = "a call has not returned for 8 s" if hung else "died of SIGSEGV"
            self.start_again(Death(hung, why, tuple(calls)))
            self.after_start()
            self.net.run(200.0, lambda: self.left is not None or self.settled)

    def after_start(self) -> None:
        """Note what the new process says of its bolt task, once it is down."""
        [bolt] = self.net.nodes["b"].worker.bolts
        if self.net.run(
            3.0, lambda: self.left is not None or (isinstance(bolt, BoltTask) and bolt.probing is not None)
        ):
            assert isinstance(bolt, BoltTask)
            if bolt.probing is not None:
                self.said.append((self.net.clock.now() - bolt.failing_since, str(bolt.last_error)))

    @property
    def spout(self) -> Any:
        [found] = self.net.spouts
        return found

    @property
    def settled(self) -> bool:
        return bool(self.net.spouts and self.spout.finished and self.spout.opened and self.spout.exhausted)


@pytest.mark.parametrize(
    ("kind", "deaths"), [(Dies, 3), (DiesInAThread, 3), (DiesRich, 3), (DiesLater, 3), (DiesInABatch, 4)]
)
def test_a_tuple_that_kills_its_worker_is_given_up_and_costs_no_other(kind: Any, deaths: int) -> None:
    story = Story(kind())
    story.run()
    story.net.nodes["b"].worker.asyncio_driver.stop()
    spout = story.spout
    assert story.settled and spout.acked == COUNT - 1 and spout.given_up == {"lost": 1}
    assert f"message id {KILLER}: " in spout.first_failure[1] and "died of SIGSEGV" in spout.first_failure[1]
    assert story.deaths == deaths, "the first is needed to look, a batch needs one more, and two count"


@pytest.mark.parametrize("kind", [Dies, DiesInAThread, DiesRich, DiesLater, DiesInABatch])
def test_a_store_that_hangs_for_every_tuple_costs_none_and_says_since_when(kind: Any) -> None:
    story = Story(kind())
    FATAL[0] = lambda _: story.deaths < 8
    try:
        story.run(hung=True)
    finally:
        FATAL[0] = lambda number: number == KILLER
        story.net.nodes["b"].worker.asyncio_driver.stop()
    assert story.settled and story.spout.acked == COUNT and not story.spout.given_up
    secs, error = story.said[-1]
    assert 20.0 < secs < story.net.clock.now() and "has not returned" in error


def test_a_worker_that_is_killed_from_outside_again_and_again_costs_no_tuple_an_attempt() -> None:
    story = Story(Dies())
    DIE[:] = [lambda: None]
    for _ in range(20):
        story.net.run(0.7)
        story.start_again(None)
    assert story.net.run(60.0, lambda: story.settled)
    assert story.spout.acked == COUNT and not story.spout.given_up


def test_calls_are_marked_no_longer_than_needed() -> None:
    story = Story(DiesInABatch())
    task = next(iter(story.net.nodes["b"].worker.environment.plan.tasks_here))
    call = calls_in_a_batch(task)
    story.start_again(Death(False, "died of SIGSEGV", (call,)))
    worker = story.net.nodes["b"].worker
    [bolt] = worker.bolts
    assert isinstance(bolt, BatchBoltTask) and bolt.mark is not None and bolt.batch_size == 1
    marks = worker.environment.marks
    assert marks is not None and marks.until == pytest.approx(story.net.clock.now() + MARK_SECONDS, abs=20)
    marks.end(worker.tasks.values())
    assert bolt.mark is None and bolt.batch_size == 10


def calls_in_a_batch(task: int) -> Any:
    buffer = bytearray(SIZE)
    begin_calls(buffer, 1)
    CallMark(buffer, 0, task).enter(10, [5])
    [call] = calls_in(bytes(buffer), 1)
    return call
