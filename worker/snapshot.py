"""The counters of a worker at one moment, read from its tasks: worker -> `WorkerCounters`.

Reads only, so it may be called from any thread while the worker runs.
Must not know: how workers are driven, where counters go.
"""

from __future__ import annotations

from itertools import count

from squall.cluster.counters import ComponentCounters, WorkerCounters, add_metrics
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.worker import Worker

#: Readings of all workers of this process, in the order in which they were begun.
_numbers = count(1)


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
