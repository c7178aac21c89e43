"""A worker's reactions to reports about other workers: they start, they end, or tuples in flight to them are lost. Also
finds the trees that merely wait in a worker, so that their trackers keep them alive instead of timing them out.

Implements `squall.transport.exchange.PeerListener`.
Must not know: sockets, user code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from squall.transport.frames import Batch, Frame, KeepAlive
from squall.transport.in_flight import SentBatch
from topology_api import Failure
from worker.loop.ack_router import AckRouter
from worker.loop.completion import Completion
from worker.loop.cycles import CycleWatch
from worker.loop.detours import Detours
from worker.loop.links import Links
from worker.loop.plan import WorkerPlan
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task
from worker.tracking.ids import task_of


@dataclass(eq=False, repr=False)
class Peers:
    """The other workers, as the transport reports on them."""

    component_of: Mapping[int, str]
    arrived: deque[Frame]
    links: Links
    cycles: CycleWatch
    ack_router: AckRouter
    completion: Completion
    detours: Detours

    def deliver(self, frame: Frame) -> None:
        """Queue a frame for the next step."""
        self.arrived.append(frame)

    def lost(self, frames: Sequence[SentBatch], why: str) -> None:
        """Fail the trees of batches that were sent from here and never executed, so that the trees need not wait for their
        timeout."""
        failed: set[int] = set()
        for sent in frames:
            if sent.cycle >= 0:
                self.cycles.unsent(sent.cycle, self.links.worker_of.get(sent.target, ""), sent.size)
            failure = Failure("lost", self.component_of.get(sent.target), sent.target, why, 0)
            for root in sent.trees() - failed:
                failed.add(root)
                self.ack_router.route_failure(root, failure)

    def frames_gone(self, rewind: int) -> None:
        """No frame of this topology has a rewind number."""

    def superseded(self, name: str) -> None:
        """Handle the end of another worker's process."""
        for spout in self.ack_router.spouts.values():
            spout.tracker.peer_ended = True
        self.links.superseded(name)
        self.cycles.forget(name)
        self.ack_router.forget(name)

    def linked(self, name: str) -> None:
        """Handle a new process of another worker: it takes tuples, and gets the end marks that were sent before it started."""
        self.links.linked(name)
        self.cycles.greet(name)
        self.completion.repeat_ends(lambda target: self.links.worker_of[target] == name)
        self.detours.linked(name)

    def overflow(self, batch: Batch) -> None:
        """Drop the untracked tuples of a batch, because too many tuples of its cycle are in flight to another worker."""
        dropped = self.links.drop_untracked(self.component_of[batch.target], batch)
        self.cycles.unsent(batch.cycle, self.links.worker_of[batch.target], dropped)

    def closing(self, name: str) -> None:
        """Send no more tuples to another worker that is about to leave."""
        self.links.closing(name)


def unexecuted(task: Task) -> list[SentBatch]:
    """Return the batches in the inbox of a closed task, to be reported as lost."""
    return [
        SentBatch(0, each.source, each.target, 0, -1, 0, False, sorted(each.waiting_roots(each.position)), {})
        for each in task.inbox
        if each.rows
    ]


def waiting_in(tasks: Iterable[Task], arrived: Iterable[Frame]) -> list[SentBatch]:
    """Return the batches of a stopped worker, to be reported as lost: from inboxes, outboxes, and frames that were not
    processed."""
    lost = [SentBatch.of(frame) for frame in arrived if isinstance(frame, Batch) and frame.rows]
    for task in tasks:
        lost += unexecuted(task)
        lost += [SentBatch.of(box.dequeue(len(box.rows))) for box in task.emitter.dirty]
    return lost


# Another thread calls the following functions while the loop is inside a call, so they only read.


def keep_alives(
    tasks: Iterable[Task], arrived: Iterable[Frame], component_of: Mapping[int, str]
) -> Iterator[KeepAlive]:
    """Yield the trees whose tuples wait at each task: in its queues, or in frames that are not in an inbox yet."""
    for task in list(tasks):
        roots = task.waiting_roots()
        if isinstance(task, BoltTask):
            roots.update(task.timeout_resets)  # of the call that is running
        if roots:
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
