"""One of two candidates leads; the previous leader stops by its own clock, and its late writes are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.leadership import GuardedStore, Leadership
from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Conflict, Deposed, Exists, Guard, Unavailable
from tests.squall.cluster.short_sessions import SESSION, Session


@dataclass
class Candidate:
    store: Session
    clock: ManualClock
    leadership: Leadership

    def round(self) -> Guard | None:
        return self.leadership.round(self.clock.now())

    def leads(self) -> bool:
        return self.leadership.leading(self.clock.now())

    def loses_its_place(self) -> None:
        """Its session expires and another begins: its ephemeral values are gone, and it has not noticed yet."""
        with self.store._tree.lock:
            self.store._tree.remove(paths.LEADER)

    def guarded(self, guard: Guard) -> GuardedStore:
        return GuardedStore(self.store, guard, self.leads)


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


Join = Callable[[str], Candidate]


@pytest.fixture
def join(store: InMemoryStore, clock: ManualClock) -> Iterator[Join]:
    def joined(name: str) -> Candidate:
        session = Session(store)
        return Candidate(session, clock, Leadership(session, name, clock))

    yield joined


def test_the_first_candidate_leads_and_the_second_is_standby(join: Join) -> None:
    one, two = join("one"), join("two")
    assert one.round() is not None
    assert two.round() is None
    assert (one.leads(), two.leads()) == (True, False)
    assert one.leadership.leader() == two.leadership.leader() == "one"


def test_a_leader_goes_on_leading_with_the_same_guard(join: Join) -> None:
    one = join("one")
    guard = one.round()
    for _ in range(30):
        one.clock.move_to(one.clock.now() + 1)
        assert one.round() == guard


def test_between_two_checks_the_store_is_not_asked(join: Join) -> None:
    one = join("one")
    one.round()
    one.round()  # its own writes made it check again
    one.store.calls.clear()
    for _ in range(10):
        one.round()
    assert one.store.calls == []
    assert one.leadership.next_time(one.clock.now()) == one.clock.now() + SESSION / 6


def test_the_end_of_the_leaders_session_wakes_the_standby(join: Join) -> None:
    one, two = join("one"), join("two")
    first = one.round()
    two.round()
    two.round()
    assert two.leadership.next_time(two.clock.now()) > two.clock.now()
    one.store.close()
    assert two.leadership.next_time(two.clock.now()) == two.clock.now()
    second = two.round()
    assert second is not None and first is not None and second.version > first.version


def test_a_leader_without_answers_stops_by_its_clock_before_its_session_can_end(join: Join) -> None:
    one = join("one")
    guard = one.round()
    start = one.clock.now()
    one.store.away = True
    one.clock.move_to(start + 0.59 * SESSION)
    assert one.round() == guard
    one.clock.move_to(start + 0.61 * SESSION)
    assert not one.leads()
    assert one.round() is None


def test_the_term_counts_from_the_request_and_not_from_the_answer(join: Join) -> None:
    one = join("one")
    one.round()
    clock, store = one.clock, one.store
    asked = clock.now() + SESSION / 6
    clock.move_to(asked)
    owns = InMemoryStore.owns

    def slow(path: str) -> bool:
        answer = owns(store, path)
        clock.move_to(asked + 3)
        return answer

    store.owns = slow  # type: ignore[method-assign]
    assert one.round() is not None
    assert one.leadership.leading(asked + 0.59 * SESSION)
    assert not one.leadership.leading(asked + 0.61 * SESSION)


def test_a_term_counts_from_the_request_for_the_place(join: Join) -> None:
    one = join("one")
    start = one.clock.now()
    create = InMemoryStore.create

    def slow(path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        version = create(one.store, path, data, ephemeral, guard)
        one.clock.move_to(start + 3)
        return version

    one.store.create = slow  # type: ignore[method-assign]
    assert one.round() is not None
    assert one.leadership.leading(start + 0.59 * SESSION)
    assert not one.leadership.leading(start + 0.61 * SESSION)


def test_an_answer_later_than_a_term_makes_no_leader(join: Join) -> None:
    one = join("one")
    one.round()
    one.clock.move_to(one.clock.now() + SESSION / 6)
    owns = InMemoryStore.owns

    def slow(path: str) -> bool:
        answer = owns(one.store, path)
        one.clock.move_to(one.clock.now() + 0.61 * SESSION)
        return answer

    one.store.owns = slow  # type: ignore[method-assign]
    assert one.round() is None


def test_a_candidate_with_the_place_but_without_the_epoch_tries_again_at_once(join: Join) -> None:
    one = join("one")
    one.store.lose_answer_of = "create"
    assert one.round() is None, "the place is its own without its knowledge"
    create = one.store.create

    def overtaken(path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        if path == paths.EPOCH:
            raise Exists(path)
        return create(path, data, ephemeral, guard)

    one.store.create = overtaken  # type: ignore[method-assign]
    assert one.round() is None
    assert one.leadership.next_time(one.clock.now()) == one.clock.now()
    one.store.create = create  # type: ignore[method-assign]
    assert one.round() is not None


def test_a_new_leader_reads_nothing_that_was_cached_before(store: InMemoryStore, clock: ManualClock) -> None:
    class Remembers(Session):
        fresh_after: Final[list[list[str]]] = []

        def fresh(self) -> None:
            self.fresh_after.append(list(self.calls))

    session = Remembers(store)
    assert Leadership(session, "one", clock).round(clock.now()) is not None
    assert session.fresh_after == [["create", "create"]], "place and epoch are its own by then"


def test_a_leader_frozen_past_its_term_does_not_lead_in_it_even_when_the_store_answers_again(
    join: Join,
) -> None:
    one = join("one")
    first = one.round()
    one.clock.move_to(one.clock.now() + 0.9 * SESSION)
    second = one.round()  # the session lives, so it leads again: with another guard, in another term
    assert first is not None and second is not None and second.version > first.version
    with pytest.raises(Deposed):
        one.guarded(first).put("/a", b"late")


def test_writes_of_a_superseded_leader_are_refused_even_if_its_clock_stops(join: Join) -> None:
    one, two = join("one"), join("two")
    old = one.round()
    assert old is not None
    late = GuardedStore(one.store, old, lambda: True)
    late.put("/a", b"in time")
    one.leadership.resign()
    assert two.round() is not None
    for write in (
        lambda: late.put("/a", b"late"),
        lambda: late.create("/b", b"late"),
        lambda: late.delete("/a"),
    ):
        with pytest.raises(Deposed):
            write()
    assert two.store.get("/a") is not None and two.store.get("/b") is None


def test_a_guarded_store_refuses_writes_after_its_term_and_still_reads(join: Join) -> None:
    one = join("one")
    guard = one.round()
    assert guard is not None
    guarded = one.guarded(guard)
    guarded.put("/a", b"x")
    one.clock.move_to(one.clock.now() + SESSION)
    with pytest.raises(Deposed, match="does not lead any more"):
        guarded.put("/a", b"y")
    assert guarded.get("/a") == (b"x", 0)
    assert guarded.children("/") == ["a", "leadership"]
    with pytest.raises(ValueError, match="guard"):
        guarded.put("/a", b"y", guard=Guard("/b", 0))


def test_a_leader_whose_session_ended_steps_down_and_may_win_again(join: Join) -> None:
    one = join("one")
    first = one.round()
    one.loses_its_place()
    one.store._tree.notify(paths.LEADER)
    second = one.round()
    assert first is not None and second is not None and second.version > first.version


@pytest.mark.parametrize("call", ["create", "put", "owns"])
def test_a_call_that_was_done_without_an_answer_costs_no_leadership(join: Join, call: str) -> None:
    one, two = join("one"), join("two")
    two.round()
    two.leadership.resign()  # there is an epoch already
    one.store.lose_answer_of = call
    one.round()
    for _ in range(3):
        one.clock.move_to(one.clock.now() + SESSION / 6)
        guard = one.round()
    assert guard is not None
    one.guarded(guard).put("/a", b"x")


def test_a_write_of_the_epoch_of_an_earlier_place_is_refused(join: Join) -> None:
    one, two = join("one"), join("two")
    taken = InMemoryStore.create

    def create(path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        version = taken(one.store, path, data, ephemeral, guard)
        if path == paths.LEADER:  # frozen right after it won, until its session is over and another leads
            one.loses_its_place()
            assert two.round() is not None
        return version

    one.store.create = create  # type: ignore[method-assign]
    assert one.round() is None
    assert not one.leads()
    assert two.leads()


def test_a_leader_whose_name_was_overwritten_writes_it_again(join: Join) -> None:
    one = join("one")
    first = one.round()
    one.store.put(paths.LEADER, b"\xff nonsense")
    assert one.round() == first
    assert one.leadership.leader() == "one", "supervisors find the leader"


def test_another_candidates_epoch_ends_a_term(join: Join) -> None:
    one = join("one")
    first = one.round()
    one.store.put(paths.EPOCH, b"somebody")
    second = one.round()
    assert first is not None and second is not None and second.version > first.version + 1


def test_a_nimbus_with_a_reason_does_not_try_to_lead_and_reports_it_once(
    store: InMemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    reasons: list[str | None] = ["lacks file 1234"]
    session = Session(store)
    leadership = Leadership(session, "one", clock, lambda: reasons[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.move_to(clock.now() + SESSION)
            assert leadership.round(clock.now()) is None
    assert [record.getMessage() for record in caplog.records] == ["Nimbus one does not lead: lacks file 1234"]
    assert store.get(paths.LEADER) is None
    reasons[0] = None
    clock.move_to(clock.now() + SESSION)
    assert leadership.round(clock.now()) is not None


def test_a_reason_that_arises_before_the_term_begins_frees_the_place(
    store: InMemoryStore, clock: ManualClock
) -> None:
    reasons: list[str | None] = [None]
    session = Session(store)
    session.lose_answer_of = "create"
    leadership = Leadership(session, "one", clock, lambda: reasons[0])
    assert leadership.round(clock.now()) is None
    assert store.get(paths.LEADER) is not None
    reasons[0] = "lacks its keys"
    leadership.round(clock.now())
    assert store.get(paths.LEADER) is None


def test_a_leader_that_steps_aside_makes_room_at_once_and_may_lead_again(join: Join) -> None:
    one, two = join("one"), join("two")
    first = one.round()
    two.round()
    one.leadership.step_aside("lacks its keys")
    assert first is not None and not one.leads()
    second = two.round()
    assert second is not None and second.version > first.version
    two.leadership.step_aside("enough")
    assert one.round() is not None


def test_a_leader_that_resigns_makes_room_at_once_and_is_no_candidate_any_more(join: Join) -> None:
    one, two = join("one"), join("two")
    one.round()
    two.round()
    one.leadership.resign()
    assert not one.leads()
    assert two.round() is not None
    assert one.round() is None
    assert one.leadership.next_time(0.0) == float("inf")


def test_resigning_while_the_store_is_away_raises_nothing(join: Join) -> None:
    one = join("one")
    one.round()
    one.store.away = True
    one.leadership.resign()
    assert not one.leads()


def test_a_restarted_nimbus_does_not_wait_for_its_predecessors_session(join: Join) -> None:
    before, after = join("one"), join("one")
    old = before.round()
    assert old is not None
    assert after.round() is not None
    with pytest.raises(Deposed):
        GuardedStore(before.store, old, lambda: True).put("/a", b"late")
    before.round()
    assert (before.leads(), after.leads()) == (False, True)  # and they do not go on taking turns


def test_without_the_store_the_leader_is_unknown(join: Join) -> None:
    one = join("one")
    one.store.away = True
    assert one.round() is None
    with pytest.raises(Unavailable):
        one.leadership.leader()


def test_a_write_over_an_old_version_is_a_conflict_for_a_leader_too(join: Join) -> None:
    one = join("one")
    guard = one.round()
    assert guard is not None
    guarded = one.guarded(guard)
    guarded.create("/a", b"x")
    guarded.put("/a", b"y")
    with pytest.raises(Conflict):
        guarded.put("/a", b"z", 0)


def test_work_longer_than_a_term_does_not_end_it_while_the_store_answers(join: Join) -> None:
    one, two = join("one"), join("two")
    guard = one.round()
    assert guard is not None
    guarded = GuardedStore(one.store, guard, one.leadership.keeps_leading)
    for number in range(100):
        one.clock.move_to(one.clock.now() + 0.05 * SESSION)
        guarded.put("/a", str(number).encode())
        assert two.round() is None
    assert one.store.calls.count("owns") <= 100, "it is not asked before each write"
    assert one.round() == guard


def test_work_longer_than_a_term_ends_it_when_the_store_does_not_answer(join: Join) -> None:
    one = join("one")
    guard = one.round()
    assert guard is not None
    one.store.away = True
    one.clock.move_to(one.clock.now() + 0.59 * SESSION)
    assert one.leadership.keeps_leading()
    one.clock.move_to(one.clock.now() + 0.02 * SESSION)
    assert not one.leadership.keeps_leading()
    one.store.away = False
    one.clock.move_to(one.clock.now() + SESSION / 6)
    assert not one.leadership.keeps_leading(), "an ended term does not resume in the middle of work"


def test_a_session_lost_in_the_middle_of_work_ends_the_term(join: Join) -> None:
    one = join("one")
    guard = one.round()
    assert guard is not None
    one.loses_its_place()
    one.clock.move_to(one.clock.now() + SESSION / 6)
    with pytest.raises(Deposed):
        GuardedStore(one.store, guard, one.leadership.keeps_leading).put("/a", b"late")
