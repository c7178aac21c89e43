"""Routes messages for trackers, here or in another worker: XORs of acked tuples, failures, keep-alives.

A root id contains the id of its spout task, and so gives the destination of each entry. If that task is in a run in its own
thread, its tracker gets the entries when the run has ended. A batch bolt acks thousands of tuples at once. These acks are
routed, and spouts process the results, over several rounds of the loop, so that other trees need not wait for all of these
acks.
Must not know: user code, credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from squall.transport.frames import Control, FailureClaim, KeepAlive
from topology_api import Failure
from worker.tasks.bolt import BoltTask
from worker.tasks.spout import SpoutTask
from worker.tracking.ack_batch import AckBatch, AckColumns
from worker.tracking.ids import first_root, task_of

#: The number of entries that are routed at once: one or two milliseconds of a round.
PORTION: Final = 1024


class AckRouter:
    """Routes entries from the bolts of one worker, and from other workers, to the trackers."""

    def __init__(self, worker: str, worker_of: Mapping[int, str], all_spout_tasks: list[int]) -> None:
        self.worker = worker
        self.assign(worker_of, all_spout_tasks)
        self.spouts: dict[int, SpoutTask] = {}
        #: XORs of all tasks that run in the worker's loop. They are routed once a round; consecutive XORs of one root are
        #: combined.
        self.shared = AckBatch()
        #: Control frames that are being filled, by worker.
        self.controls: dict[str, Control] = {}
        #: Portions to route in the next rounds.
        self.queued: deque[AckBatch | list[tuple[int, Failure]]] = deque()
        #: Seconds that the last round spent on routing queued portions.
        self.took = 0.0
        #: Keep-alives for trackers here whose task is in a run.
        self.late_keep_alives: list[KeepAlive] = []
        #: Timeout resets of calls that are still running; other threads append to it.
        self.resets: deque[KeepAlive] = deque()

    def assign(self, worker_of: Mapping[int, str], all_spout_tasks: list[int]) -> None:
        """Record which worker runs each task."""
        self.worker_of = worker_of
        #: The topology's only spout task, to which all entries go, whatever their roots; 0 if there are several.
        self.only = all_spout_tasks[0] if len(all_spout_tasks) == 1 else 0

    def forget(self, worker: str) -> None:
        """Drop the acks for another worker whose process, with its trackers, has ended."""
        self.controls.pop(worker, None)

    def control(self, worker: str) -> Control:
        """Return the control frame that is being filled for a worker."""
        control = self.controls.get(worker)
        if control is None:
            control = self.controls[worker] = Control(self.worker)
        return control

    def collect(self, task: BoltTask, now: float) -> None:
        """Collect the acks, failures and timeout resets of a run of a bolt task."""
        # The run of a call that yielded goes on to fill its columns.
        if task.xors is not self.shared and not task.yielded:
            self.collect_acks(task.xors)
        if task.failures:
            failures, task.failures = task.failures, []
            if len(failures) > PORTION:
                self.queued += [failures[at : at + PORTION] for at in range(0, len(failures), PORTION)]
            else:
                self.route(failures)
        if task.timeout_resets:
            roots, task.timeout_resets = task.timeout_resets, []
            self.keep_alive(KeepAlive(task.spec.id, task.id, tuple(roots)), now)

    def collect_acks(self, batch: AckBatch) -> None:
        """Route a batch. A large batch is routed in portions, at least one in each of the next rounds."""
        if len(batch.roots) > PORTION:
            self.queued += batch.portions(PORTION)
        else:
            self.route(batch)

    def advance(self, clock: Callable[[], float], seconds: float) -> bool:
        """Route one queued portion, then more portions for up to `seconds`; return whether there was any portion.

        `seconds`: the time that the rest of the loop's round takes, so that routing keeps up when rounds are slow.
        """
        if not self.queued:
            self.took = 0.0
            return False
        began = clock()
        self.route(self.queued.popleft())
        while self.queued and clock() - began < seconds:
            self.route(self.queued.popleft())
        self.took = clock() - began
        return True

    def finish(self) -> None:
        """Route everything that is queued. Call this before a tracker ends or expires trees."""
        while self.queued:
            self.route(self.queued.popleft())

    def route(self, portion: AckBatch | list[tuple[int, Failure]]) -> None:
        """Route XORs or failures to their trackers."""
        if isinstance(portion, AckBatch):
            for spout, columns in portion.by_tracker(self.only).items():
                self.route_acks(spout, columns)
        else:
            for root, failure in portion:
                self.route_failure(root, failure)

    def route_acks(self, spout: int, columns: AckColumns) -> None:
        """Route XORs for the trees of one spout task."""
        task = self.spouts.get(spout)
        if task is None:
            if spout not in self.worker_of:  # the tree's task is gone
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

    def route_failure(self, root: int, failure: Failure) -> None:
        """Route the failure of a tuple of this tree."""
        spout = task_of(root)
        task = self.spouts.get(spout)
        if task is None:
            if spout in self.worker_of:
                self.control(self.worker_of[spout]).failures.append((root, failure))
        elif task.busy:
            task.late_failures.append((root, failure))
        else:
            task.tracker.fail(root, failure)

    def claim_failures(self, spout: SpoutTask, now: float) -> list[tuple[int, int, FailureClaim]]:
        """Tell bolt tasks in other workers what this spout task knows of their failures; return the claims for those here."""
        tasks, spout.to_tell = dict.fromkeys(spout.to_tell), []
        here: list[tuple[int, int, FailureClaim]] = []
        for task in tasks:
            worker, claim = self.worker_of.get(task), spout.outages.claim(task, now)
            if worker is not None and claim is not None:
                claims = here if worker == self.worker else self.control(worker).claims
                claims.append((task, first_root(spout.id, 0), claim))
        return here

    def keep_alive(self, waiting: KeepAlive, now: float) -> None:
        """Route a keep-alive to the trackers of its trees."""
        by_spout: dict[int, list[int]] = {}
        for root in waiting.roots:
            by_spout.setdefault(task_of(root), []).append(root)
        for spout, roots in by_spout.items():
            part = KeepAlive(waiting.component, waiting.task, tuple(roots))
            task = self.spouts.get(spout)
            if task is None:
                if spout in self.worker_of:
                    self.control(self.worker_of[spout]).keep_alives.append(part)
            elif task.busy:
                self.late_keep_alives.append(part)
            else:
                task.tracker.keep_alive(part.roots, now, part.component, part.task)

    def route_resets(self, now: float) -> None:
        """Route the timeout resets of calls that are still running, in other threads."""
        while self.resets:
            self.keep_alive(self.resets.popleft(), now)

    def deliver_late(self, task: SpoutTask, now: float) -> None:
        """Give a tracker the entries that came while its task was in a run in its own thread."""
        if task.yielded:
            self.finish()
        if task.late_xors or task.late_failures or self.late_keep_alives:
            late, self.late_keep_alives = self.late_keep_alives, []
            for waiting in late:
                self.keep_alive(waiting, now)
            task.take_late()
        if task.yielded:  # the timer finds its task in a run most of the time
            task.tracker.expire(now)

    def receive(self, control: Control, now: float) -> None:
        """Route a control frame of another worker. Keep-alives come first, so that they take effect before any tree expires."""
        for waiting in control.keep_alives:
            self.keep_alive(waiting, now)
        for spout, columns in control.xors.items():
            self.route_acks(spout, columns)
        for root, failure in control.failures:
            self.route_failure(root, failure)

    def drain_controls(self, grants: Mapping[str, Mapping[int, int]]) -> Iterable[tuple[str, Control]]:
        """Add these grants to the control frames that are being filled, and return all of these frames, to be sent now."""
        for worker, given in grants.items():
            self.control(worker).grants.update(given)
        controls, self.controls = self.controls, {}
        return controls.items()
