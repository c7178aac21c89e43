"""The control loop of a Nimbus, round by round on a manual clock: terms begin, end and begin again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, cast

import pytest

from nimbus.leader.control import REBUILD_SECS, RETRY_SECS, LeaderLoop, NotLeading
from nimbus.leader.master import Nimbus
from nimbus.security.secrets import Secrets
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord, SupervisorRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Deposed, Store, Unavailable
from tests.flaky_store import Call, FlakyStore
from tests.nimbus.transcripts import a_topology
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology


class Office:
    """Only records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, store: Store) -> None:
        self.told.append("begin")

    def tick(self, now: float) -> None:
        pass

    def end(self) -> None:
        self.told.append("end")

    def next_time(self, now: float) -> float:
        return math.inf

    def close(self) -> None:
        self.told.append("close")


class Desk:
    """One control loop over a session of a shared store."""

    def __init__(self, store: InMemoryStore, clock: ManualClock, nimbus_id: str) -> None:
        self.session = store.session()
        self.session.session_secs = 6.0
        self.store = FlakyStore(self.session)
        self.clock = clock
        self.office = Office()
        self.made: list[Nimbus] = []
        self.reason: str | None = None
        self.aside: str | None = None
        self.woken = 0
        self.eager = False
        self.control = LeaderLoop(
            self.store,
            NimbusRecord(nimbus_id, f"http://{nimbus_id}", nimbus_id),
            clock,
            self.make,
            cast(Secrets, self.office),
            lambda: self.reason,
            self.wake,
            lambda: self.aside,
        )

    def make(self, store: Store) -> Nimbus:
        self.made.append(Nimbus(store, self.clock))
        return self.made[-1]

    def wake(self) -> None:
        self.woken += 1
        if self.eager:
            self.eager = False
            self.control.round()

    def rounds(self, seconds: float = 0.0) -> None:
        """Run all rounds that are due until then."""
        until = self.clock.now() + seconds
        for _ in range(1000):
            self.control.round()
            due = self.control.next_time()
            if due is None or due > until:
                break
            self.clock.move_to(max(due, self.clock.now()))
        else:
            raise AssertionError("it never rests")
        self.clock.move_to(until)
        self.control.round()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def start(clock: ManualClock) -> Callable[[str], Desk]:
    store = InMemoryStore()
    return lambda nimbus_id: Desk(store, clock, nimbus_id)


def test_the_first_nimbus_leads_the_second_is_standby_and_both_are_present(
    start: Callable[[str], Desk],
) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()
    second.rounds()
    assert first.control.leading and not second.control.leading
    assert [record.id for record in Registry(first.session).all_nimbuses()] == ["n1", "n2"]
    assert first.control.lead(lambda nimbus: nimbus.registry.all_topologies()) == []
    with pytest.raises(NotLeading):
        second.control.lead(lambda nimbus: nimbus.registry.all_topologies())


def test_a_nimbus_that_stops_lets_the_other_lead_at_once(start: Callable[[str], Desk]) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()
    second.rounds()
    second.woken = 0
    first.control.stop()
    assert second.woken, "it was notified"
    second.rounds()
    assert second.control.leading and not first.control.leading
    assert first.office.told == ["begin", "end", "close"]
    assert [record.id for record in Registry(second.session).all_nimbuses()] == ["n2"]


