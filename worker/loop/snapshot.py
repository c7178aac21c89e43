"""The counters of a worker at one moment, read from its tasks: worker -> `WorkerCounters`.

Reads only, so it may be called from any thread while the worker runs. A worker's clock means nothing to anybody else: a
process has its times turned into the time of day of its host, so that errors of several hosts stand in their order.
Must not know: how workers are driven, where counters go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final

from squall.cluster.counters import ComponentCounters, WorkerCounters, add_metrics
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.worker import Worker

#: Readings of all workers of this process, in the order in which they were begun.
_numbers = count(1)


#: Seconds by which the time of day may differ from what was reckoned before it is looked at anew: it was set.
_SET_ANEW: Final = 0.5


class TimeOfDay:
    """Turns the times of a worker's clock into the time of day. The same time gives the same, until the clock is set anew."""

    def __init__(self, clock: Callable[[], float], time_of_day: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._time_of_day = time_of_day
        self._ahead = time_of_day() - clock()

    def look(self) -> None:
        """See whether the clock of the host was set anew."""
        ahead = self._time_of_day() - self._clock()
        if abs(ahead - self._ahead) > _SET_ANEW:
            self._ahead = ahead

    def of(self, moment: float) -> float:
        """The time of day of a moment."""
        return moment + self._ahead


def with_time_of_day(counters: WorkerCounters, time_of_day: TimeOfDay) -> WorkerCounters:
    """The same counters, with the times of errors and of first failures as others understand them."""
    time_of_day.look()
    for each in counters.components.values():
        if each.first_failure is not None:
            when, why = each.first_failure
            each.first_failure = time_of_day.of(when), why
    reports = tuple(replace(report, time=time_of_day.of(report.time)) for report in counters.reports)
    return replace(counters, reports=reports)


def worker_counters(worker: Worker) -> WorkerCounters:
    """What a worker has counted so far; how it is at this moment only while it has not been stopped."""
    number = next(_numbers)  # first: of two readings, the one that began later has seen more
    stopped = worker.stopped
    components = {spec.id: ComponentCounters() for spec in worker.plan.topology.components}
    tasks = list(worker.tasks.values())
    former = list(worker.former)  # read last: a task that goes meanwhile is in both
    for task in former:
        add_task(components[task.spec.id], task)
    for task in tasks:
        if task not in former:
            add_task(components[task.spec.id], task)
            add_present(components[task.spec.id], task, stopped)
    for component, log in worker.errors.items():
        components[component].errors = log.count
    for component, dropped in list(worker.links.dropped.items()):
        components[component].dropped = dropped
    reports = tuple(report for log in worker.errors.values() for report in list(log.kept))
    return WorkerCounters(components, reports, number)


def add_task(counters: ComponentCounters, task: Task) -> None:
    """Add what one task did."""
    counters.emitted += task.emitter.emitted
    counters.executed += task.executed
    counters.acked += task.acked
    counters.failed += task.failed
    add_metrics(counters.metrics, task.metrics.read_totals())
    if isinstance(task, SpoutTask):
        counters.replayed += task.replayed
        counters.latency.merge(task.latency)
        for reason, failures in list(task.given_up.items()):
            counters.failures[reason] = counters.failures.get(reason, 0) + failures
        firsts = [first for first in (counters.first_failure, task.first_failure) if first is not None]
        counters.first_failure = min(firsts, default=None)


def add_present(counters: ComponentCounters, task: Task, stopped: bool) -> None:
    """Add how one task is, or was when it ended."""
    add_metrics(counters.gauges, task.metrics.read_gauges())
    if isinstance(task, SpoutTask) and not stopped:
        counters.pending += task.pending
        reason = task.idle_reason()
        counters.idle[reason] = counters.idle.get(reason, 0) + 1
    elif (reason := task.waits_for) and not stopped:
        counters.idle[reason] = counters.idle.get(reason, 0) + 1
