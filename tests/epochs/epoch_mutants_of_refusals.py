"""Guards of rows that are refused for good, removed: each function makes a method without it.

Must not know: which mutants there are, how they are found.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from worker.epochs.after_commit import AfterCommit
from worker.epochs.coordinator import Coordinator
from worker.epochs.messages import CommitApplied, TaskRestored
from worker.epochs.participant import Participant, SendToCoordinator, TaskPhase


def left_out_at_once(old: Any) -> Any:
    """The rest of the rows is written although no epoch has the letters of those that were refused."""

    def method(self: AfterCommit) -> Any:
        self.close(self.committed)
        return old(self)

    return method


def left_out_uncommitted(old: Any) -> Any:
    """The rest of the rows is written when the epoch with the letters ends, before its commit."""

    def method(self: AfterCommit, epoch: int) -> None:
        old(self, epoch)
        if self.outcomes and self.outcomes[0].epoch <= self.committed:
            self.outcomes[0] = structs.replace(self.outcomes[0], decided=0)

    return method


def left_out_too_early(old: Any) -> Any:
    """A snapshot leaves out rows that were refused after its marker."""

    def method(self: Participant) -> Any:
        if self.ending is not None:
            self.after_commit.close(self.ending.snapshot.epoch)
        return old(self)

    return method


def left_out_for_good(old: Any) -> Any:
    """Rows that were refused stay so after a rewind, although it takes back their letters."""

    def method(self: AfterCommit, outcomes: Any, epoch: int) -> None:
        before = {(each.epoch, each.index): each.refused for each in self.outcomes if each.refused}
        old(self, outcomes, epoch)
        self.outcomes = [
            structs.replace(each, refused=before.get((each.epoch, each.index), ()))
            if each.kind == "rows"
            else each
            for each in self.outcomes
        ]

    return method


def restored_with_refused(old: Any) -> Any:
    """A task that has returned to a commit does not say that rows of it wait."""

    def method(self: Participant) -> Any:
        return [
            SendToCoordinator(structs.replace(each.message, waits=False))
            if isinstance(each, SendToCoordinator) and isinstance(each.message, TaskRestored)
            else each
            for each in old(self)
        ]

    return method


def applied_with_refused(old: Any) -> Any:
    """A commit counts as shown although rows of it wait."""

    def method(self: Participant) -> Any:
        found = old(self)
        if self.after_commit.waits and self.phase is TaskPhase.RUNNING and self.applied < self.epoch:
            self.applied = self.epoch
            found = [*found, SendToCoordinator(CommitApplied(self.rewind, self.epoch))]
        return found

    return method


def no_commit_after_the_last(old: Any) -> Any:
    """A topology that is killed has no commit after its last one, also if a sink needs it."""

    def method(self: Coordinator, task: str, message: Any, now: float) -> Any:
        last, found = self.last, old(self, task, message, now)
        self.last = last if message.rewind == self.view.rewind else self.last
        return found

    return method
