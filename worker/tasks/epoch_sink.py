"""A task of a TokenSink in a topology with epochs: it gathers the rows of an epoch, and writes them after its commit.

Must not know: links, coordinators, files, what rows are.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from topology_api import TokenSink, Tuple
from topology_api.packing import dumps_by_value
from worker.epochs.sinks import ShowAnswer, WriteRows
from worker.tasks.bolt import BoundedInputs
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.holding import HoldingEmitter
from worker.tasks.stateful_bolt import Positions
from worker.tasks.task import TaskSetup

#: How many committed rows may wait to be written; at the limit the task takes no input.
MOST_UNWRITTEN: Final = 100_000


class EpochSinkTask(EpochBoltTask):
    """One task of a token sink."""

    instance: TokenSink  # type: ignore[assignment] # it has no state

    def __init__(
        self, setup: TaskSetup, emitter: HoldingEmitter, inputs: BoundedInputs, positions: Positions
    ) -> None:
        super().__init__(setup, emitter, inputs, positions)
        self.method = "row"
        self.execute = self.gather
        self.rows: list[Any] = []
        #: How many rows each epoch has that is not written yet.
        self.row_counts: dict[int, int] = {}
        #: How many of them are committed, and wait for the outside alone: those of other epochs need that the task goes on.
        self.waiting_rows = 0
        #: Answers of the outside, for the worker to collect.
        self.answers: list[Callable[[], None]] = []

    def gather(self, tup: Tuple) -> None:
        """Take the row of a tuple."""
        self.rows.append(self.instance.row(tup))

    def may_execute(self, now: float) -> bool:
        return (self.marker_waits or self.waiting_rows < MOST_UNWRITTEN) and super().may_execute(now)

    def wants_run(self) -> bool:
        if self.inbox and not self.may_execute(self.now()) and not (self.notices or self.tick_due):
            return self.parked_due()
        return super().wants_run()

    def packed_rows(self, epoch: int) -> bytes | None:
        if not self.rows:
            return None
        packed = dumps_by_value(self.rows, 5)
        self.row_counts[epoch] = len(self.rows)
        self.rows = []
        return packed

    def left_to_write(self, committed: int, epochs: Collection[int]) -> None:
        """Take note of which epochs up to the last commit have rows that are not written. Called by the loop."""
        for epoch in list(self.row_counts):
            if epoch <= committed and epoch not in epochs:
                del self.row_counts[epoch]
        self.waiting_rows = sum(self.row_counts.get(epoch, 0) for epoch in epochs)

    # The outside. A call that raises is reported, and counts as not answered.

    def read_token(self, token: str, done: Callable[[int | None], None]) -> None:
        """Read a token. The worker calls `done` with its number, or None."""
        number: int | None = None
        try:
            number = int(self.instance.read_token(token))
        except BaseException as error:
            self.report("read_token", error)
        self.answers.append(partial(done, number))

    def write_rows(self, show: WriteRows, token: str, done: Callable[[ShowAnswer], None]) -> None:
        """Write the rows of an epoch. The worker calls `done` with what the outside says."""
        answer = ShowAnswer.UNKNOWN
        try:
            written = self.instance.write(show.epoch, pickle.loads(show.rows), show.expected, token)
            answer = ShowAnswer.DONE if written else ShowAnswer.REFUSED
        except BaseException as error:
            self.report("write", error, f"the rows of epoch {show.epoch}")
        self.answers.append(partial(done, answer))
