"""The timing wheel: a slot is due between T and 1.1 T after its last stamp, and memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.tracking.timing_wheel import TimingWheel

SLOTS = 6
#: Steps: how much time passes (in timeouts), the slots that are stamped, whether the wheel turns then.
STEPS = st.lists(
    st.tuples(st.floats(0, 2.5), st.lists(st.integers(0, SLOTS - 1), max_size=4), st.booleans()), max_size=40
)
SLACK = 1e-9


def made(timeout: float, now: float = 0.0) -> TimingWheel:
    """A wheel with room for a few slots."""
    wheel = TimingWheel(timeout, now)
    wheel.grow(SLOTS)
    return wheel


def entries(wheel: TimingWheel) -> list[int]:
    """All slots in the wheel."""
    return [slot for spoke in wheel.spokes for slot in spoke]


@given(st.floats(0.5, 1000), st.floats(0, 1e6), STEPS)
def test_a_slot_is_due_between_1_and_1_1_timeouts_after_its_last_stamp(
    timeout: float, start: float, steps: list[tuple[float, list[int], bool]]
) -> None:
    wheel = made(timeout, start)
    now, last = start, dict[int, float]()
    for passed, stamped, turn in steps:
        now += passed * timeout
        wheel.set_time(now)
        if turn:
            slack = SLACK * max(1.0, now)
            due = wheel.due()
            assert len(due) == len(set(due))
            for slot in due:
                assert now - last.pop(slot) >= timeout - slack, "too early"
            for slot, stamp in last.items():
                assert now - stamp < 1.1 * timeout + slack, f"slot {slot} is overdue"
        for slot in stamped:
            wheel.stamp(slot)
            last[slot] = now
        assert sorted(entries(wheel)) == sorted(last)


@given(STEPS)
def test_a_slot_is_in_the_wheel_once_however_often_it_is_stamped(
    steps: list[tuple[float, list[int], bool]],
) -> None:
    wheel = made(10.0)
    now = 0.0
    for passed, stamped, turn in steps:
        now += passed
        wheel.set_time(now)
        for slot in stamped * 20:
            wheel.stamp(slot)
        if turn:
            wheel.due()
        assert len(entries(wheel)) == len(set(entries(wheel))) <= SLOTS


def test_checks_every_half_tick_find_a_slot_within_1_1_timeouts() -> None:
    for offset in range(40):
        wheel = made(10.0)
        stamp = offset / 40 * 0.5 + 3.0
        wheel.set_time(stamp)
        wheel.stamp(2)
        now = stamp
        while True:
            now += 0.25
            wheel.set_time(now)
            if due := wheel.due():
                break
        assert due == [2]
        assert 10.0 <= now - stamp <= 11.0


def test_a_slot_that_is_stamped_repeatedly_is_never_due() -> None:
    wheel = made(10.0)
    for tick in range(1000):
        wheel.set_time(tick * 5.0)
        wheel.stamp(0)
        assert wheel.due() == []


def test_after_a_pause_of_any_length_all_overdue_slots_are_due_at_once() -> None:
    wheel = made(10.0)
    for slot in range(SLOTS):
        wheel.set_time(slot * 1.0)
        wheel.stamp(slot)
    wheel.set_time(1_000_000.0)
    assert sorted(wheel.due()) == list(range(SLOTS))
    assert entries(wheel) == []


def test_a_stamp_at_the_end_of_a_pause_counts() -> None:
    wheel = made(10.0)
    wheel.stamp(0)
    wheel.stamp(1)
    wheel.set_time(500.0)
    wheel.stamp(1)
    assert wheel.due() == [0]
    wheel.set_time(509.9)
    assert wheel.due() == []
    wheel.set_time(511.0)
    assert wheel.due() == [1]


def test_time_that_runs_backwards_expires_nothing_early() -> None:
    wheel = made(10.0, now=100.0)
    wheel.set_time(90.0)
    wheel.stamp(0)
    wheel.set_time(109.0)
    assert wheel.due() == []
    wheel.set_time(111.0)
    assert wheel.due() == [0]
