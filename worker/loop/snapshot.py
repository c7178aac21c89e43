"""Reads the counters of a worker at one moment from its tasks: worker -> `WorkerCounters`.

This module changes nothing but its own last reading of a spout, so any thread may call it while the worker runs. Times are
those of the worker's clock; a process turns them into wall-clock time (`worker.process.wall_clock`).
Must not know: how workers are driven, where counters go.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from squall.cluster.counters import ComponentCounters, WorkerCounters, add_values
from squall.status import TaskLoad
from worker.errors.reports import short_line
from worker.loop.worker import Worker
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task

#: Seconds between two readings that say whether a spout emits: readings that are closer count as one, and after a longer pause
#: there is nothing to compare with.
SHORTEST_READING: Final = 0.5
LONGEST_READING: Final = 10.0
#: The source of the numbers of readings, for all workers of this process. A reading takes its number when it begins.
_numbers = count(1)
#: A call is shown once it has run for this many seconds.
LONG_CALL: Final = 1.0


def worker_counters(worker: Worker) -> WorkerCounters:
    """Return a worker's counters, and its present state if it has not been stopped."""
    number = next(_numbers)  # taken first: of two readings, the one with the higher number is the newer
    stopped = worker.stopped
    components = {spec.id: ComponentCounters() for spec in worker.plan.topology.components}
    tasks = list(worker.tasks.values())
    former = list(worker.table.former)  # read last: a task that is closed meanwhile is in both lists
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
    """Add the counters of one task."""
    counters.emitted += task.emitter.emitted
    counters.executed += task.executed
    counters.acked += task.acked
    counters.failed += task.failed
    counters.execute.merge(task.work.calls)
    add_values(counters.metrics, task.metrics.read_totals())
    if isinstance(task, SpoutTask):
        counters.replayed += task.replayed
        counters.attempts_failed += task.outages.attempts_failed
        counters.latency.merge(task.latency)
        for reason, failures in list(task.given_up.items()):
            counters.failures[reason] = counters.failures.get(reason, 0) + failures
        firsts = [first for first in (counters.first_failure, task.first_failure) if first is not None]
        counters.first_failure = min(firsts, default=None)


def add_present(counters: ComponentCounters, task: Task, stopped: bool) -> None:
    """Add the gauges of one task and, unless it has been stopped, its present state."""
    add_values(counters.gauges, task.metrics.read_gauges())
    if not stopped:
        counters.loads[task.id] = load_of(task)
    if isinstance(task, SpoutTask) and not stopped:
        counters.pending += task.pending
        reason = idle_reason(task)
        counters.idle[reason] = counters.idle.get(reason, 0) + 1
    elif isinstance(task, BoltTask) and task.probing is not None and not stopped:
        counters.down[task.id] = task.failing_since, short_line(task.last_error or "no reason given")
    elif (reason := task.waits_for) and not stopped:
        counters.idle[reason] = counters.idle.get(reason, 0) + 1


def has_emitted(task: SpoutTask) -> bool:
    """Return whether a spout emits, as two readings show that are between half a second and some seconds apart."""
    now, emitted = task.now(), task.emitter.emitted
    if task.reading is None or not 0 <= now - task.reading[0] < LONGEST_READING:
        task.reading = now, emitted, False
    elif now - task.reading[0] >= SHORTEST_READING:
        task.reading = now, emitted, emitted > task.reading[1]
    return task.reading[2]


def load_of(task: Task) -> TaskLoad:
    """Return a task's present load."""
    now = task.now()
    since = running_since(task)
    if since is not None and now - since < LONG_CALL:
        since = None
    # The calls of an asynchronous bolt are counted when they end, as shares of its `max_concurrency`.
    running = 0.0 if since is None or isinstance(task, AsyncBoltTask) else now - since
    if isinstance(task, AsyncBoltTask):
        started = [call.started for call in list(task.in_flight.values())]
        running = sum(now - each for each in started) / task.max_concurrency
    share = task.work.share(now, running)
    calls = task.work.calls
    held = task.buffered() if isinstance(task, BoltTask) and not isinstance(task, AsyncBoltTask) else 0
    return TaskLoad(
        task.id,
        busy=None if share is None else round(share, 2),
        queue=task.waiting() + held,
        execute_p50=calls.percentile(50),
        execute_p99=calls.percentile(99),
        call_since=since,
    )


def running_since(task: Task) -> float | None:
    """Return since when the task's present job, or the oldest asynchronous call, has been running; None if there is none."""
    if isinstance(task, AsyncBoltTask):
        started = [call.started for call in list(task.in_flight.values())]
        if started:
            return min(started)
    return task.busy_since if task.jobs else None


def idle_reason(task: SpoutTask) -> str:
    """Return why a spout does not emit, in words for users; "" if it emits."""
    if not task.opened:
        return "not open yet"
    if task.finished:
        return "finished" if not task.pending else "waiting for trees"
    if task.draining or not task.active:
        return "inactive"
    if has_emitted(task):
        return ""
    if task.blocked:
        return "backpressure"
    if task.at_limit():
        return "pending limit" if task.full() else "waiting for replays"
    waits = task.now() < task.wait.not_before
    if waits and task.wait.errors_in_a_row:
        return "waits after an error"
    if task.wait.empties:
        return "source empty"
    return "waits as it asked" if waits and task.wait.not_before == task.wait.asked_until else ""
