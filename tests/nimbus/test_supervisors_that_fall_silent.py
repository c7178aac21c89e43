"""Topologies of a supervisor that falls silent, as transcripts; the timeout is 30 seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nimbus.leader.master import Nimbus
from nimbus.placement.supervisors import Supervisors
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from tests.nimbus.transcripts import Play

IDS = ["s1", "s2", "s3"]


def test_a_supervisor_without_any_heartbeat_is_never_given_up(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1000 tick
        = nothing changes
        @ 100000 tick
        = nothing changes
    """)


def test_the_workers_of_a_silent_supervisor_are_superseded_and_the_others_stay(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; supervisor s2 slots=1; submit words tasks=4 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w2 s2/0 (1,0): 2 4
        @ 5 heard s1
        = nothing changes
        @ 5 heard s2
        = nothing changes
        @ 20 ticks
        = nothing changes
        @ 20 heard s1
        = nothing changes
        @ 34.5 ticks
        = nothing changes
        @ 35 tick
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w3 s1/1 (2,0): 2 4
          note: s2 was given up: no heartbeat for 30 s; its workers (w2) are placed elsewhere
        @ 36 report words w2 opened
        ! refused
    """)


def test_only_topologies_with_workers_on_a_silent_host_report_its_loss(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit first tasks=1; lose s1; supervisor s2 slots=2 beats; submit second tasks=1
        first ACTIVE
          w1 s2/0 (2,0): 1
        second ACTIVE
          w1 s2/1 (3,0): 1
        @ 1 supervisor s1 slots=1; submit third tasks=1
        first ACTIVE
          w1 s2/0 (2,0): 1
        second ACTIVE
          w1 s2/1 (3,0): 1
        third ACTIVE
          w1 s1/0 (4,0): 1
        @ 30 ticks
        first ACTIVE
          note: s2 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        second ACTIVE
          note: s2 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        third ACTIVE
          w1 s1/0 (4,0): 1
    """)


def test_a_supervisor_that_is_heard_again_has_its_slots_back(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; heard s1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 30 ticks
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 40 heard s1
        words ACTIVE
          w1 s1/0 (2,0): 1
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 69.5 ticks
        = nothing changes
        @ 69.5 heard s1
        = nothing changes
        @ 99 ticks
        = nothing changes
        @ 100 tick
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
    """)


def test_a_late_heartbeat_brings_back_no_supervisor_that_left_in_good_order(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; heard s1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 30 ticks
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 31 heard s1
        words ACTIVE
          w1 s1/0 (2,0): 1
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 32 lose s1
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 33 heard s1
        = nothing changes
    """)


def test_a_kill_does_not_wait_for_workers_of_a_silent_supervisor(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; heard s1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words wait=0
        words KILLED until 1
          leaving w1 s1/0 (1,0): 1
        @ 29.5 ticks
        = nothing changes
        @ 30 tick
        no topology
    """)


def test_a_new_nimbus_gives_live_supervisors_the_whole_time_to_be_heard(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1 beats; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 25 another nimbus
        = nothing changes
        @ 54.5 ticks
        = nothing changes
        @ 55 tick
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
    """)


