"""Why a topology does not come to its end: what each task of it waits for, in words.

Reads the tasks of a simulated run, in which nothing else runs at the same time.
Must not know: how the run is driven.
"""

from __future__ import annotations

from collections.abc import Iterable

from squall.error_reports import ErrorReport
from worker.async_bolt_task import AsyncBoltTask
from worker.batch_bolt_task import BatchBoltTask
from worker.bolt_task import BoltTask
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.worker import Worker


def blockers(workers: Iterable[Worker]) -> list[str]:
    """One line for each task that keeps the topology from its end."""
    tasks = sorted((task for worker in workers for task in worker.tasks.values()), key=lambda task: task.id)
    lines = [line for task in tasks if not task.ended for line in reasons(task)]
    if not lines:  # the tasks wait for each other's end marks only
        lines = [f"{place(task)} has not ended" for task in tasks if not task.ended]
    return lines


def reasons(task: Task) -> list[str]:
    """What a task that has not ended waits for; nothing when it only waits for others."""
    if isinstance(task, SpoutTask):
        return spout_reasons(task)
    assert isinstance(task, BoltTask)
    lines = []
    if task.inbox and task.waiting():
        why = " (its own output has no room)" if task.blocked else ""
        lines.append(f"{task.waiting()} tuple(s) wait for {place(task)}{why}")
    if isinstance(task, AsyncBoltTask) and task.in_flight:
        lines.append(
            f"{len(task.in_flight)} call(s) of {place(task)} have not ended: on simulated time they may await sleeps and "
            "each other, not the outside world (LocalCluster() runs on real time)"
        )
    if isinstance(task, BatchBoltTask) and task.gathered:
        lines.append(f"{place(task)} gathers a batch of {len(task.gathered)} tuple(s)")
    held = task.executed - task.acked - task.failed
    if held > 0 and not task.auto_ack:
        lines.append(f"{place(task)} has executed {held} tuple(s) that it neither acked nor failed")
    return lines


def spout_reasons(task: SpoutTask) -> list[str]:
    """What a spout task waits for."""
    lines = []
    if not task.finished:
        idle = task.idle_reason()
        why = f", idle: {idle}" if idle else ""
        lines.append(f"{place(task)} has not called finish(), {task.emitter.emitted} emitted so far{why}")
    if task.tracker.pending:
        holders = sorted({component for component, _ in task.tracker.holders.values()})
        where = f", last seen at {', '.join(holders)}" if holders else ""
        lines.append(f"{place(task)} has {task.tracker.pending} open tree(s){where}")
    if task.replays:
        lines.append(f"{place(task)} has {len(task.replays)} tree(s) that wait for their replay")
    return lines


def place(task: Task) -> str:
    """Component and task, for people."""
    return f"{task.spec.kind} {task.spec.id!r} [{task.id}]"


def stuck_text(head: str, lines: Iterable[str], errors: Iterable[ErrorReport]) -> str:
    """The text of a TimeoutError: what was waited for, what blocks, and the last error of the user's code."""
    last = list(errors)[-1:]
    tail = [f"last error: {report.render()}" for report in last]
    return "\n".join([head, *(f"  - {line}" for line in lines), *tail])
