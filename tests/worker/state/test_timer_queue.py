"""The queue of timers: it is in their order and as long as there are timers, whatever was moved, cancelled or undone."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from worker.state.table import NONE, StateTable
from worker.state.timers import SPARE_ENTRIES, KeyTimers

CALLS = 5_000


@pytest.fixture
def timers() -> KeyTimers:
    return KeyTimers(StateTable("here", lambda: 0.0))


def most_entries(timers: KeyTimers) -> int:
    return 2 * sum(map(len, timers.times.values())) + SPARE_ENTRIES


def test_a_timer_that_each_call_moves_to_a_later_time_has_one_entry(timers: KeyTimers) -> None:
    timers.put("idle", "gone", 60.0)
    for at in range(CALLS):
        timers.put("busy", "gone", 3600.0 + at)
        assert timers.next_time() == 60.0
    assert len(timers.queue) == 2


def test_timers_that_are_cancelled_leave_little_behind(timers: KeyTimers) -> None:
    timers.put("idle", "gone", 60.0)
    for order in range(CALLS):
        timers.put(order, "too late", 3600.0 + order)
        timers.cancel(order, "too late")
        assert timers.next_time() == 60.0
    assert len(timers.queue) <= most_entries(timers)


def test_a_timer_that_is_soon_and_late_in_turn_leaves_little_behind(timers: KeyTimers) -> None:
    timers.put("idle", "gone", 1.0)
    for at in range(CALLS):
        timers.put("busy", "next", 3600.0 + at)
        timers.put("busy", "next", 2.0)
    assert timers.next_time() == 1.0
    assert len(timers.queue) <= most_entries(timers)


@pytest.mark.parametrize("seed", range(20))
def test_timers_fire_in_the_order_of_their_times_whatever_was_done_to_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)
    monkeypatch.setattr("worker.state.timers.SPARE_ENTRIES", draw.choice([0, SPARE_ENTRIES]))
    table = StateTable("here", lambda: 0.0)
    timers = KeyTimers(table)
    wanted: dict[tuple[str, str], float] = {}
    now = 0.0
    for _ in range(2_000):
        key, name = draw.choice("abcdefgh"), draw.choice("xyz")
        before = {key: dict(names) for key, names in timers.times.items()}
        step = draw.randrange(8)
        if step == 0:
            now += draw.randrange(5)
            while (due := timers.due(now)) is not None:
                assert due.time == min(wanted.values())
                assert wanted.pop((due.key, due.name)) == due.time
                timers.cancel(due.key, due.name)
        elif step == 1:
            assert timers.cancel(key, name) == (wanted.pop((key, name), None) is not None)
        elif step == 2:  # a call that raises
            table.begin(key)
            timers.set(key, name, now + draw.randrange(20))
            timers.cancel(key, draw.choice("xyz"))
            table.undo()
        elif step == 3:  # return to a commit
            for other in "xyz":
                timers.put(key, other, now + draw.randrange(20))
            timers.cancel(draw.choice("abcdefgh"), name)
            timers.bring_back({each: (before[each], None) if each in before else NONE for each in "abcdefgh"})
        else:
            wanted[key, name] = now + draw.randrange(20)
            timers.put(key, name, wanted[key, name])
        assert timers.next_time() == min(wanted.values(), default=None)
        assert flat(timers.times) == wanted
        assert timers.count == len(wanted)


def flat(times: dict[Any, dict[str, float]]) -> dict[tuple[Any, str], float]:
    return {(key, name): time for key, names in times.items() for name, time in names.items()}
