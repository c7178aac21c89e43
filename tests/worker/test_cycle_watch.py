"""A cycle is found quiet only when nothing is in flight in it, in whatever order messages arrive, and then always."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from squall.transport.frames import CycleMessage, CycleProbe, CycleReply
from worker.loop.cycles import LAST_PHASE, Cycle, CycleWatch


class Network:
    """Workers with one cycle over all of them. Tuples (numbers of hops left) and messages travel on channels that keep their
    order, one of each kind from worker to worker; the next channel to deliver is chosen at random.
    """

    def __init__(self, workers: int, random: Random) -> None:
        self.random = random
        self.names = [f"w{number}" for number in range(workers)]
        self.watches = {}
        self.inboxes: dict[str, deque[int]] = {name: deque() for name in self.names}
        self.channels: dict[tuple[str, str, str], deque[Any]] = {}
        self.end_called = dict.fromkeys(self.names, False)
        for name in self.names:
            watch = CycleWatch(name, [Cycle(tuple(self.names), self.names[0])])
            watch.is_idle = lambda cycle, name=name: self.is_idle(name)  # type: ignore[misc]
            self.watches[name] = watch

    def is_idle(self, name: str) -> bool:
        phase = self.watches[name].cycles[0].phase
        return not self.inboxes[name] and (phase == 0 or self.end_called[name])

    def send_tuple(self, name: str, hops: int) -> None:
        target = self.random.choice(self.names)
        self.watches[name].sent(0, target, 1)
        if target == name:
            self.inboxes[name].append(hops)
        else:
            self.channels.setdefault(("tuple", name, target), deque()).append(hops)

    def under_way(self) -> int:
        """Tuples in inboxes and on channels."""
        inside = sum(len(inbox) for inbox in self.inboxes.values())
        return inside + sum(len(queue) for key, queue in self.channels.items() if key[0] == "tuple")

    def collect(self, name: str) -> None:
        """Send the messages of a watch on its channels."""
        watch = self.watches[name]
        for target, message in watch.outgoing:
            self.channels.setdefault(("message", name, target), deque()).append(message)
        watch.outgoing.clear()

    def execute(self, name: str) -> None:
        hops = self.inboxes[name].popleft()
        if hops:
            for _ in range(self.random.choice((0, 1, 1, 2))):
                self.send_tuple(name, hops - 1)
        self.watches[name].executed(0, "any sender", 1)

    def deliver(self, key: tuple[str, str, str]) -> None:
        what = self.channels[key].popleft()
        if key[0] == "tuple":
            self.inboxes[key[2]].append(what)
        else:
            self.watches[key[2]].receive(what)
            self.collect(key[2])

    def end_of_input(self, name: str, emits: int) -> None:
        self.end_called[name] = True
        for _ in range(emits):
            self.send_tuple(name, 3)

    def step(self) -> None:
        """One random event."""
        can: list[Any] = [lambda: self.ask()]
        can += [lambda name=name: self.execute(name) for name in self.names if self.inboxes[name]] * 2
        can += [lambda key=key: self.deliver(key) for key, queue in self.channels.items() if queue] * 2
        can += [
            lambda name=name: self.end_of_input(name, self.random.choice((0, 2)))
            for name in self.names
            if self.watches[name].cycles[0].phase == 1 and not self.end_called[name]
        ]
        self.random.choice(can)()

    def ask(self) -> None:
        if self.watches[self.names[0]].wants_round():
            self.watches[self.names[0]].ask()
            self.collect(self.names[0])

    @property
    def phase(self) -> int:
        return max(watch.cycles[0].phase for watch in self.watches.values())


@given(st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=150)
def test_a_phase_begins_only_when_nothing_is_in_flight(workers: int, seed: int) -> None:
    network = Network(workers, Random(seed))
    for _ in range(4):
        network.send_tuple(network.random.choice(network.names), 4)
    phase = 0
    for _ in range(5000):
        network.step()
        if network.phase != phase:
            phase = network.phase
            assert network.under_way() == 0 and (phase == 1 or all(network.end_called.values()))
        if all(watch.cycles[0].phase == LAST_PHASE for watch in network.watches.values()):
            break
    assert phase == LAST_PHASE, "a quiet cycle was not detected"


def replies(watch: CycleWatch, *rows: tuple[str, bool, int, int]) -> None:
    """A round in which the other workers answer like this."""
    watch.ask()
    number = watch.cycles[0].round
    for worker, idle, sent, executed in rows:
        watch.receive(CycleReply(0, number, worker, idle, sent, executed))


def coordinator() -> CycleWatch:
    """The watch of w0, which is idle and has neither sent nor executed anything."""
    watch = CycleWatch("w0", [Cycle(("w0", "w1"), "w0")])
    watch.is_idle = lambda cycle: True
    return watch


def test_one_round_is_not_enough_and_changed_counts_restart_the_detection() -> None:
    watch = coordinator()
    for sent in (3, 5, 7):
        replies(watch, ("w1", True, sent, sent))
        assert watch.cycles[0].phase == 0
    replies(watch, ("w1", True, 7, 7))
    assert watch.cycles[0].phase == 1


def test_a_busy_worker_or_an_unexecuted_tuple_restarts_the_detection() -> None:
    for answer in (("w1", False, 3, 3), ("w1", True, 4, 3)):
        watch = coordinator()
        for row in (("w1", True, 3, 3), answer, ("w1", True, 3, 3)):
            replies(watch, row)
            assert watch.cycles[0].phase == 0
        for _ in range(5):
            replies(watch, answer)
            assert watch.cycles[0].phase == 0


def test_answers_of_an_earlier_round_do_not_count() -> None:
    watch = coordinator()
    replies(watch, ("w1", True, 3, 3))
    watch.ask()
    watch.receive(CycleReply(0, 1, "w1", True, 3, 3))
    assert watch.cycles[0].phase == 0
    watch.receive(CycleReply(0, 2, "w1", True, 3, 3))
    assert watch.cycles[0].phase == 1


def test_only_the_coordinator_asks_and_only_while_it_is_idle_itself() -> None:
    watch = CycleWatch("w1", [Cycle(("w0", "w1"), "w0")])
    watch.is_idle = lambda cycle: True
    watch.ask()
    assert watch.outgoing == [] and not watch.wants_round()
    watch = coordinator()
    watch.is_idle = lambda cycle: False
    watch.ask()
    assert watch.outgoing == [] and not watch.wants_round()


def test_every_worker_of_the_cycle_is_probed_and_gets_the_phase() -> None:
    watch = coordinator()
    messages: list[tuple[str, CycleMessage]] = []
    for _ in range(2):
        replies(watch, ("w1", True, 0, 0))
        messages += watch.outgoing
        watch.outgoing.clear()
    assert [worker for worker, _ in messages] == ["w1"] * 3
    assert isinstance(messages[0][1], CycleProbe)
    assert getattr(messages[-1][1], "phase", None) == 1
