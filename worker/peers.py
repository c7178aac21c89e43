"""What a worker does when the transport tells it of other workers: they come, they go, tuples on the way to them are lost.

Implements `squall.transport.exchange.Listener` for a `worker.worker.Worker`.
Must not know: sockets, user code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from squall.transport.frames import Batch, Frame
from squall.transport.link import Sent, remembered
from topology_api import Failure
from worker.cycles import CycleWatch
from worker.endings import Endings
from worker.links import Links
from worker.plan import WorkerPlan
from worker.settling import Settling
from worker.task import Task


class LinkedWorker(Protocol):
    """What is asked of the worker."""

    plan: WorkerPlan
    tasks: dict[int, Task]
    links: Links
    cycles: CycleWatch
    settling: Settling
    endings: Endings
    arrived: deque[Frame]

    def deliver(self, frame: Frame) -> None: ...


class Peers:
    """The other workers, as the transport tells of them."""

    def __init__(self, worker: LinkedWorker) -> None:
        self.worker = worker

    def deliver(self, frame: Frame) -> None:
        """A frame has come; it is looked at in the next step."""
        self.worker.deliver(frame)

    def lost(self, frames: Sequence[Sent], why: str) -> None:
        """These batches of ours were never executed: their trees fail at once, instead of by time."""
        worker = self.worker
        failed: set[int] = set()
        for sent in frames:
            if sent.cycle >= 0:
                worker.cycles.unsent(sent.cycle, worker.links.worker_of.get(sent.target, ""), sent.size)
            failure = Failure("lost", worker.plan.component_of.get(sent.target), sent.target, why, 0)
            for root in sent.trees() - failed:
                failed.add(root)
                worker.settling.failure(root, failure)

    def superseded(self, name: str) -> None:
        """The process of another worker is over."""
        worker = self.worker
        worker.links.superseded(name)
        worker.cycles.forget(name)
        worker.settling.forget(name)

    def linked(self, name: str) -> None:
        """A process of another worker takes tuples: it also hears what has ended here already."""
        worker = self.worker
        worker.links.linked(name)
        worker.cycles.greet(name)
        for task in worker.tasks.values():
            if task.ended:
                targets = worker.plan.end_targets(task.spec.id)
                worker.endings.tell_end(
                    task, [target for target in targets if worker.links.worker_of[target] == name]
                )

    def overflow(self, batch: Batch) -> None:
        """Too many tuples of a cycle are on their way to another worker."""
        worker = self.worker
        dropped = worker.links.drop_untracked(worker.plan.component_of[batch.target], batch)
        worker.cycles.unsent(batch.cycle, worker.links.worker_of[batch.target], dropped)

    def closing(self, name: str) -> None:
        """Another worker takes no more tuples."""
        self.worker.links.closing(name)


def unexecuted(task: Task) -> list[Sent]:
    """What waits in the inbox of a task that is going, as batches that are lost."""
    return [
        Sent(0, batch.source, batch.target, 0, -1, 0, False, sorted(batch.held_roots(batch.position)), {})
        for batch in task.inbox
        if batch.rows
    ]


def waiting_in(worker: LinkedWorker) -> list[Sent]:
    """What waits in a worker that has stopped: in inboxes, in outboxes, or not looked at yet."""
    found = [remembered(frame, 0) for frame in worker.arrived if isinstance(frame, Batch) and frame.rows]
    for task in worker.tasks.values():
        found += unexecuted(task)
        found += [remembered(box.take(len(box.rows)), 0) for box in task.emitter.dirty]
    return found
