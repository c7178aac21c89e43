"""What tasks leave for trackers: XORs of settled tuples, failures, signs of life. Here or in another worker.

A root id names its spout task, so it is known where each entry goes. A tracker whose task is in the middle of a run in a
thread gets its entries when the run has ended.
A batch bolt settles many thousand tuples at once. Their trees' verdicts, and what spouts do with these, are spread over rounds
of the loop, so that other trees need not wait for all of them.
Must not know: user code, credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from squall.transport.frames import Control, Held
from topology_api import Failure
from worker.bolt_task import BoltTask
from worker.ids import task_of
from worker.spout_task import SpoutTask
from worker.xors import XorBatch, XorColumns

#: What a task has left is brought to the trackers in portions of so many entries: a millisecond of a round, or two.
PORTION: Final = 1024


class Settling:
    """The way back from bolts to the trackers."""

    def __init__(self, worker: str, worker_of: Mapping[int, str], all_spout_tasks: list[int]) -> None:
        self.worker = worker
        self.assign(worker_of, all_spout_tasks)
        self.spouts: dict[int, SpoutTask] = {}
        #: XORs of all tasks that run in the worker's loop: settled once a round, neighbours of one root combined.
        self.shared = XorBatch()
        #: What is to be sent to other workers.
        self.controls: dict[str, Control] = {}
        #: Portions that the next rounds bring to the trackers.
        self.waiting: deque[XorBatch | list[tuple[int, Failure]]] = deque()
        #: The seconds that this took in the last round.
        self.took = 0.0
        #: Signs of life for trackers here that are in the middle of a run.
        self.late_held: list[Held] = []

    def assign(self, worker_of: Mapping[int, str], all_spout_tasks: list[int]) -> None:
        """Where tasks run, by an assignment."""
        self.worker_of = worker_of
        #: The spout task when there is only one in the topology: no need to look at each root.
        self.only = all_spout_tasks[0] if len(all_spout_tasks) == 1 else 0

    def forget(self, worker: str) -> None:
        """The process of another worker is over, and its trackers with it: what they were to hear is of no use."""
        self.controls.pop(worker, None)

    def control(self, worker: str) -> Control:
        """The control frame that is being filled for a worker."""
        control = self.controls.get(worker)
        if control is None:
            control = self.controls[worker] = Control(self.worker)
        return control

    def take(self, task: BoltTask, now: float) -> None:
        """Collect what a run of a bolt task left."""
        if task.xors is not self.shared:
            self.take_xors(task.xors)
        if task.failures:
            failures, task.failures = task.failures, []
            if len(failures) > PORTION:
                self.waiting += [failures[at : at + PORTION] for at in range(0, len(failures), PORTION)]
            else:
                self.bring(failures)
        if task.touched:
            touched, task.touched = task.touched, []
            self.held(Held(task.spec.id, task.id, tuple(touched)), now)

    def take_xors(self, batch: XorBatch) -> None:
        """Bring the XORs of a batch to their trackers; of a large one a portion in each of the next rounds."""
        if len(batch.roots) > PORTION:
            self.waiting += batch.portions(PORTION)
        else:
            self.bring(batch)

    def advance(self, clock: Callable[[], float], seconds: float) -> bool:
        """Bring a round's share of what waits to the trackers; whether there was anything.

        It is one portion, and more for up to so many seconds, which the rest of a round takes: with slow rounds verdicts would
        come too late otherwise.
        """
        if not self.waiting:
            self.took = 0.0
            return False
        began = clock()
        self.bring(self.waiting.popleft())
        while self.waiting and clock() - began < seconds:
            self.bring(self.waiting.popleft())
        self.took = clock() - began
        return True

    def finish(self) -> None:
        """Bring everything that waits to the trackers: one of them may be about to end, or to look for what is too old."""
        while self.waiting:
            self.bring(self.waiting.popleft())

    def bring(self, portion: XorBatch | list[tuple[int, Failure]]) -> None:
        """Bring XORs or failures to their trackers."""
        if isinstance(portion, XorBatch):
            for spout, columns in portion.take(self.only).items():
                self.xors(spout, columns)
        else:
            for root, failure in portion:
                self.failure(root, failure)

    def xors(self, spout: int, columns: XorColumns) -> None:
        """XORs for the trees of one spout task."""
        task = self.spouts.get(spout)
        if task is None:
            if spout not in self.worker_of:  # of a task that is no more
                return
            xors = self.control(self.worker_of[spout]).xors
            if spout in xors:
                xors[spout][0].extend(columns[0])
                xors[spout][1].extend(columns[1])
            else:
                xors[spout] = columns
        elif task.busy:
            task.late_xors.append(columns)
        else:
            task.tracker.merge(columns[0], columns[1])

    def failure(self, root: int, failure: Failure) -> None:
        """A tuple of this tree failed."""
        spout = task_of(root)
        task = self.spouts.get(spout)
        if task is None:
            if spout in self.worker_of:
                self.control(self.worker_of[spout]).failures.append((root, failure))
        elif task.busy:
            task.late_failures.append((root, failure))
        else:
            task.tracker.fail(root, failure)

    def held(self, held: Held, now: float) -> None:
        """Trees whose tuples wait somewhere."""
        by_spout: dict[int, list[int]] = {}
        for root in held.roots:
            by_spout.setdefault(task_of(root), []).append(root)
        for spout, roots in by_spout.items():
            part = Held(held.component, held.task, tuple(roots))
            task = self.spouts.get(spout)
            if task is None:
                if spout in self.worker_of:
                    self.control(self.worker_of[spout]).held.append(part)
            elif task.busy:
                self.late_held.append(part)
            else:
                task.tracker.touch(part.roots, now, part.component, part.task)

    def late(self, task: SpoutTask, now: float) -> None:
        """A run in a thread has ended: its tracker gets what came meanwhile."""
        late, self.late_held = self.late_held, []
        for held in late:
            self.held(held, now)
        task.take_late()

    def arrived(self, control: Control, now: float) -> None:
        """A control frame of another worker; signs of life first, so that they count before anything expires."""
        for held in control.held:
            self.held(held, now)
        for spout, columns in control.xors.items():
            self.xors(spout, columns)
        for root, failure in control.failures:
            self.failure(root, failure)

    def outgoing(self, grants: Mapping[str, Mapping[int, int]]) -> Iterable[tuple[str, Control]]:
        """The control frames to send now, with these grants."""
        for worker, given in grants.items():
            self.control(worker).grants.update(given)
        controls, self.controls = self.controls, {}
        return controls.items()
