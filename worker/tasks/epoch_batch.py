"""A task of a BatchBolt in a topology with epochs: a batch is all or nothing, and no epoch cuts it.

What is gathered at a marker is part of the snapshot, and is gathered again after a rewind. When `execute_batch` raises, nothing
of the call has happened. With `topology.on.outage: wait` its tuples are executed again in halves, until a single one fails,
which is parked; otherwise all are parked. A parked tuple is tried again alone, so that it costs the others nothing.
Must not know: links, trackers, coordinators, files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

from squall.transport.frames import COUNTS, OPEN
from topology_api import FailTuple, Failure
from topology_api.tuples import SETTLED, Tuple
from topology_api.wording import is_error
from worker.epochs.parking import Parked
from worker.errors.reports import failure_text
from worker.state.table import NONE
from worker.tasks import parked_verdicts
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import make_tuple
from worker.tasks.emitter import NOTHING, short
from worker.tasks.keeping import KeepingTask
from worker.tasks.parked_tuples import batch_of


class EpochBatchTask(BatchBoltTask, KeepingTask):
    """One task of a batch bolt in a topology with epochs."""

    # Running.

    def run(self) -> None:
        if not self.yielded:
            self.open_here()
            parked_verdicts.clear_way(self)
            # Parts of a batch that failed do not hold up the end of an epoch: they are in the snapshot.
            if self.take_marker() or self.reached:
                return
            self.try_parked()
        super().run()

    def take_input(self, most_emits: int) -> None:
        if not self.take_marker():
            super().take_input(most_emits)

    def overdue(self) -> bool:
        return super().overdue() or KeepingTask.overdue(self)

    def next_deadline(self) -> float | None:
        times = (super().next_deadline(), KeepingTask.next_deadline(self))
        return min((time for time in times if time is not None), default=None)

    def idle(self) -> bool:
        return super().idle() and KeepingTask.idle(self)

    def execute_gathered(self) -> None:
        if not self.reached:  # what is gathered is in the snapshot
            super().execute_gathered()

    # A call.

    def execute_batch(self, tups: list[Tuple]) -> None:
        """Call the user's `execute_batch` with these tuples; keep what it did if it returns, and drop it otherwise."""
        self.being_executed = tups
        self.emitter.anchor = NOTHING
        self.table.begin(NONE)
        observer, mark, error = self.observer, self.mark, None
        if observer is not None:
            for tup in tups:
                observer.executing(tup)
        began = self.now()
        if mark is not None:
            mark.enter(tups)
        try:
            self.execute_many(list(tups))  # a copy, which the user may change
            if self.watch is not None:
                self.watch.after(self.method)
        except BaseException as raised:
            error = raised
        if mark is not None:
            mark.leave()
        self.work.took(1, self.now() - began)
        if error is None:
            self.failed_calls = 0
            self.commit()
        else:
            self.undo()
        self.table.end()
        self.being_executed = []
        self.executed += len(tups)
        if observer is not None:
            for tup in tups:
                observer.executed(tup)
        if error is not None:
            self.fail_batch(tups, error)
        elif self.auto_ack:
            self.ack_all(tups)
        else:
            for tup in tups:
                if tup._root != SETTLED:
                    self.hold(tup)

    def ack_all(self, tups: list[Tuple]) -> None:
        if self.observer is None and not self.tries:
            super().ack_all(tups)
            return
        for tup in tups:
            if tup._root != SETTLED:
                self.ack_checked(tup)

    def fail_batch(self, tups: list[Tuple], error: BaseException) -> None:
        """Keep the tuples of a call that raised in halves, or park them."""
        counts = is_error(error, FailTuple)
        if not counts:
            batch = f"a batch of {len(tups)} tuples, the first {short(tups[0], 150)}"
            self.report(self.method, error, batch, tups)
        if self.waits_for_stores and not counts and len(tups) > 1:
            parked_verdicts.failed_call(self, failure_text(error))
            middle = (len(tups) + 1) // 2
            self.parts += [tups[:middle], tups[middle:]]
            return
        failure = Failure("failed", self.spec.id, self.id, failure_text(error), COUNTS if counts else OPEN)
        for tup in tups:
            self.give_up(tup, failure)

    def try_parked(self) -> None:
        """Try the parked tuples that are due, each once and alone."""
        for parked in parked_verdicts.tries(self):
            tup = make_tuple(batch_of(self, parked), 0)
            self.tries[id(tup)], mark = parked, self.mark
            if mark is None or not mark.refuses(self, tup):
                self.execute_batch([tup])

    # What a snapshot holds.

    def unsettled(self) -> Iterator[tuple[Tuple, bool, Parked | None]]:
        yield from super().unsettled()
        for tup in chain(*self.parts, self.gathered):
            yield tup, True, None

    def give_up_held(self, tup: Tuple, why: str, text: str) -> None:
        self.gathered = [each for each in self.gathered if each is not tup]
        if not self.gathered:
            self.deadline, self.flush_requested = None, False
        parts = [[each for each in part if each is not tup] for part in self.parts]
        self.parts = deque(part for part in parts if part)
        super().give_up_held(tup, why, text)

    def forget_contents(self) -> None:
        super().forget_contents()
        self.gathered.clear()
        self.parts.clear()
