"""Which workers and tasks have epochs. The modules of epochs are imported when the first worker that has them is made: the
process of any other worker starts in a tenth less time.

Must not know: what workers and tasks with epochs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.tasks.task import Task

if TYPE_CHECKING:
    from worker.loop.epoch_worker import EpochWorker
    from worker.tasks.epoch_bolt import EpochBoltTask


def worker_class(plan: WorkerPlan) -> type[Worker]:
    """Return the kind of worker that a plan needs."""
    if not plan.has_epochs:
        return Worker
    from worker.loop.epoch_worker import EpochWorker

    return EpochWorker


def epochs_of(worker: Worker) -> EpochWorker | None:
    """Return the worker as one with epochs; None if its topology has none."""
    return cast("EpochWorker", worker) if worker.plan.has_epochs else None


def epoch_bolt(worker: Worker, task: Task) -> EpochBoltTask | None:
    """Return a task of the worker as that of a bolt with epochs; None if it is another one."""
    if not worker.plan.has_epochs:
        return None
    from worker.tasks.epoch_bolt import EpochBoltTask

    return task if isinstance(task, EpochBoltTask) else None
