"""What the tasks of all committing sinks share: they gather rows, and take no more while too many are not shown.

Must not know: links, coordinators, files, what rows are, how they become visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from topology_api import CommittingSink, Tuple
from worker.tasks.bolt import BoundedInputs
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.holding import HoldingEmitter
from worker.tasks.stateful_bolt import Positions
from worker.tasks.task import TaskSetup

#: How many committed rows may wait to be shown; at the limit the task takes no input.
MOST_UNSHOWN: Final = 100_000


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
        #: The rows of the epoch that ends, until they are staged; of a staged sink.
        self.unstaged: list[Any] = []
        #: How many rows each epoch has that is not shown yet.
        self.row_counts: dict[int, int] = {}
        #: How many of them are committed, and wait for the outside alone: those of other epochs need that the task goes on.
        self.waiting_rows = 0
        #: Answers of the outside, for the worker to collect.
        self.answers: list[Callable[[], None]] = []

    def gather(self, tup: Tuple) -> None:
        """Take the row of a tuple."""
        self.rows.append(self.instance.row(tup))

    def may_execute(self, now: float) -> bool:
        return (self.marker_waits or self.waiting_rows < MOST_UNSHOWN) and super().may_execute(now)

    def wants_run(self) -> bool:
        if self.inbox and not self.may_execute(self.now()) and not (self.notices or self.tick_due):
            return self.parked_due()
        return super().wants_run()

    def taken_rows(self, epoch: int) -> list[Any]:
        """Return the rows of the epoch that ends, which are counted from now on."""
        rows, self.rows = self.rows, []
        if rows:
            self.row_counts[epoch] = len(rows)
        return rows

    def left_to_show(self, committed: int, epochs: Collection[int]) -> None:
        """Take note of which epochs up to the last commit have rows that are not shown. Called by the loop."""
        for epoch in list(self.row_counts):
            if epoch <= committed and epoch not in epochs:
                del self.row_counts[epoch]
        self.waiting_rows = sum(self.row_counts.get(epoch, 0) for epoch in epochs)
