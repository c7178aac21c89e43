"""Turns the times of a worker's clock into wall-clock time, so that errors of several hosts can be sorted by time.

Must not know: how counters are read, where they go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import structs

from squall.cluster.counters import WorkerCounters
from squall.epoch_status import EpochReport

#: If the wall clock differs from the predicted time by more than these seconds, it was changed, and is read again.
_CHANGED_SECONDS: Final = 0.5


class WallClock:
    """Converts times of a worker's clock. The same time gives the same result until someone changes the wall clock."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._ahead = wall_clock() - clock()

    def refresh(self) -> None:
        """Check whether the wall clock was changed."""
        ahead = self._wall_clock() - self._clock()
        if abs(ahead - self._ahead) > _CHANGED_SECONDS:
            self._ahead = ahead

    def time_of(self, moment: float) -> float:
        """Return the wall-clock time of a moment."""
        return moment + self._ahead


def with_wall_clock(counters: WorkerCounters, clock: WallClock) -> WorkerCounters:
    """Return the same counters, with the times of errors, first failures, outages, calls and epochs as wall-clock time."""
    clock.refresh()
    for component in counters.components.values():
        if component.first_failure is not None:
            when, why = component.first_failure
            component.first_failure = clock.time_of(when), why
        for task, (since, error) in component.down.items():
            component.down[task] = clock.time_of(since), error
        for task, tried in component.undecided.items():
            until = None if tried.until is None else clock.time_of(tried.until)
            component.undecided[task] = replace(tried, since=clock.time_of(tried.since), until=until)
        for task, load in component.loads.items():
            if load.call_since is not None:
                component.loads[task] = replace(load, call_since=round(clock.time_of(load.call_since), 3))
    reports = tuple(replace(report, time=clock.time_of(report.time)) for report in counters.reports)
    epochs = None if counters.epochs is None else epochs_with_wall_clock(counters.epochs, clock)
    return structs.replace(counters, reports=reports, epochs=epochs)


def epochs_with_wall_clock(report: EpochReport, clock: WallClock) -> EpochReport:
    """Return the same report, with its times as wall-clock time."""

    def time_of(moment: float | None) -> float | None:
        return None if moment is None else round(clock.time_of(moment), 3)

    waits = tuple(replace(wait, since=round(clock.time_of(wait.since), 3)) for wait in report.waits)
    lead = report.lead
    if lead is not None:
        times = {name: time_of(getattr(lead, name)) for name in ("committed", "rewound", "since")}
        lead = structs.replace(lead, **times)
    return EpochReport(lead, waits)
