"""How long a task's calls take: no slow call is lost in an average, and the busy share follows the last ten seconds."""

from __future__ import annotations

import pytest

from worker.tasks.work_time import SPAN, WorkTime


def test_a_slow_call_among_fast_ones_is_seen() -> None:
    work = WorkTime(0.0)
    for _ in range(9):
        work.took(10, 0.001)
    work.took(10, 0.5009)  # nine calls of 0.1 ms, and one of 0.5 s
    assert work.calls.count == 100
    assert work.calls.percentile(50) == pytest.approx(0.0001, rel=0.02)
    assert work.calls.percentile(100) == pytest.approx(0.5, rel=0.02)


def test_calls_that_are_all_slow_are_counted_as_such() -> None:
    work = WorkTime(0.0)
    work.took(8, 4.0)
    assert work.calls.percentile(50) == pytest.approx(0.5, rel=0.02)
    assert work.calls.percentile(99) == pytest.approx(0.5, rel=0.02)


def test_a_run_without_calls_counts_nothing() -> None:
    work = WorkTime(0.0)
    work.took(0, 1.0)
    assert (work.calls.count, work.seconds) == (0, 0.0)


def test_the_busy_share_is_that_of_the_last_seconds() -> None:
    work = WorkTime(0.0)
    assert work.share(0.1, 0.0) is None
    for second in range(1, 31):
        work.took(1, 0.5)
        share = work.share(float(second), 0.0)
    assert share == pytest.approx(0.5)
    for second in range(31, 31 + int(SPAN) + 1):
        share = work.share(float(second), 0.0)
    assert share == 0.0


def test_a_running_call_makes_its_task_busy() -> None:
    work = WorkTime(0.0)
    for second in range(1, 21):
        share = work.share(float(second), float(second))
    assert share == 1.0
    work.took(1, 20.0)  # the call returns: its time is not counted twice
    assert work.share(30.0, 0.0) == 0.0