def test_a_leader_whose_term_is_over_by_its_clock_runs_no_command(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.rounds()
    first.clock.move_to(first.clock.now() + 4.0)  # of a session of 6 s, without a round in between
    ran: list[Nimbus] = []
    with pytest.raises(NotLeading):
        first.control.lead(ran.append)
    assert ran == []


def test_a_second_term_within_one_round_has_a_master_of_its_own(
    start: Callable[[str], Desk],
) -> None:
    first = start("n1")
    first.rounds()
    first.clock.move_to(first.clock.now() + 5.0)  # frozen beyond its term, while its session still lives
    first.control.round()
    assert first.control.leading and len(first.made) == 2
    assert first.office.told == ["begin", "end", "begin"]


def test_masters_of_ended_terms_do_not_listen_any_more(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.rounds()
    watches = len(first.session._tree.watches._entries)
    for _ in range(3):
        first.session.put(paths.EPOCH, b"somebody else")
        first.rounds(1.0)
    assert len(first.made) == 4
    assert len(first.session._tree.watches._entries) == watches


def test_a_session_that_expires_ends_the_term_and_its_master(start: Callable[[str], Desk]) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()
    first.session.close()
    second.rounds()
    first.rounds(6.0)
    second.rounds()
    assert second.control.leading and not first.control.leading
    assert first.office.told == ["begin", "end"]


def test_a_write_refused_because_another_nimbus_leads_ends_the_term(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.rounds()
    first.session.put(paths.EPOCH, b"somebody else")

    def refused(nimbus: Nimbus) -> None:
        raise Deposed("the guard does not hold")

    with pytest.raises(NotLeading, match="does not lead any more"):
        first.control.lead(refused)
    assert not first.control.leading and first.office.told == ["begin", "end"]
    made = len(first.made)
    first.control.round()
    assert first.control.leading and len(first.made) == made + 1, (
        "a term of its own, with a master of its own"
    )


def test_a_guard_that_did_not_hold_starts_no_new_term(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.rounds()

    def refused(nimbus: Nimbus) -> None:
        raise Deposed("another leads, of which the election has not heard")

    with pytest.raises(NotLeading):
        first.control.lead(refused)
    first.rounds(2.0)
    assert not first.control.leading and len(first.made) == 1
    first.session.put(paths.EPOCH, b"that one")
    first.rounds()
    assert first.control.leading and len(first.made) == 2


def test_a_nimbus_that_steps_aside_lets_another_lead(start: Callable[[str], Desk]) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()
    second.rounds()
    first.reason = first.aside = "lacks its keys"
    first.control.round()
    assert not first.control.leading and first.office.told == ["begin", "end"]
    second.rounds()
    assert second.control.leading
    first.rounds(10.0)
    assert not first.control.leading


def test_the_loop_wakes_when_the_master_has_work(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.rounds()
    Registry(first.session).supervisors.put(SupervisorRecord("s1", "s1", 1))
    first.control.lead(lambda nimbus: nimbus.submit(Submission(a_topology("words", 1), defaults(), {})))
    first.control.lead(lambda nimbus: nimbus.kill("words", 0.25))
    assert first.control.next_time() == first.clock.now() + 0.25


def test_a_woken_thread_finds_the_changes_that_the_master_marked(start: Callable[[str], Desk]) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()
    record = first.control.lead(
        lambda nimbus: nimbus.submit(Submission(a_topology("words", 1), defaults(), {}))
    )
    registry = Registry(second.session)
    first.eager = True  # the thread runs before the writer goes on
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    assert not first.eager and registry.assignments.get(record.id) is not None


def test_an_unavailable_store_is_asked_twice_a_second_however_often_the_loop_is_woken(
    start: Callable[[str], Desk],
) -> None:
    first = start("n1")
    first.rounds()
    first.store.away = True
    first.made[-1]._dirty.all = True
    for _ in range(10):
        first.control.round()
    assert len(first.store.failed) == 1
    assert first.control.next_time() == first.clock.now() + RETRY_SECS


def test_while_the_store_is_unavailable_the_loop_waits_and_logs_it_once(
    start: Callable[[str], Desk], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nimbus.leader.control")
    first = start("n1")
    first.rounds()
    master = first.made[-1]
    first.store.away = True
    master._dirty.all = True
    first.rounds(2.0)
    first.store.away = False
    first.rounds(2.0)
    assert first.made == [master], "the same master goes on: it led all the time"
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if "is away" in text]) == 1 and "the store answers again" in told


def test_a_store_that_never_answered_is_logged_once_and_not_as_back(
    start: Callable[[str], Desk], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nimbus.leader.control")
    first = start("n1")
    first.store.away = True
    # Without a request to the store, a round between two checks has no result.
    looks = iter(range(1000))

    def tick(now: float) -> None:
        if next(looks) % 2 == 0:
            raise Unavailable("/keys/operator: ZooKeeper does not answer")

    first.office.tick = tick  # type: ignore[method-assign]
    first.office.next_time = lambda now: now + 0.5  # type: ignore[method-assign]
    first.rounds(5.0)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the store is away, Nimbus waits for it"
    ]
    first.store.away = False
    first.rounds(5.0)
    assert (
        "the store answers again" in [record.getMessage() for record in caplog.records]
        and first.control.leading
    )


def test_a_store_unavailable_for_long_ends_the_term_before_another_can_begin(
    start: Callable[[str], Desk],
) -> None:
    first = start("n1")
    first.rounds()
    first.store.away = True
    first.rounds(5.0)
    assert not first.control.leading, "5 s of a session of 6 s"
    with pytest.raises(NotLeading):
        first.control.lead(lambda nimbus: nimbus.registry.all_topologies())
    first.store.away = False
    first.rounds(2.0)
    assert first.control.leading and len(first.made) == 2


def test_an_error_in_the_master_is_logged_and_the_master_is_rebuilt(
    start: Callable[[str], Desk], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start("n1")
    first.rounds()

    def broken(*arguments: Any) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(first.made[-1], "tick", broken)
    first.control.round()
    assert "a mistake of ours" in caplog.text
    first.rounds(REBUILD_SECS - 0.1)
    assert len(first.made) == 1, "an immediate repeated error does not cause a busy loop"
    first.rounds(0.1)
    assert first.control.leading and len(first.made) == 2


def test_a_nimbus_with_a_reason_not_to_lead_stays_standby(start: Callable[[str], Desk]) -> None:
    first = start("n1")
    first.reason = "lacks a file"
    first.rounds(60.0)
    assert not first.control.leading and first.made == []
    first.reason = None
    first.rounds(60.0)
    assert first.control.leading


def test_a_command_of_many_slow_writes_does_not_end_the_term(start: Callable[[str], Desk]) -> None:
    first, second = start("n1"), start("n2")
    first.rounds()

    def slow(call: Call) -> None:
        if call.write is not None:
            first.clock.move_to(first.clock.now() + 0.05)
            second.rounds()

    first.store.chooses = slow
    names = [f"spout-{number}" for number in range(100)]
    specs = tuple(ComponentSpec(name, "spout", 1, {}, {"default": StreamSpec(("line",))}) for name in names)
    large = Topology("large", {}, specs, dict.fromkeys(names, b"no pickle"))
    before = first.clock.now()
    record = first.control.lead(lambda nimbus: nimbus.submit(Submission(large, defaults(), {})))
    assert record.state == "ACTIVE" and first.clock.now() > before + 6.0, "longer than a session"
    assert first.control.leading and not second.control.leading and len(first.made) == 1
