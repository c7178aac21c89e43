"""How the calls of a bolt task are marked after a worker has died in one, and the end of a tuple that has ended two workers.

Each call takes one tuple; its mark holds the tuple's trees and key. A tuple whose key has the deaths that make a dead letter
is not executed again: it fails, with the reason `lost` and the end of the last worker as its error. A tuple that is only
suspected is executed alone. Nothing here is called, or imported, while no worker has died.
Must not know: files, what ends a process, who counts deaths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from squall.running_calls import NO_KEY, NO_TUPLE, CallMark
from squall.suspects import Suspect
from squall.transport.frames import DEADLY, Batch
from topology_api import Failure
from topology_api.tuples import Tuple
from worker.errors.reports import ErrorReport, one_line
from worker.tasks.bolt import BoltTask, make_tuple, trees_of
from worker.tasks.emitter import short
from worker.tasks.lone_calls import LoneCalls
from worker.tasks.task import Task
from worker.tasks.tuple_keys import key_of
from worker.tracking.ids import task_of
from worker.tracking.outages import MOST_DEATHS

if TYPE_CHECKING:
    from worker.tasks.batch_bolt import BatchBoltTask
    from worker.tasks.epoch_bolt import EpochBoltTask

#: How many seconds a call waits for others: in the worker's loop, which has other tasks to run, and in a thread of its own (no
#: longer than a part of the time after which it counts as hung).
LOOP_PATIENCE: Final = 1.0
THREAD_PATIENCE: Final = 15.0


class MarkedCalls:
    """The marks of the calls of one task. Only the thread that runs the task's calls may enter and leave."""

    def __init__(
        self,
        record: CallMark | None,
        task: Task,
        suspects: Mapping[bytes, Suspect],
        lone_calls: LoneCalls,
        endless: frozenset[int],
    ) -> None:
        """`record`: where running calls are recorded; None: nowhere. `endless`: the spout tasks that give up no tuple."""
        self.record = record
        self.component = task.spec.id
        self.suspects = suspects
        self.lone_calls = lone_calls
        self.patience = LOOP_PATIENCE
        if task.threaded:
            self.patience = min(THREAD_PATIENCE, task.hang_secs / 4 if task.hang_secs else THREAD_PATIENCE)
        self.endless = endless
        #: Whether a call of a coroutine is marked from its begin to its end, and not only in its steps.
        self.is_whole = False
        #: Whether calls without a tuple are marked too: they run in the thread of the others.
        self.marks_others = True
        self._alone = False

    def key_of(self, tup: Tuple) -> bytes:
        """Return the key of a tuple here."""
        return key_of(self.component, tup)

    def enter(self, tups: Sequence[Tuple], key: bytes | None = None) -> None:
        """Record that a call begins with these tuples, once it may. `key`: of the only one, if it is known."""
        if key is None:
            key = self.key_of(tups[0]) if len(tups) == 1 else NO_KEY
        if self.suspects and not self.is_whole:  # else no call waits for another
            self._alone = key in self.suspects
            self.lone_calls.enter(self._alone, self.patience)
        if self.record is not None:
            self.record.enter(len(tups), trees_of(tups[0]), key)

    def leave(self) -> None:
        """Record that the call has ended."""
        if self.record is not None:
            self.record.leave()
        if self.suspects and not self.is_whole:
            self.lone_calls.leave(self._alone)

    def enter_other(self) -> None:
        """Record that a call begins that has no tuple: none is at fault if the process dies in it."""
        if self.marks_others:
            if self.suspects:
                self._alone = False
                self.lone_calls.enter(False, self.patience)
            if self.record is not None:
                self.record.enter(NO_TUPLE, [])

    def leave_other(self) -> None:
        """Record that this call has ended."""
        if self.marks_others:
            self.leave()

    def execute_next(self, task: BoltTask, batch: Batch, most_emits: int) -> int:
        """Execute the next tuple of a batch, or give it up; return how many were executed."""
        tup = make_tuple(batch, batch.position)
        key = self.key_of(tup)
        if self.refuses(task, tup, key):
            batch.position += 1
            return 0
        self.enter((tup,), key)
        try:
            return task.execute_rows(batch, batch.position + 1, most_emits)
        finally:
            self.leave()

    def refuses(self, task: BoltTask, tup: Tuple, key: bytes | None = None) -> bool:
        """Give up a tuple if its deaths are enough; return whether they are."""
        if not self.suspects:
            return False
        suspect = self.suspects.get(self.key_of(tup) if key is None else key)
        if suspect is None or suspect.deaths < MOST_DEATHS or self.is_endless(task, tup):
            return False
        text = (
            f"{self.component}[{task.id}] has not executed a tuple, which is given up: {suspect.deaths} processes of its "
            f"workers ended in its call, and the last one {suspect.reason}"
        )
        context = task.context
        shown = short(tup, 200)
        task.reports.append(
            ErrorReport(
                context.topology, self.component, task.id, "", one_line(text), "", (), shown, task.now()
            )
        )
        task.give_up(tup, Failure("lost", self.component, task.id, suspect.reason, DEADLY))
        return True

    def is_endless(self, task: BoltTask, tup: Tuple) -> bool:
        """Whether a tuple is never given up (`Replay(max_attempts=None)`)."""
        if hasattr(task, "epochs"):
            from worker.tasks.parked_verdicts import replay_before  # nothing of epochs without them

            return replay_before(cast("EpochBoltTask", task), tup).max_attempts is None
        return any(task_of(root) in self.endless for root in trees_of(tup))

    def apart(self, task: BatchBoltTask, tups: list[Tuple]) -> list[Tuple]:
        """Return the tuples of a batch that may be executed together. Suspects become batches of their own, or are given up."""
        if not self.suspects:
            return tups
        together: list[Tuple] = []
        alone: list[Tuple] = []
        for tup in tups:
            key = self.key_of(tup)
            if not self.refuses(task, tup, key):
                (alone if key in self.suspects and len(tups) > 1 else together).append(tup)
        task.parts += [[tup] for tup in alone]
        return together
