"""The plan: each phase of a worker and each wish lead to one action, and finally to the wanted state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from supervisor.plan import (
    FIRST_DELAY,
    LONG_ENOUGH,
    LONGEST_DELAY,
    WHAT_TO_DO,
    Action,
    Backoff,
    DesiredState,
    Goal,
    Key,
    Phase,
    Running,
    Timeouts,
    after_death,
    phase_of,
    plan,
    soon,
)

W1, W2 = ("words-1", "w1"), ("words-1", "w2")
LIMITS = Timeouts(start=60.0, stop=10.0, signal=0.5, kill=1.0)
HERE = DesiredState(version=1, slot=0, stop=False, timeout=30.0)
ALIVE = Running(version=1, slot=0, life="alive", started=0.0, heard=99.0)
NOW = 100.0


def actions(want: DesiredState | None, run: Running | None, now: float = NOW) -> list[Action]:
    wanted = {} if want is None else {W1: want}
    running = {} if run is None else {W1: run}
    return [action for action, _ in plan(wanted, running, now, LIMITS)]


def test_the_table_has_an_action_for_every_phase_and_every_wish() -> None:
    assert set(WHAT_TO_DO) == {(phase, wish) for phase in Phase for wish in Goal}


@pytest.mark.parametrize(
    ("want", "run", "expected"),
    [
        pytest.param(HERE, None, [Action.START], id="wanted, not there"),
        pytest.param(None, None, [], id="neither wanted nor there"),
        pytest.param(structs.replace(HERE, stop=True), None, [], id="what is to end is not started for it"),
        pytest.param(HERE, ALIVE, [], id="wanted and alive"),
        pytest.param(None, ALIVE, [Action.STOP], id="alive and not wanted"),
        pytest.param(structs.replace(HERE, stop=True), ALIVE, [Action.STOP], id="its topology has ended"),
        pytest.param(
            structs.replace(HERE, version=2), ALIVE, [Action.STOP], id="another version of it is wanted"
        ),
        pytest.param(HERE, replace(ALIVE, life="found"), [Action.ADOPT], id="found and wanted"),
        pytest.param(None, replace(ALIVE, life="found"), [Action.ADOPT], id="found, not wanted: first ours"),
        pytest.param(HERE, replace(ALIVE, life="dead"), [Action.BURY], id="died"),
        pytest.param(None, replace(ALIVE, life="dead"), [Action.BURY], id="died, not wanted"),
        pytest.param(HERE, replace(ALIVE, life="none"), [Action.START], id="buried"),
        pytest.param(None, replace(ALIVE, life="none"), [Action.CLEAN], id="buried, not wanted"),
    ],
)
def test_wanted_and_present_workers_lead_to_these_actions(
    want: DesiredState | None, run: Running | None, expected: list[Action]
) -> None:
    assert actions(want, run) == expected


@pytest.mark.parametrize(
    ("run", "now", "expected"),
    [
        (replace(ALIVE, heard=70.1), NOW, []),
        (replace(ALIVE, heard=70.0), NOW, [Action.KILL]),
        (replace(ALIVE, heard=70.0, timeout=31.0), NOW, []),
        (replace(ALIVE, heard=None, started=40.1), NOW, []),
        (replace(ALIVE, heard=None, started=40.0), NOW, [Action.KILL]),
        # A long timeout of the topology applies to the start too.
        (replace(ALIVE, heard=None, started=40.0, timeout=90.0), NOW, []),
        (replace(ALIVE, heard=70.0, killed=99.5), NOW, []),
        (replace(ALIVE, heard=70.0, killed=99.0), NOW, [Action.KILL]),
    ],
)
def test_a_worker_without_heartbeats_is_killed_repeatedly(
    run: Running, now: float, expected: list[Action]
) -> None:
    assert actions(HERE, run, now) == expected


@pytest.mark.parametrize(("told", "expected"), [(90.1, []), (90.0, [Action.KILL])])
def test_a_worker_that_does_not_stop_within_the_grace_is_killed(told: float, expected: list[Action]) -> None:
    assert actions(None, replace(ALIVE, told_to_stop=told)) == expected


def test_a_worker_that_was_asked_to_stop_stops_even_if_it_is_wanted_again() -> None:
    assert actions(HERE, replace(ALIVE, told_to_stop=99.0)) == []
    assert actions(HERE, replace(ALIVE, told_to_stop=89.0)) == [Action.KILL]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (replace(ALIVE, behind=True), [Action.SIGNAL]),
        (replace(ALIVE, behind=True, signalled=99.6), []),
        (replace(ALIVE, behind=True, signalled=99.5), [Action.SIGNAL]),
        (replace(ALIVE, behind=True, told_to_stop=99.0), [Action.SIGNAL]),
        # Its handler may not be installed yet.
        (replace(ALIVE, behind=True, heard=None, started=99.0), []),
        (replace(ALIVE, behind=True, heard=None, started=99.0, told_to_stop=99.5), []),
        (replace(ALIVE, behind=True, killed=99.5), []),
    ],
)
def test_a_worker_is_signalled_until_it_has_read_its_orders_but_not_before_it_can_handle_signals(
    run: Running, expected: list[Action]
) -> None:
    assert actions(HERE, run) == expected


def test_a_worker_starts_after_the_previous_one_has_left_the_slot() -> None:
    wanted = {W2: structs.replace(HERE, version=2)}
    leaving = replace(ALIVE, told_to_stop=99.0)
    assert plan(wanted, {W1: leaving}, NOW, LIMITS) == []
    assert plan(wanted, {W1: replace(leaving, life="dead")}, NOW, LIMITS) == [(Action.BURY, W1)]
    assert plan(wanted, {W1: replace(leaving, life="none")}, NOW, LIMITS) == [
        (Action.CLEAN, W1),
        (Action.START, W2),
    ]


def test_a_worker_in_another_slot_delays_no_start() -> None:
    wanted = {W2: structs.replace(HERE, version=2, slot=1)}
    assert (Action.START, W2) in plan(wanted, {W1: replace(ALIVE, told_to_stop=99.0)}, NOW, LIMITS)


def test_a_worker_that_died_often_is_started_when_its_rest_is_over() -> None:
    resting = Running(1, 0, "none", backoff=Backoff(3, 90.0, 104.0))
    assert actions(HERE, resting, 103.9) == []
    assert actions(HERE, resting, 104.0) == [Action.START]
    assert actions(None, resting, 100.0) == [Action.CLEAN]


# Back-off


def test_the_first_start_is_immediate_and_then_the_rest_doubles_up_to_a_minute() -> None:
    backoff, now, delays = Backoff(), 1000.0, []
    for _ in range(10):
        backoff = after_death(backoff, now - 0.5, now)
        delays.append(backoff.not_before - now)
        now = backoff.not_before + 0.5
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert backoff.deaths == 10
    assert backoff.since == 1000.0


def test_a_worker_that_lived_long_enough_starts_the_count_again() -> None:
    often = Backoff(7, 900.0, 990.0)
    assert after_death(often, 1000.0 - LONG_ENOUGH, 1000.0) == Backoff(1, 1000.0, 1000.0)
    assert after_death(often, 1000.1 - LONG_ENOUGH, 1000.0).deaths == 8


def test_an_orderly_end_does_not_count_unless_it_comes_at_once() -> None:
    often = Backoff(3, 900.0, 990.0)
    assert after_death(often, 995.0, 1000.0, innocent=True) == Backoff(3, 900.0, 1000.0)
    assert after_death(often, 999.9, 1000.0, innocent=True).deaths == 4


@given(st.integers(0, 10**6), st.floats(0, 1e6), st.floats(0, LONG_ENOUGH - 0.001))
def test_no_rest_exceeds_the_longest(deaths: int, now: float, lived: float) -> None:
    backoff = after_death(Backoff(deaths, 0.0, 0.0), now - lived, now)
    assert now <= backoff.not_before <= now + LONGEST_DELAY
    assert deaths < 2 or backoff.not_before >= now + FIRST_DELAY - 1e-6


# Invariants

slots = st.integers(0, 2)
times = st.floats(0, 200)
maybe_times = st.none() | times
runs = st.builds(
    Running,
    version=st.integers(1, 2),
    slot=slots,
    life=st.sampled_from(["none", "found", "alive", "dead"]),
    timeout=st.sampled_from([1.0, 30.0]),
    started=times,
    heard=maybe_times,
    behind=st.booleans(),
    signalled=maybe_times,
    told_to_stop=maybe_times,
    killed=maybe_times,
    backoff=st.builds(Backoff, st.integers(0, 9), times, times),
)
wants = st.builds(
    DesiredState, version=st.integers(1, 2), slot=slots, stop=st.booleans(), timeout=st.just(30.0)
)
keys = st.sampled_from([W1, W2, ("words-1", "w3"), ("numbers-2", "w1")])


@given(st.dictionaries(keys, wants), st.dictionaries(keys, runs), times)
def test_in_any_situation_each_worker_gets_one_action_and_no_slot_two_workers(
    wanted: dict[Key, DesiredState], running: dict[Key, Running], now: float
) -> None:
    chosen = plan(wanted, running, now, LIMITS)
    assert len({key for _, key in chosen}) == len(chosen)
    assert all(action is not Action.KEEP for action, _ in chosen)
    taken = [run.slot for run in running.values() if run.life != "none"]
    started = [wanted[key].slot for action, key in chosen if action is Action.START]
    assert len({*started}) == len(started)
    assert not {*started} & {*taken}
    for action, key in chosen:
        if action is Action.SIGNAL:
            assert running[key].heard is not None and running[key].behind
        if action in (Action.STOP, Action.KILL, Action.SIGNAL):
            assert running[key].life == "alive"


class World:
    """Processes as the plan sees them: they obey at once, or only when killed, or die by themselves."""

    def __init__(self, running: dict[Key, Running], deaf: frozenset[Key]) -> None:
        self.running = running
        self.deaf = deaf
        self.now = 200.0

    def do(self, action: Action, key: Key, wanted: dict[Key, DesiredState]) -> None:
        if action is Action.START:
            want = wanted[key]
            self.running[key] = Running(want.version, want.slot, "alive", 30.0, self.now, self.now)
            return
        run = self.running[key]
        changes: dict[Action, dict[str, object]] = {
            Action.ADOPT: {"life": "alive", "started": self.now, "heard": self.now, "killed": None,
                           "told_to_stop": None},
            Action.SIGNAL: {"behind": False},
            Action.STOP: {"told_to_stop": self.now} if key in self.deaf else {"life": "dead"},
            Action.KILL: {"life": "dead"},
            Action.BURY: {"life": "none", "backoff": Backoff(1, self.now, self.now + 1)},
        }  # fmt: skip
        if action is Action.CLEAN:
            del self.running[key]
        else:
            self.running[key] = replace(run, **changes[action])  # type: ignore[arg-type]

    def turn(self, wanted: dict[Key, DesiredState]) -> None:
        for action, key in plan(wanted, self.running, self.now, LIMITS):
            self.do(action, key, wanted)
        self.now += 0.5
        for key, run in self.running.items():
            if run.life == "alive" and run.told_to_stop is None and run.killed is None:
                self.running[key] = replace(run, heard=self.now)


@given(
    st.dictionaries(keys, wants, max_size=3),
    st.dictionaries(keys, runs),
    st.frozensets(keys),
)
def test_from_any_situation_the_wanted_state_is_reached(
    wanted: dict[Key, DesiredState], running: dict[Key, Running], deaf: frozenset[Key]
) -> None:
    by_slot = {want.slot: key for key, want in wanted.items()}
    wanted = {key: wanted[key] for key in by_slot.values()}  # Nimbus gives a slot to one worker only
    world = World(
        {
            # A worker that keeps its incarnation keeps its slot.
            key: replace(run, slot=wanted[key].slot)
            if key in wanted and wanted[key].version == run.version
            else run
            for key, run in running.items()
        },
        deaf,
    )
    for _ in range(200):
        world.turn(wanted)
    alive = {key: run.version for key, run in world.running.items() if run.life == "alive"}
    assert alive == {key: want.version for key, want in wanted.items() if not want.stop}
    assert set(world.running) <= set(wanted)
    assert plan(wanted, world.running, world.now, LIMITS) == []


@given(runs, times)
def test_a_worker_with_a_pending_change_is_checked_again_soon(run: Running, now: float) -> None:
    at_rest = phase_of(run, now, LIMITS) in (Phase.ALIVE, Phase.NONE, Phase.RESTING) and not run.behind
    assert soon([run], now, LIMITS) is not at_rest
