"""How a worker's tasks complete: end marks, quiet cycles, and flush requests to batch bolts that hold tuples back.

The worker's loop checks for completion when the loop has nothing else to do, and from time to time while a source keeps the
loop busy.
Must not know: frames, credit, user code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from squall.transport.frames import Frame
from worker.loop.ack_router import AckRouter
from worker.loop.cycles import ROUND_SECONDS, CycleWatch
from worker.loop.links import Links
from worker.loop.plan import WorkerPlan
from worker.loop.task_table import TaskTable
from worker.loop.timers import Timers
from worker.tasks.task import Task

#: Seconds between two flush requests while spouts wait for trees.
FLUSH_REQUEST_SECONDS = 0.02
#: Seconds after which ends of input are checked even if the loop has more to do.
CHECK_SECONDS = 0.02


@dataclass(eq=False, repr=False)
class Completion:
    """Ends of input, flush requests and cycles of one worker."""

    plan: WorkerPlan
    table: TaskTable
    links: Links
    cycles: CycleWatch
    ack_router: AckRouter
    timers: Timers
    arrived: deque[Frame]
    now: Callable[[], float]
    next_check: float = 0.0
    next_flush_request: float = 0.0
    next_round: float = 0.0

    def advance(self, now: float, draining: bool) -> bool:
        """Request flushes, pass ends of input on, probe cycles; return whether anything was done."""
        self.next_check = now + CHECK_SECONDS
        busy = self.request_flushes(now, draining)
        busy |= self.advance_ends()
        cycles = self.cycles
        if cycles.cycles and now >= self.next_round and cycles.wants_round():
            self.next_round = now + ROUND_SECONDS
            cycles.ask()
            busy |= self.advance_ends()
        return busy

    def next_time(self) -> float | None:
        """Return the time at which to check again even if nothing arrives."""
        times = []
        waits = any(spout.tracker.pending and spout.wants_flush() for spout in self.table.spouts)
        if waits and self.has_batches():
            times.append(max(self.next_flush_request, self.now() + 0.001))
        if self.cycles.cycles and self.cycles.wants_round():
            times.append(self.next_round)
        return min(times, default=None)

    def has_batches(self) -> bool:
        """Return whether there may be bolts that gather tuples, here or in other workers."""
        return bool(self.timers.batch_bolts or self.timers.other_workers)

    def request_flushes(self, now: float, draining: bool) -> bool:
        """If a spout waits for trees, let batch bolts here and in other workers execute the tuples that they have gathered."""
        if not self.has_batches() or now < self.next_flush_request:
            return False
        if not draining and not any(spout.wants_flush() for spout in self.table.spouts if not spout.busy):
            return False
        self.next_flush_request = now + FLUSH_REQUEST_SECONDS
        # A worker that drains before it exits sends no flush requests once its trees are done: each request is a frame, which a
        # peer must confirm before the worker may exit.
        if not (draining and self.table.spouts_drained):
            for other in self.timers.other_workers:
                self.ack_router.control(other).flush = True
        return self.flush_here()

    def flush_here(self) -> bool:
        """Make the batch bolts here execute their gathered tuples, once their input is empty."""
        requested = False
        for bolt in self.timers.batch_bolts:
            if not bolt.busy and bolt.request_flush():
                requested = True
                self.table.queue(bolt)
        return requested

    def advance_ends(self) -> bool:
        """Call `end_of_input` of tasks whose inputs have all ended, and pass end marks on."""
        advanced = False
        for spout in self.table.spouts:
            if spout.exhausted and not spout.ended and spout.at_rest():
                advanced = True
                self.end(spout)
        for bolt in self.table.bolts:
            inputs = bolt.inputs
            if inputs.phases_wanted:
                inputs.phase = self.cycles.cycles[self.plan.cycle_of[bolt.spec.id]].phase
                # Once the inputs of a cycle have ended, a batch bolt in it must not hold tuples back.
                if inputs.outside_ended and not bolt.busy and bolt.request_flush():
                    advanced = True
                    self.table.queue(bolt)
            if bolt.ended or bolt.busy or bolt.inbox:
                continue
            if inputs.all_ended and not bolt.end_due:
                bolt.end_due = True
                advanced = True
                self.table.queue(bolt)
            elif bolt.end_called and inputs.may_pass_on and bolt.at_rest():
                advanced = True
                self.end(bolt)
        return advanced

    def end(self, task: Task) -> None:
        """Mark a task as ended, and send its end marks."""
        task.ended = True
        self.send_end(task, lambda target: True)

    def repeat_ends(self, wanted: Callable[[int], bool]) -> None:
        """Send the end marks of ended tasks once more, to the targets for which `wanted` returns True."""
        for task in self.table.by_id.values():
            if task.ended:
                self.send_end(task, wanted)

    def send_end(self, task: Task, wanted: Callable[[int], bool]) -> None:
        """Send a task's end mark to the tasks of its readers for which `wanted` returns True."""
        targets = [target for target in self.plan.end_targets(task.spec.id) if wanted(target)]
        if task.spec.outputs and targets:
            source = self.plan.source(task.spec.id, task.id, next(iter(task.spec.outputs)))
            self.links.mark_end(source, targets)

    def cycle_idle(self, index: int) -> bool:
        """Return whether this worker's part of a cycle is idle: no arrived frame waits, and each of the cycle's bolts here is
        at rest, has no open inputs from outside, and has called `end_of_input` if the cycle has reached phase 1.
        """
        phase = self.cycles.cycles[index].phase
        return not self.arrived and all(
            bolt.inputs.outside_ended and bolt.at_rest() and (not phase or bolt.end_called)
            for bolt in self.table.bolts
            if self.plan.cycle_of.get(bolt.spec.id) == index
        )
