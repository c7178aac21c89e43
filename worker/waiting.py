"""Which trees merely wait in a worker, and in whose tracker they are: read by another thread while the loop is in a call.

Must not know: how it is told to other workers.
"""

from __future__ import annotations

from collections.abc import Iterable

from squall.transport.frames import Batch, Held
from worker.ids import task_of
from worker.worker import Worker


def held_here(worker: Worker) -> dict[str, list[Held]]:
    """The trees of other workers' spouts whose tuples wait here, unexecuted, by the worker that tracks them."""
    found: dict[str, list[Held]] = {}
    plan = worker.plan
    for task in list(worker.tasks.values()):
        share(found, worker, task.spec.id, task.id, task.held_roots())
    for frame in list(worker.arrived):
        if isinstance(frame, Batch):
            share(found, worker, plan.component_of.get(frame.target, "?"), frame.target, frame.held_roots(0))
    return found


def share(
    found: dict[str, list[Held]], worker: Worker, component: str, task: int, roots: Iterable[int]
) -> None:
    """Give each tracker's worker its part."""
    by_worker: dict[str, list[int]] = {}
    for root in roots:
        host = worker.plan.worker_of.get(task_of(root))
        if host is not None and host != worker.name:
            by_worker.setdefault(host, []).append(root)
    for host, own in by_worker.items():
        found.setdefault(host, []).append(Held(component, task, tuple(own)))
