"""What a task shows to the outside once its epoch is committed: handles and rows of sinks, dead letters.

An outcome becomes known when its epoch ends, is part of that epoch's snapshot and of every later one until the outside has
confirmed it, and is shown only after the commit of its epoch: epoch n before n+1, one at a time. Each way of showing can be
repeated (see `sinks`), since a confirmation may be lost with its task.

Rows that the outside refuses for good become dead letters of the epoch that is open then. With its commit it is decided that
they are left out; before that, none of the rows of their epoch is shown, and no later outcome. A rewind to an earlier commit
takes the decision back, with the letters: so a row is shown or is a letter, and never both.
Must not know: how outcomes are shown, logs, coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, structs

#: Kinds of outcomes: what a staged sink has prepared, the rows of a token sink, dead letters.
HANDLE: Final = "handle"
ROWS: Final = "rows"
LETTERS: Final = "letters"


class EpochOutcome(Struct, frozen=True):
    """Something that becomes visible with the commit of an epoch."""

    epoch: int
    #: The index of the task that made it. When parallelism shrinks, another task shows it.
    index: int
    kind: str
    value: Any
    #: "topology/lineage" of the state that it was copied from; "": it is of this one. The outside knows it by these names.
    origin: str = ""
    #: The positions of rows that the outside has refused, and the epoch that has their letters: not to be shown before its
    #: commit.
    refused: tuple[int, ...] = ()
    decided: int = 0


class AfterCommit:
    """The outcomes of one task that are not yet visible."""

    def __init__(self) -> None:
        #: In the order of their epochs.
        self.outcomes: list[EpochOutcome] = []
        #: The newest commit that the task knows of.
        self.committed = 0
        #: The outcome that is being shown.
        self.running: EpochOutcome | None = None
        #: The rows of the first outcome whose letters belong to the open epoch.
        self.refusing: tuple[int, ...] = ()

    def restore(self, outcomes: Iterable[EpochOutcome], epoch: int) -> None:
        """Begin with the outcomes of a commit's snapshots."""
        self.outcomes = sorted(outcomes, key=lambda outcome: (outcome.epoch, outcome.index))
        self.committed = epoch
        self.running, self.refusing = None, ()

    def add(self, outcome: EpochOutcome) -> None:
        """Add an outcome of the epoch that ends."""
        self.outcomes.append(outcome)

    def refuse(self, positions: Iterable[int]) -> None:
        """The outside has refused rows of the outcome that was being shown: they are dead letters of the open epoch."""
        self.refusing = (*self.refusing, *positions)
        self.running = None

    def close(self, epoch: int) -> None:
        """An epoch ends, and the letters of refused rows with it."""
        if self.refusing:
            first = self.outcomes[0]
            refused = (*first.refused, *self.refusing)
            self.outcomes[0] = structs.replace(first, refused=refused, decided=epoch)
            self.refusing = ()

    @property
    def waits(self) -> bool:
        """Whether committed rows are not shown before the next commit, which leaves out those that were refused."""
        if not self.outcomes or self.outcomes[0].epoch > self.committed:
            return False
        return bool(self.refusing) or self.outcomes[0].decided > self.committed

    def commit(self, epoch: int) -> None:
        """Release the outcomes up to an epoch."""
        self.committed = max(self.committed, epoch)

    def void(self, epoch: int) -> list[EpochOutcome]:
        """Remove the outcomes after an epoch: they were not committed and never will be."""
        gone = [outcome for outcome in self.outcomes if outcome.epoch > epoch]
        self.outcomes = [outcome for outcome in self.outcomes if outcome.epoch <= epoch]
        return gone

    def next(self) -> EpochOutcome | None:
        """Return the outcome to show now; None if there is none, or one is being shown."""
        if self.running is not None or self.waits or self.shown:
            return None
        self.running = self.outcomes[0]
        return self.running

    def confirmed(self) -> None:
        """The outcome that was being shown is visible."""
        self.outcomes.remove(self.running)  # type: ignore[arg-type]
        self.running = None

    def failed(self) -> None:
        """It may be visible, or not: show it again."""
        self.running = None

    @property
    def shown(self) -> bool:
        """Whether all that is committed is visible."""
        return not self.outcomes or self.outcomes[0].epoch > self.committed
