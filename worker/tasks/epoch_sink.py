"""A task of a TokenSink in a topology with epochs: it gathers the rows of an epoch, and writes them after its commit.

Must not know: links, coordinators, files, what rows are.
"""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

from topology_api import TokenSink, Tuple
from topology_api.packing import dumps_by_value
from worker.epochs.sinks import ReadToken, ShowAnswer, WriteRows
from worker.tasks.bolt import BoundedInputs
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.holding import HoldingEmitter
from worker.tasks.task import TaskSetup

#: How many rows may wait to be written; at the limit the task takes no input.
MOST_UNWRITTEN: Final = 100_000


@dataclass(frozen=True, slots=True)
class TokenWasRead:
    """The outside has answered a `ReadToken`; None: it has not."""

    index: int
    number: int | None


@dataclass(frozen=True, slots=True)
class RowsWereWritten:
    """The outside has answered a `WriteRows`."""

    answer: ShowAnswer


class EpochSinkTask(EpochBoltTask):
    """One task of a token sink."""

    instance: TokenSink

    def __init__(self, setup: TaskSetup, emitter: HoldingEmitter, inputs: BoundedInputs) -> None:
        super().__init__(setup, emitter, inputs)
        self.method = "row"
        self.execute = self.gather
        self.rows: list[Any] = []
        #: How many rows each epoch has that is not yet written, the oldest first.
        self.unwritten: deque[int] = deque()
        #: Answers of the outside, for the worker to collect.
        self.answers: list[TokenWasRead | RowsWereWritten] = []

    def gather(self, tup: Tuple) -> None:
        """Take the row of a tuple."""
        self.rows.append(self.instance.row(tup))

    def may_execute(self, now: float) -> bool:
        full = len(self.rows) + sum(self.unwritten) >= MOST_UNWRITTEN
        return (self.marker_waits or not full) and super().may_execute(now)

    def wants_run(self) -> bool:
        if self.inbox and not self.may_execute(self.now()) and not (self.notices or self.tick_due):
            return self.parked_due()
        return super().wants_run()

    def take_marker(self) -> bool:
        before = len(self.reached)
        took = super().take_marker()
        if len(self.reached) > before and self.rows:
            self.reached[-1] = replace(self.reached[-1], rows=dumps_by_value(self.rows, 5))
            self.unwritten.append(len(self.rows))
            self.rows = []
        return took

    # The outside. A call that raises is reported, and counts as not answered.

    def read_token(self, show: ReadToken, token: str) -> None:
        """Read a token."""
        number: int | None = None
        try:
            number = int(self.instance.read_token(token))
        except BaseException as error:
            self.report("read_token", error)
        self.answers.append(TokenWasRead(show.index, number))

    def write_rows(self, show: WriteRows, token: str) -> None:
        """Write the rows of an epoch."""
        answer = ShowAnswer.UNKNOWN
        try:
            written = self.instance.write(show.epoch, pickle.loads(show.rows), show.expected, token)
            answer = ShowAnswer.DONE if written else ShowAnswer.REFUSED
        except BaseException as error:
            self.report("write", error, f"the rows of epoch {show.epoch}")
        if answer is ShowAnswer.DONE and self.unwritten:
            self.unwritten.popleft()
        self.answers.append(RowsWereWritten(answer))
