"""Messages between the coordinator of a topology's epochs and its tasks, and what is due in the next step of a worker.

A message for another worker travels in a control frame, so messages between two living processes arrive in order, each once.
Must not know: what messages say, sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from worker.epochs.messages import (
    Envelope,
    ForCoordinator,
    ForTask,
    ToCoordinator,
    ToTask,
    pack_envelope,
    unpack_envelope,
)
from worker.loop.ack_router import AckRouter
from worker.loop.plan import WorkerPlan
from worker.tracking.ack_batch import AckBatch

#: Delivers a message of a task to the coordinator in this worker, if it is here.
ToLead = Callable[[str, ToCoordinator], None]


class EpochMail:
    """The messages that one worker sends and gets."""

    def __init__(self, worker: str, router: AckRouter, to_lead: ToLead) -> None:
        self.worker, self.router, self.to_lead = worker, router, to_lead
        #: Messages of the coordinator, in order. They wait while tasks are being opened.
        self.messages: deque[ForTask] = deque()
        #: What is done in the next step, in order: never within something else.
        self.jobs: deque[Callable[[], None]] = deque()
        self.timed_jobs: list[tuple[float, Callable[[], None]]] = []

    def assign(self, plan: WorkerPlan) -> None:
        """Follow an assignment: what was due belongs to the one before."""
        #: The worker of each task, by the task's name; and that of the coordinator.
        self.hosts = {plan.names[task]: worker for task, worker in plan.worker_of.items()}
        self.leader = plan.worker_of[min(plan.spout_tasks)]
        self.jobs.clear()
        self.timed_jobs.clear()

    @property
    def leads(self) -> bool:
        """Whether the coordinator belongs to this worker."""
        return self.leader == self.worker

    # Messages.

    def to_coordinator(self, task: str, message: ToCoordinator) -> None:
        """Send a message of a task."""
        self.send(self.leader, ForCoordinator(task, message))

    def to_task(self, task: str, message: ToTask) -> None:
        """Send a message of the coordinator."""
        self.send(self.hosts[task], ForTask(task, message))

    def send(self, worker: str, envelope: Envelope) -> None:
        """Send a message to a worker, which may be this one."""
        if worker == self.worker:
            self.deliver(envelope)
        else:
            self.router.control(worker).epochs.append(pack_envelope(envelope))

    def receive(self, packed: bytes) -> None:
        """Deliver a message of another worker. Raises BadEnvelope."""
        self.deliver(unpack_envelope(packed))

    def deliver(self, envelope: Envelope) -> None:
        """Deliver a message in this worker, in its next step."""
        if isinstance(envelope, ForTask):
            self.messages.append(envelope)
        else:
            self.jobs.append(lambda: self.to_lead(envelope.task, envelope.message))

    def settle(self, trees: Iterable[tuple[int, int]]) -> None:
        """Ack a tuple that will not be executed, in its trees: (root, edge) of each."""
        acked = AckBatch()
        for root, edge in trees:
            acked.add(root, edge)
        self.router.route(acked)

    # What is due.

    def later(self, job: Callable[[], None], at: float | None = None) -> None:
        """Do something in the next step; or at a time."""
        if at is None:
            self.jobs.append(job)
        else:
            self.timed_jobs.append((at, job))

    def run_due(self, now: float) -> bool:
        """Do what is due; return whether anything was."""
        if self.timed_jobs:
            self.jobs += [job for at, job in self.timed_jobs if at <= now]
            self.timed_jobs = [entry for entry in self.timed_jobs if entry[0] > now]
        busy = bool(self.jobs)
        while self.jobs:
            self.jobs.popleft()()
        return busy

    def next_time(self) -> float | None:
        """Return when something is due although nothing happens."""
        return min((at for at, _ in self.timed_jobs), default=None)
