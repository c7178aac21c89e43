"""Errors that a worker process reports have the time of day of its host, and keep it."""

from __future__ import annotations

from dataclasses import replace

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.reports.error_reports import ErrorReport
from worker.process.wall_clock import WallClock, with_wall_clock

REPORT = ErrorReport("words", "count", 4, "execute", "ValueError: no", "mine.py:3", (), None, 100.5)


class Clocks:
    """The worker's clock, and the wall clock."""

    def __init__(self) -> None:
        self.worker, self.wall = 100.0, 1_700_000_000.0

    def wall_clock(self) -> WallClock:
        return WallClock(lambda: self.worker, lambda: self.wall)

    def go(self, seconds: float, wall: float | None = None) -> None:
        self.worker += seconds
        self.wall += seconds if wall is None else wall


def counters() -> WorkerCounters:
    components = {"lines": ComponentCounters(first_failure=(101.0, "lost")), "count": ComponentCounters()}
    return WorkerCounters(components, (REPORT,), 3)


def test_errors_and_first_failures_have_the_time_of_day() -> None:
    found = with_wall_clock(counters(), Clocks().wall_clock())
    assert found.reports == (replace(REPORT, time=1_700_000_000.5),)
    assert found.components["lines"].first_failure == (1_700_000_001.0, "lost")
    assert found.components["count"].first_failure is None
    assert found.number == 3


def test_the_same_error_keeps_its_time_from_one_reading_to_the_next() -> None:
    clocks = Clocks()
    wall_clock = clocks.wall_clock()
    first = with_wall_clock(counters(), wall_clock)
    clocks.go(3600.0, wall=3600.3)  # no two clocks run at the same speed
    assert with_wall_clock(counters(), wall_clock) == first


def test_times_follow_the_hosts_clock_when_it_is_set() -> None:
    clocks = Clocks()
    wall_clock = clocks.wall_clock()
    clocks.go(1.0, wall=3601.0)
    assert with_wall_clock(counters(), wall_clock).reports[0].time == 1_700_003_600.5
    clocks.go(1.0, wall=-7199.0)
    assert with_wall_clock(counters(), wall_clock).reports[0].time == 1_699_996_400.5
