"""A call that is to be alone runs beside no other, in whatever threads they are, and nothing waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from worker.tasks.lone_calls import LoneCalls

CAP = 60.0


def in_a_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_lone_call_waits_for_the_others_and_the_next_ones_wait_for_it() -> None:
    calls, steps = LoneCalls(), list[str]()
    alone, ends = threading.Event(), threading.Event()

    def suspect() -> None:
        calls.enter(True, CAP)
        steps.append("alone")
        alone.set()
        ends.wait(CAP)
        steps.append("left")
        calls.leave(True)

    def neighbour() -> None:
        calls.enter(False, CAP)
        steps.append("beside")
        calls.leave(False)

    calls.enter(False, 0.0)
    first = in_a_thread(suspect)
    assert not alone.wait(0.05) and steps == []
    calls.leave(False)
    assert alone.wait(CAP)
    second = in_a_thread(neighbour)
    second.join(0.05)
    assert steps == ["alone"]
    ends.set()
    first.join(CAP)
    second.join(CAP)
    assert steps == ["alone", "left", "beside"]


def test_calls_run_beside_each_other_otherwise() -> None:
    calls, meet = LoneCalls(), threading.Barrier(3)

    def neighbour() -> None:
        calls.enter(False, CAP)
        meet.wait(CAP)
        calls.leave(False)

    for thread in [in_a_thread(neighbour) for _ in range(3)]:
        thread.join(CAP)
        assert not thread.is_alive()
    assert not meet.broken


def test_patience_ends_and_what_has_begun_without_it_is_counted() -> None:
    calls, began = LoneCalls(), threading.Event()
    calls.enter(False, 0.0)
    calls.enter(True, 0.01)
    calls.enter(False, 0.01)

    def suspect() -> None:
        calls.enter(True, CAP)
        began.set()
        calls.leave(True)

    thread = in_a_thread(suspect)
    for alone in (False, True):
        calls.leave(alone)
        assert not began.wait(0.02)
    calls.leave(False)
    assert began.wait(CAP)
    thread.join(CAP)
