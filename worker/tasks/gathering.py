"""What the tasks of all committing sinks share: they gather rows, and take no more while too many are not shown.

The task's thread calls `row`. A threaded sink has one more thread, for all its other calls, so that it takes the rows of the
next epoch while the outside takes its time: they run one after the other there, from `prepare` to `cleanup`, and what a library
ties to a thread stays in one. In this thread only the sink is touched, and what this class passes on: answers, and errors.
Must not know: links, coordinators, files, what rows are, how they become visible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from topology_api import CommittingSink, Tuple
from worker.errors.reports import short_line
from worker.tasks.bolt import BoundedInputs
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.holding import HoldingEmitter
from worker.tasks.runners import Job, OutsideThread, end_raising_fork
from worker.tasks.sink_rows import Origin, RefusedRow, give_up
from worker.tasks.stateful_bolt import Positions
from worker.tasks.task import TaskSetup

#: How many committed rows may wait to be shown; at the limit the task takes no input.
MOST_UNSHOWN: Final = 100_000


class OutsideAnswer(NamedTuple):
    """What a call came to: what follows, or first an error of the call of this name."""

    done: Callable[[], None]
    call: str
    error: BaseException | None
    text: str


class GatheringTask(EpochBoltTask):
    """One task of a sink that shows rows after a commit."""

    instance: CommittingSink  # type: ignore[assignment] # it has no state

    def __init__(
        self, setup: TaskSetup, emitter: HoldingEmitter, inputs: BoundedInputs, positions: Positions
    ) -> None:
        super().__init__(setup, emitter, inputs, positions)
        self.method = "row"
        self.execute = self.gather
        self.rows: list[Any] = []
        #: The tuples that these were made of: their sources and values.
        self.tuples: list[Origin] = []
        #: The rows of the epoch that ends, until they are staged; of a staged sink.
        self.unstaged: list[Any] = []
        self.unstaged_tuples: list[Origin] = []
        #: How many rows each epoch has that is not shown yet.
        self.row_counts: dict[int, int] = {}
        #: How many of them are committed, and wait for the outside alone: those of other epochs need that the task goes on.
        self.waiting_rows = 0
        #: Answers of the outside, for the worker to collect.
        self.answers: list[OutsideAnswer] = []
        #: Where the sink's calls but `row` are made; None: in the task's own turn.
        self.outside: OutsideThread | None = None

    # The other thread.

    def start(self) -> None:
        self.in_outside(super().start)
        self.emitter.open_for(threading.get_ident())

    def close(self) -> None:
        if self.opened and not self.closed:
            self.in_outside(super().close)
        if self.outside is not None:
            self.outside.end()

    def in_outside(self, job: Job) -> None:
        """Run a job where the calls are made that reach the outside, after them, while this thread waits."""
        if self.outside is None:
            job()
            return
        if self.calls is None:
            self.outside.do(job)
            return
        self.calls.lock.release()  # what emits there takes it
        try:
            self.outside.do(job)
        finally:
            self.calls.lock.acquire()

    def answered(
        self, done: Callable[[], None], call: str = "", error: BaseException | None = None, text: str = ""
    ) -> None:
        """The outside has answered, or the call has raised: the worker calls `done`, after a report of the error."""
        if error is not None:
            end_raising_fork(self.process, error)
        self.answers.append(OutsideAnswer(done, call, error, text))

    def next_answer(self) -> Callable[[], None]:
        """Remove an answer, report its error, and return what follows. Called by the loop."""
        answer = self.answers.pop(0)
        if answer.error is not None:
            self.report(answer.call, answer.error, answer.text)
        return answer.done

    def goes_on(self, why: str | None) -> None:
        outside = self.outside
        if outside is None or not outside.busy or threading.get_ident() == self.emitter.owner:
            super().goes_on(why)
            return
        outside.since = self.now()
        if why is not None:
            outside.waits_for = short_line(str(why))

    def at_rest(self) -> bool:
        return super().at_rest() and not (self.outside is not None and self.outside.busy)

    # Rows.

    def gather(self, tup: Tuple) -> None:
        """Take the row of a tuple."""
        self.rows.append(self.instance.row(tup))
        self.tuples.append((tup._source, tuple(tup._values)))

    def give_up_rows(self, refused: list[RefusedRow], done: Callable[[], None]) -> None:
        """Make dead letters of rows that the outside refuses for good. The worker calls `done` before it looks at a marker that
        the task reaches: so letters, and what their readers get, are of one epoch."""
        give_up(self, refused)
        self.answered(done)

    def may_execute(self, now: float) -> bool:
        return (self.marker_waits or self.waiting_rows < MOST_UNSHOWN) and super().may_execute(now)

    def wants_run(self) -> bool:
        if self.inbox and not self.may_execute(self.now()) and not (self.notices or self.tick_due):
            return self.parked_due()
        return super().wants_run()

    def taken_rows(self, epoch: int) -> tuple[list[Any], list[Origin]]:
        """Return the rows of the epoch that ends, which are counted from now on, and their tuples."""
        taken = self.rows, self.tuples
        if self.rows:
            self.row_counts[epoch] = len(self.rows)
        self.rows, self.tuples = [], []
        return taken

    def left_to_show(self, committed: int, epochs: Collection[int]) -> None:
        """Take note of which epochs up to the last commit have rows that are not shown. Called by the loop."""
        for epoch in list(self.row_counts):
            if epoch <= committed and epoch not in epochs:
                del self.row_counts[epoch]
        self.waiting_rows = sum(self.row_counts.get(epoch, 0) for epoch in epochs)
