"""How a worker comes to an end, and hurries towards it: end marks, quiet cycles, batches that should not wait.

Looked at when the worker's loop has nothing else to do, and now and then beside a source that never rests.
Must not know: frames, credit, user code.
"""

from __future__ import annotations

from typing import Protocol

from worker.bolt_task import BoltTask
from worker.cycles import ROUND_SECONDS, CycleWatch
from worker.links import Links
from worker.plan import WorkerPlan
from worker.settling import Settling
from worker.spout_task import SpoutTask
from worker.task import Task
from worker.timers import Timers

#: Seconds between two calls to hurry while spouts wait.
HURRY_SECONDS = 0.02
#: Seconds after which ends of input are looked for though the loop has more to do.
LOOK_SECONDS = 0.02


class EndingWorker(Protocol):
    """What is asked of the worker."""

    name: str
    plan: WorkerPlan
    spouts: list[SpoutTask]
    bolts: list[BoltTask]
    cycles: CycleWatch
    links: Links
    settling: Settling
    timers: Timers
    draining: bool

    @property
    def spouts_drained(self) -> bool: ...

    def queue(self, task: BoltTask) -> None: ...

    def at_rest(self, task: Task) -> bool: ...

    def now(self) -> float: ...

    def has_arrivals(self) -> bool: ...


class Endings:
    """Ends of input, hurry and cycles of one worker."""

    def __init__(self, worker: EndingWorker) -> None:
        self.worker = worker
        self.next_look = self.next_hurry = self.next_round = 0.0

    def advance(self, now: float) -> bool:
        """Hurry, ends of input, questions to cycles; whether anything came of it."""
        self.next_look = now + LOOK_SECONDS
        busy = self.ask_to_hurry(now)
        busy |= self.advance_ends()
        cycles = self.worker.cycles
        if cycles.cycles and now >= self.next_round and cycles.wants_round():
            self.next_round = now + ROUND_SECONDS
            cycles.ask()
            busy |= self.advance_ends()
        return busy

    def next_time(self) -> float | None:
        """When to look again though nothing arrives."""
        worker = self.worker
        times = []
        waits = any(spout.tracker.pending and spout.wants_hurry() for spout in worker.spouts)
        if waits and self.has_batches():
            times.append(max(self.next_hurry, worker.now() + 0.001))
        if worker.cycles.cycles and worker.cycles.wants_round():
            times.append(self.next_round)
        return min(times, default=None)

    def has_batches(self) -> bool:
        """Whether there may be bolts that gather tuples: here, or in other workers."""
        return bool(self.worker.timers.batch_bolts or self.worker.timers.other_workers)

    def ask_to_hurry(self, now: float) -> bool:
        """A spout waits for trees: batch bolts, here and elsewhere, hand over what they have."""
        worker = self.worker
        if not self.has_batches() or now < self.next_hurry:
            return False
        if not worker.draining and not any(spout.wants_hurry() for spout in worker.spouts if not spout.busy):
            return False
        self.next_hurry = now + HURRY_SECONDS
        # One that drains for its own end asks nobody for the sake of trees that are done: each such word is one more that
        # its peers have to confirm before it may go.
        if not (worker.draining and worker.spouts_drained):
            for other in worker.timers.other_workers:
                worker.settling.control(other).hurry = True
        return self.hurry_here()

    def hurry_here(self) -> bool:
        """Have the batch bolts here hand over what they have, once their input is empty."""
        hurried = False
        for bolt in self.worker.timers.batch_bolts:
            if not bolt.busy and bolt.hurry():
                hurried = True
                self.worker.queue(bolt)
        return hurried

    def advance_ends(self) -> bool:
        """Call `end_of_input` where all inputs have ended, and pass end marks on."""
        worker = self.worker
        advanced = False
        for spout in worker.spouts:
            if spout.exhausted and not spout.ended and worker.at_rest(spout):
                advanced = True
                self.end(spout)
        for bolt in worker.bolts:
            inputs = bolt.inputs
            if inputs.phases_wanted:
                inputs.phase = worker.cycles.cycles[worker.plan.cycle_of[bolt.spec.id]].phase
                advanced |= self.hurry_cycle(bolt)
            if bolt.ended or bolt.busy or bolt.inbox:
                continue
            if inputs.all_ended and not bolt.end_due:
                bolt.end_due = True
                advanced = True
                worker.queue(bolt)
            elif bolt.end_called and inputs.may_pass_on and worker.at_rest(bolt):
                advanced = True
                self.end(bolt)
        return advanced

    def hurry_cycle(self, bolt: BoltTask) -> bool:
        """In a cycle whose inputs have ended a batch bolt must not sit on its tuples."""
        if not bolt.inputs.outside_ended or bolt.busy or not bolt.hurry():
            return False
        self.worker.queue(bolt)
        return True

    def end(self, task: Task) -> None:
        """A task has nothing more to do: tell its readers."""
        task.ended = True
        self.tell_end(task, self.worker.plan.end_targets(task.spec.id))

    def tell_end(self, task: Task, targets: list[int]) -> None:
        """Send a task's end mark to tasks of its readers."""
        if task.spec.outputs and targets:
            source = self.worker.plan.source(task.spec.id, task.id, next(iter(task.spec.outputs)))
            self.worker.links.mark_end(source, targets)

    def cycle_idle(self, index: int) -> bool:
        """Whether all tasks here of a cycle are at rest, their outside inputs have ended, and the last phase was taken."""
        worker = self.worker
        phase = worker.cycles.cycles[index].phase
        for bolt in worker.bolts:
            if worker.plan.cycle_of.get(bolt.spec.id) != index:
                continue
            if not bolt.inputs.outside_ended or not worker.at_rest(bolt) or (phase and not bolt.end_called):
                return False
        return not worker.has_arrivals()