def test_a_nimbus_that_slept_waits_for_heartbeats_before_it_gives_up_supervisors(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; heard s1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1000 tick
        = nothing changes
        @ 1007 ticks
        = nothing changes
        @ 1007 heard s1
        = nothing changes
        @ 1036.5 ticks
        = nothing changes
        @ 1037 tick
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 1038 heard s1
        words ACTIVE
          w1 s1/0 (2,0): 1
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
        @ 2000 tick
        = nothing changes
        @ 2008 ticks
        words ACTIVE
          note: s1 was given up: no heartbeat for 30 s; its workers (w1) are placed elsewhere
    """)


def test_a_supervisor_that_registered_again_meanwhile_keeps_its_record() -> None:
    clock = ManualClock()
    registry = Registry(InMemoryStore())
    nimbus = Nimbus(registry.store, clock, supervisor_timeout_secs=4)
    registry.supervisors.put(SupervisorRecord("s1", "host", 1))
    nimbus.heard("s1")
    for second in range(1, 5):
        clock.move_to(second)
        nimbus.tick()
    assert registry.all_supervisors() == []
    bigger = SupervisorRecord("s1", "host", 8)
    registry.supervisors.put(bigger)
    nimbus.heard("s1")
    assert registry.all_supervisors() == [bigger]


def test_nimbus_knows_when_to_check_next_and_finds_a_dead_supervisor_by_checking_only_then() -> None:
    clock = ManualClock()
    registry = Registry(InMemoryStore())
    nimbus = Nimbus(registry.store, clock)
    registry.supervisors.put(SupervisorRecord("s1", "host", 1))
    nimbus.tick()
    assert nimbus.due is None
    nimbus.heard("s1")
    nimbus.tick()
    looks = 0
    while registry.all_supervisors():
        assert nimbus.due is not None
        clock.move_to(nimbus.due)
        nimbus.tick()
        looks += 1
    assert looks <= 2
    assert clock.now() <= 30 * 1.25
    assert nimbus.due is None


@given(
    st.lists(
        st.tuples(st.floats(0, 2.5) | st.floats(0, 40), st.lists(st.sampled_from(IDS), max_size=3)),
        max_size=30,
    )
)
def test_a_supervisor_that_was_heard_is_never_given_up_and_a_silent_one_is(
    moments: list[tuple[float, list[str]]],
) -> None:
    there = [SupervisorRecord(name, name, 1, beats=True) for name in IDS]
    now = 0.0
    heartbeats = Supervisors(Registry(InMemoryStore()), 10, now)
    listened = dict.fromkeys(
        IDS, 0.0
    )  # how long Nimbus has listened since it heard a supervisor, absences not counted
    heard = dict.fromkeys(IDS, now)
    assert heartbeats.silent(there, now) == []
    for pause, names in moments:
        now += pause
        heartbeats.tick(now)
        for name in IDS:
            # After an absence every supervisor has at least a quarter of the timeout.
            listened[name] = listened[name] + pause if pause <= 2.5 else min(listened[name], 7.5)
        silent = {record.id for record in heartbeats.silent(there, now)}
        for name in IDS:
            if now - heard[name] < 10:
                assert name not in silent
            if pause > 2.5:
                assert name not in silent, "no supervisor had a moment to be heard"
            if listened[name] >= 10:
                assert name in silent
        for name in names:
            heartbeats.heard(name, now)
            heard[name], listened[name] = now, 0.0


def test_heartbeats_of_a_removed_supervisor_are_forgotten() -> None:
    heartbeats = Supervisors(Registry(InMemoryStore()), 30, 0)
    heartbeats.heard("s1", 0)
    assert heartbeats.due == 30
    assert heartbeats.silent([], 1) == []
    assert heartbeats.due is None


def test_a_supervisor_that_is_present_is_not_given_up_while_connections_are_turned_away() -> None:
    store = InMemoryStore()
    registry = Registry(store)
    records = [SupervisorRecord(name, name, 1, beats=True) for name in ("gone", "shut-out")]
    for record in records:
        registry.supervisors.put(record)
    store.create(paths.presence("shut-out"), b"there")
    turned_away = now = 0
    heartbeats = Supervisors(registry, 30, 0, lambda: turned_away)
    assert not heartbeats.give_up(records, (), 0)

    def listen_until(end: int, flood: bool) -> None:
        nonlocal turned_away, now
        while now < end:
            now += 1
            turned_away += flood
            heartbeats.tick(now)
            heartbeats.give_up(registry.all_supervisors(), (), now)
            assert not heartbeats.silent(registry.all_supervisors(), now), "else the leader would spin"

    listen_until(100, flood=True)
    assert [record.id for record in registry.all_supervisors()] == ["shut-out"], "the other host is gone"
    listen_until(129, flood=False)
    assert registry.all_supervisors(), "after the flood it has the whole timeout"
    listen_until(140, flood=False)
    assert not registry.all_supervisors() and set(heartbeats.given_up) == {"gone", "shut-out"}
