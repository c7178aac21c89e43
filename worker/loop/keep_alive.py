"""Finds the trees that merely wait in a worker, so that their trackers keep them alive instead of timing them out.

This module only reads, since another thread uses it while the loop is inside a call.
Must not know: how keep-alives get to other workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from squall.transport.frames import Batch, Frame, KeepAlive
from worker.loop.plan import WorkerPlan
from worker.tasks.task import Task
from worker.tracking.ids import task_of


def keep_alives(
    tasks: Iterable[Task], arrived: Iterable[Frame], component_of: Mapping[int, str]
) -> Iterator[KeepAlive]:
    """Yield the trees whose tuples wait at each task: in its queues, or in frames that are not in an inbox yet."""
    for task in list(tasks):
        if roots := task.waiting_roots():
            yield KeepAlive(task.spec.id, task.id, tuple(roots))
    for frame in list(arrived):
        if isinstance(frame, Batch) and (roots := frame.waiting_roots(0)):
            yield KeepAlive(component_of.get(frame.target, "?"), frame.target, tuple(roots))


def by_tracker(waiting: Iterable[KeepAlive], plan: WorkerPlan) -> dict[str, list[KeepAlive]]:
    """Return the trees of other workers' spouts, by the worker that tracks them."""
    shares: dict[str, list[KeepAlive]] = {}
    for part in waiting:
        by_worker: dict[str, list[int]] = {}
        for root in part.roots:
            host = plan.worker_of.get(task_of(root))
            if host is not None and host != plan.worker:
                by_worker.setdefault(host, []).append(root)
        for host, own in by_worker.items():
            shares.setdefault(host, []).append(KeepAlive(part.component, part.task, tuple(own)))
    return shares
