"""A task of a StagedSink in a topology with epochs: it stages rows at the end of an epoch, and commits them after its commit.

Must not know: links, coordinators, where rows are staged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from topology_api import RowsRefused, SquallError, StagedSink, StateError
from worker.epochs.sinks import CommitHandle, ShowAnswer, kept_handle
from worker.errors.reports import failure_text
from worker.tasks.gathering import GatheringTask
from worker.tasks.sink_rows import RefusedRow, letter_item, reasons_of


class StagedSinkTask(GatheringTask):
    """One task of a staged sink."""

    instance: StagedSink

    def packed_rows(self, epoch: int) -> bytes | None:
        self.unstaged, self.unstaged_tuples = self.taken_rows(epoch)
        return None

    @property
    def stages(self) -> bool:
        return bool(self.unstaged)

    # The outside. A call that raises is reported, and counts as not answered.

    def stage(self, epoch: int, lineage: str, done: Callable[[bool, Any], None]) -> None:
        """Stage the rows of the epoch that ends. The worker calls `done` with whether that was possible, and the handle."""
        self.instance.lineage = lineage
        try:
            handle = self.instance.stage(epoch, list(self.unstaged)) if self.unstaged else None
        except RowsRefused as error:
            self.answered(
                partial(self.leave_out, epoch, error, done), "stage", error, f"the rows of epoch {epoch}"
            )
            return
        except BaseException as error:
            self.answered(partial(done, False, None), "stage", error, f"the rows of epoch {epoch}")
            return
        self.unstaged, self.unstaged_tuples = [], []
        try:
            kept = kept_handle(handle)
        except Exception as error:
            refused = StateError(
                f"{self.emitter.where()}: the handle that stage() returned for epoch {epoch} is no msgpack value: "
                f"{failure_text(error)}. Return numbers, text, bytes, None, or lists and dicts of these"
            )
            self.answered(partial(self.refuse_handle, refused, done))
        else:
            self.answered(partial(done, True, kept))

    def leave_out(self, epoch: int, error: RowsRefused, done: Callable[[bool, Any], None]) -> None:
        """Make dead letters of rows that can never be staged, in their own epoch. Then the others are staged."""
        try:
            reasons = reasons_of(error, range(len(self.unstaged)))
        except SquallError as wrong:
            self.report("stage", wrong)
        else:
            for at, why in reasons.items():
                self.failed += 1
                refused = RefusedRow(at, self.unstaged_tuples[at], why)
                self.epochs.parking.give_up_in(epoch, letter_item(self, refused), why)
            left = [at for at in range(len(self.unstaged)) if at not in reasons]
            self.unstaged = [self.unstaged[at] for at in left]
            self.unstaged_tuples = [self.unstaged_tuples[at] for at in left]
        done(False, None)

    def refuse_handle(self, error: StateError, done: Callable[[bool, Any], None]) -> None:
        """End the topology, because of a handle that no snapshot can hold."""
        self.cannot_keep(error)
        done(False, None)

    def commit_handle(self, show: CommitHandle, lineage: str, done: Callable[[ShowAnswer], None]) -> None:
        """Make visible what was staged. The worker calls `done` with what the outside says."""
        self.instance.lineage = lineage
        try:
            self.instance.commit(show.epoch, show.handle)
        except BaseException as error:
            text = f"what was staged for epoch {show.epoch}"
            self.answered(partial(done, ShowAnswer.UNKNOWN), "commit", error, text)
        else:
            self.answered(partial(done, ShowAnswer.DONE))

    def abort_handle(self, epoch: int, handle: Any, lineage: str, done: Callable[[bool], None]) -> None:
        """Remove what was staged for a void epoch. The worker calls `done` with whether that was possible."""
        self.instance.lineage = lineage
        try:
            self.instance.abort(epoch, handle)
        except BaseException as error:
            self.answered(partial(done, False), "abort", error, f"what was staged for epoch {epoch}")
        else:
            self.answered(partial(done, True))
