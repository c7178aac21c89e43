"""Reads the counters of a worker at one moment from its tasks: worker -> `WorkerCounters`.

This module changes nothing but its own earlier readings of a task, so any thread may call it while the worker runs. Times are
those of the worker's clock; a process turns them into wall-clock time (`worker.process.wall_clock`).
Must not know: how workers are driven, where counters go.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Final

from squall.cluster.counters import ComponentCounters, WorkerCounters, add_values
from squall.status import TaskLoad, UndecidedTuples
from worker.errors.reports import short_line
from worker.loop.kinds import epoch_bolt, epochs_of
from worker.loop.worker import Worker
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.spout import SpoutTask
from worker.tasks.spout_verdicts import undecided
from worker.tasks.task import Task
from worker.tracking.outages import Undecided

#: Seconds between two readings that say whether a spout emits: readings that are closer count as one, and after a longer pause
#: there is nothing to compare with.
SHORTEST_READING: Final = 0.5
LONGEST_READING: Final = 10.0
#: The source of the numbers of readings, for all workers of this process. A reading takes its number when it begins.
_numbers = count(1)
#: A call is shown once it has run for this many seconds.
SHOWN_SECONDS: Final = 1.0
#: Tuples without a verdict are shown once the first has waited for this many seconds.
UNDECIDED_SECONDS: Final = 5.0


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
            add_present(components[task.spec.id], task, stopped, worker)
    for component, log in worker.errors.items():
        components[component].errors = log.count
    for component, dropped in dict(worker.links.dropped).items():
        components[component].dropped = dropped
    reports = tuple(report for log in worker.errors.values() for report in list(log.kept))
    epochs = epochs_of(worker)
    told = None if epochs is None else epochs.telling.report()
    return WorkerCounters(components, reports, number, epochs=told)


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
        for reason, failures in dict(task.given_up).items():
            counters.failures[reason] = counters.failures.get(reason, 0) + failures
        firsts = [first for first in (counters.first_failure, task.first_failure) if first is not None]
        counters.first_failure = min(firsts, default=None)


def add_present(counters: ComponentCounters, task: Task, stopped: bool, worker: Worker) -> None:
    """Add the gauges of one task and, unless it has been stopped, its present state."""
    add_values(counters.gauges, task.metrics.read_gauges())
    if stopped:
        return
    growth = worker.environment.growth
    counters.loads[task.id] = replace(load_of(task), grew=None if growth is None else growth.of(task.id))
    epochs = epochs_of(worker)
    if epochs is not None:
        add_of_epochs(counters, worker, task)
    if isinstance(task, SpoutTask):
        counters.pending += task.pending
        add_undecided(counters, task, undecided(task))
        store = None if epochs is None else epochs.calls.waits_for
        reason = idle_reason(task, store) or held_up_by(task, worker.running)
        counters.idle[reason] = counters.idle.get(reason, 0) + 1
    elif isinstance(task, BoltTask) and task.probing is not None:
        counters.down[task.id] = task.failing_since, short_line(task.last_error or "no reason given")
    elif reason := task.waits_for or outside_waits(task):
        counters.idle[reason] = counters.idle.get(reason, 0) + 1


def add_of_epochs(counters: ComponentCounters, worker: Worker, task: Task) -> None:
    """Add what one task of a topology with epochs has beyond its tuples: parked ones, keys, emissions without a commit."""
    from worker.tasks.epoch_spout import EpochSpoutTask
    from worker.tasks.parked_verdicts import undecided as undecided_here

    if (bolt := epoch_bolt(worker, task)) is not None:
        counters.parked += len(bolt.parking.parked)
        if bolt.keys is not None:
            counters.keys = (counters.keys or 0) + bolt.keys
        add_undecided(counters, task, undecided_here(bolt))
    elif isinstance(task, EpochSpoutTask):
        counters.uncommitted = max(counters.uncommitted or 0, task.emissions.uncommitted)


def held_by_epochs(task: SpoutTask, store: str) -> str:
    """Return why a spout of a topology with epochs may not emit; "" if epochs do not hold it up."""
    from worker.tasks.epoch_spout import EpochSpoutTask

    assert isinstance(task, EpochSpoutTask)
    if task.waits_for_commit or (task.held and not task.held_by_cycle):
        return short_line(f"waits for the state store: {store}") if store else "waits for a commit"
    return "waits for a cycle" if task.held else ""


def add_undecided(counters: ComponentCounters, task: Task, tried: Undecided | None) -> None:
    """Add the tuples that a task tries again without a verdict, if it has for a while."""
    if tried is None or task.now() - tried.since < UNDECIDED_SECONDS:
        return
    failure = tried.failure
    text = short_line(f"{failure.component or task.spec.id}: {failure.error or failure.reason}")
    counters.undecided[task.id] = UndecidedTuples(task.id, tried.tuples, tried.since, tried.until, text)


def held_up_by(task: Task, running: Task | None) -> str:
    """Return which call a task waits for, if the worker's loop is inside a long call of another task; else ""."""
    if running is None or running is task or task.jobs or task.now() - running.busy_since < SHOWN_SECONDS:
        return ""
    return f"waits for a call of {running.spec.id}[{running.id}]"


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
    now, calls = task.now(), task.work.calls
    if isinstance(
        task, AsyncBoltTask
    ):  # its calls are counted when they end, as shares of its `max_concurrency`
        started = [call.started for call in list(task.in_flight.values())]
        since, held = min(started, default=None), 0
        running = sum(now - each for each in started) / task.max_concurrency
    else:
        since = task.busy_since if task.jobs else None
        held = task.buffered() if isinstance(task, BoltTask) else 0
        running = 0.0 if since is None or now - since < SHOWN_SECONDS else now - since
    if (outside := outside_call(task)) is not None:
        since = outside if since is None else min(since, outside)
    share = task.work.share(now, running)
    return TaskLoad(
        task.id,
        busy=None if share is None else round(share, 2),
        queue=task.waiting() + held,
        execute_p50=calls.percentile(50),
        execute_p99=calls.percentile(99),
        call_since=None if since is None or now - since < SHOWN_SECONDS else since,
    )


def outside_call(task: Task) -> float | None:
    """Return since when a sink has been in a call beside its thread; None: it is in none."""
    outside = getattr(task, "outside", None)
    return outside.since if outside is not None and outside.busy else None


def outside_waits(task: Task) -> str:
    """Return what such a call waits for, as it says; "" if it does not."""
    outside = getattr(task, "outside", None)
    return "" if outside is None else str(outside.waits_for)


def idle_reason(task: SpoutTask, store: str | None = None) -> str:
    """Return why a spout does not emit, in words for users; "" if it emits. `store`: why the store of the state does not take
    what is written, or ""; None: the topology has no epochs."""
    if not task.opened:
        return "not open yet"
    if task.letters.waits is not None:
        return task.letters.waits.idle
    if task.finished:
        return "finished" if not task.pending else "waiting for trees"
    if task.draining or not task.active:
        return "inactive"
    if has_emitted(task):
        return ""
    if task.blocked:
        return "backpressure"
    if store is not None and (reason := held_by_epochs(task, store)):
        return reason
    if task.at_limit():
        return "pending limit" if task.full() else "waiting for replays"
    waits = task.now() < task.wait.not_before
    if waits and task.wait.errors_in_a_row:
        return "waits after an error"
    if task.waits_for:
        return task.waits_for
    if task.wait.empties:
        return "source empty"
    return "waits as it asked" if waits and task.wait.not_before == task.wait.asked_until else ""
