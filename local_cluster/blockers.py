"""Explains why a topology is not completed: says for each task why it waits.

This module reads the tasks directly. That is safe because the run is simulated, and nothing else runs meanwhile.
Must not know: how the run is driven.
"""

from __future__ import annotations

from collections.abc import Iterable

from squall.reports.error_reports import ErrorReport
from worker.loop.snapshot import idle_reason
from worker.loop.worker import Worker
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task


def blockers(workers: Iterable[Worker]) -> list[str]:
    """Return one line for each reason why a task keeps the topology from being completed."""
    tasks = sorted((task for worker in workers for task in worker.tasks.values()), key=lambda task: task.id)
    lines = [line for task in tasks if not task.ended for line in reasons(task)]
    # If there are no other reasons, the tasks wait only for each other's end marks.
    return lines or [f"{place(task)} has not ended" for task in tasks if not task.ended]


def reasons(task: Task) -> list[str]:
    """Return the reasons why an unfinished task waits; the list is empty if it waits only for other tasks."""
    if isinstance(task, SpoutTask):
        return spout_reasons(task)
    assert isinstance(task, BoltTask)
    lines = []
    if task.inbox and task.waiting():
        why = " (its own output has no room)" if task.blocked else ""
        lines.append(f"{task.waiting()} tuple(s) wait for {place(task)}{why}")
    if isinstance(task, AsyncBoltTask) and task.in_flight:
        lines.append(
            f"{len(task.in_flight)} call(s) of {place(task)} have not ended: in simulated time they can await only sleeps "
            "and each other; for calls to the outside world use LocalCluster(), which runs in real time"
        )
    if isinstance(task, BatchBoltTask) and task.gathered:
        lines.append(f"{place(task)} gathers a batch of {len(task.gathered)} tuple(s)")
    held = task.executed - task.acked - task.failed
    if held > 0 and not task.auto_ack:
        lines.append(f"{place(task)} has executed {held} tuple(s) that it neither acked nor failed")
    return lines


def spout_reasons(task: SpoutTask) -> list[str]:
    """Return the reasons why a spout task waits."""
    lines = []
    if not task.finished:
        idle = idle_reason(task)
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
    """Return a task's component and id in the form that messages use."""
    return f"{task.spec.kind} {task.spec.id!r} [{task.id}]"


def stuck_text(head: str, lines: Iterable[str], errors: Iterable[ErrorReport]) -> str:
    """Return the text of a TimeoutError: the head, the reasons for waiting, and the last error in user code."""
    tail = [f"last error: {report.render()}" for report in list(errors)[-1:]]
    return "\n".join([head, *(f"  - {line}" for line in lines), *tail])
