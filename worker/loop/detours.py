"""Detours around bolt tasks that are down: shuffle groupings use the other tasks meanwhile.

The worker of a task tells all workers when the task goes down and when it works again; senders with a choice then leave it out.
When the task is to be tried and has no tuple, it asks one worker after the other for a single one. Tuples that belong to a task
by their key, or that have no other task to go to, go there as before, and wait.
Must not know: who decides that a task is down, queues, trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from squall.transport.frames import FailureClaim
from worker.loop.ack_router import AckRouter
from worker.loop.plan import WorkerPlan
from worker.loop.timers import Timers
from worker.tasks import failing
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task
from worker.tracking.ids import first_root

#: In a control frame, beside the id of a task: it is down; it works; it asks for a tuple.
DOWN: Final = 0
WORKS: Final = -1
ASKS: Final = -2
#: Seconds until a task that got no tuple asks the next worker.
ASK_EVERY: Final = 1.0


class Detours:
    """The tasks that senders in this worker avoid, and the tasks here that are down."""

    def __init__(
        self,
        plan: WorkerPlan,
        tasks: Mapping[int, Task],
        ack_router: AckRouter,
        timers: Timers,
        queue: Callable[[BoltTask], None],
    ) -> None:
        """`queue`: lets a bolt task run."""
        self.plan = plan
        self.tasks = tasks
        self.ack_router = ack_router
        self.timers = timers
        self.queue = queue
        self.avoided: set[int] = set()
        #: How often a task has asked for a tuple: the workers are asked in turn.
        self.asked = 0

    def hear(self, task: int, root: int, claim: FailureClaim | None) -> None:
        """Let a bolt task here know what a spout task knows of its failures; without a claim: that it is down.

        `root`: a root id of the spout task.
        """
        bolt = self.tasks.get(task)
        if not isinstance(bolt, BoltTask):
            return
        if claim is None:
            bolt.notices["pause", root] = partial(bolt.pause_for, root)
        else:
            bolt.notices["claim", root] = partial(failing.hear, bolt, root, claim, bolt.now() - claim.age)
        self.queue(bolt)

    def check(self, bolt: BoltTask) -> None:
        """Report it to all workers if a task has gone down in its last run, or works again."""
        probing = self.timers.probing
        is_down = bolt.probing is not None
        if is_down == (bolt.id in probing):
            return
        secs = bolt.now() - bolt.failing_since
        if is_down:
            probing[bolt.id] = bolt
            bolt.context.log.warning(
                "down: for %.0f s every tuple has failed here; the tuples wait, and one at a time is tried. Last error: %s",
                secs,
                bolt.last_error,
            )
        else:
            del probing[bolt.id]
            bolt.context.log.info("works again, after %.0f s", secs)
        self.receive(bolt.id, DOWN if is_down else WORKS)
        for worker in self.timers.other_workers:
            self.ack_router.control(worker).down.append((bolt.id, DOWN if is_down else WORKS))

    def receive(self, task: int, what: int) -> None:
        """Handle what the worker of a task reports: it is down, it works, or it asks for a tuple."""
        if what == ASKS:
            for sender in self.tasks.values():
                sender.notices["lend", task] = partial(sender.emitter.lend, task)
        elif (what == DOWN) != (task in self.avoided):
            self.avoided ^= {task}
            self.apply(self.tasks.values())

    def apply(self, senders: Iterable[Task]) -> None:
        """Let these tasks send around the avoided ones, and only around these, from their next run on."""
        avoided = frozenset(self.avoided)
        for sender in senders:
            sender.notices["avoid", 0] = partial(sender.emitter.avoid, avoided)

    def ask_for_a_tuple(self, bolt: BoltTask, now: float) -> None:
        """Ask the next worker that sends to a task for a tuple to try it with."""
        assert bolt.probing is not None
        bolt.probing.due = now + ASK_EVERY
        plan = self.plan
        sources = {entry.source for entry in bolt.spec.inputs}
        workers = sorted({plan.worker_of[task] for source in sources for task in plan.tasks_of[source]})
        worker = workers[self.asked % len(workers)]
        self.asked += 1
        if worker == plan.worker:
            self.receive(bolt.id, ASKS)
        else:
            self.ack_router.control(worker).down.append((bolt.id, ASKS))

    def linked(self, worker: str) -> None:
        """Handle a new process of another worker: its tasks work, as far as is known, and it knows nothing of those here."""
        of_worker = {task for task, host in self.plan.worker_of.items() if host == worker}
        for task in self.avoided & of_worker:
            self.receive(task, WORKS)
        for task in self.timers.probing:
            self.ack_router.control(worker).down.append((task, DOWN))
        self.watch(of_worker)

    def assign(self, plan: WorkerPlan, moved: Iterable[int]) -> None:
        """Handle a new assignment: forget tasks that are gone or have moved; routes may have been replaced."""
        self.plan = plan
        if self.avoided:
            self.avoided &= plan.worker_of.keys() - set(moved)
            self.apply(self.tasks.values())
        self.watch(set(moved))

    def watch(self, tasks: set[int]) -> None:
        """Ask the new processes of these bolt tasks to report their next success to the spout tasks here that wait for one."""
        for spout in list(self.ack_router.spouts.values()):
            for task in tasks.intersection(spout.outages.watched()):
                worker = self.plan.worker_of.get(task)
                if worker is not None and worker != self.plan.worker:
                    self.ack_router.control(worker).down.append((task, first_root(spout.id, 0)))
