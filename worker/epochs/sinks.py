"""How outcomes are shown so that each is visible once, although the answer of the outside may be lost.

**Staged sinks** commit a handle; committing it again changes nothing. A handle is aborted only if its epoch is void, which the
log alone says.
**Token sinks** write rows in one transaction with a token, the number of the epoch, which is compared with the one that is
there and set. The token belongs to (lineage, component, index), also where a task of another index shows what was left by
this one. If the answer is lost or the token is another one, the token is read: an epoch up to it is visible. Rows that are
refused for good are left out by a later commit (`after_commit`).
**Dead letters** have ids; a letter with the same id replaces itself.
What was copied from another state (`--state PATH`) is shown under the names that it has there: so it is visible once, whichever
of the two topologies shows it first.
Must not know: the outside, when an epoch counts.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import msgspec

from worker.epochs.after_commit import HANDLE, LETTERS, AfterCommit, EpochOutcome


def heir_of(index: int, parallelism: int) -> int:
    """Return which task shows the outcomes of a task, at another parallelism."""
    return index % parallelism


def kept_handle(handle: Any) -> Any:
    """Return a handle as it is after a restart. Raises an error, of any kind, for what is no msgpack value."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(handle))


class CommitHandle(msgspec.Struct, frozen=True):
    """Call a staged sink's `commit`."""

    epoch: int
    handle: Any
    #: See `EpochOutcome`.
    origin: str = ""


class WriteRows(msgspec.Struct, frozen=True):
    """In one transaction of the outside: if the token of `index` is `expected`, write the rows and set it to `epoch`."""

    epoch: int
    index: int
    rows: Any
    expected: int
    origin: str = ""
    #: The positions of rows that are left out.
    refused: tuple[int, ...] = ()


class ReadToken(msgspec.Struct, frozen=True):
    """Read the token of an index; 0 if there is none."""

    index: int
    origin: str = ""


class ShowLetters(msgspec.Struct, frozen=True):
    """Keep dead letters, by their ids."""

    epoch: int
    letters: Any
    origin: str = ""


Show = CommitHandle | WriteRows | ReadToken | ShowLetters


class ShowAnswer(Enum):
    """What the outside says."""

    DONE = auto()
    #: The token was another one; nothing was written.
    REFUSED = auto()
    UNKNOWN = auto()


class Showing:
    """Shows the outcomes of one task."""

    def __init__(self, after_commit: AfterCommit) -> None:
        self.after_commit = after_commit
        #: The tokens as they were written or read last, by index and origin.
        self.tokens: dict[tuple[int, str], int] = {}

    def restore(self) -> None:
        """Begin again: the tokens have to be read."""
        self.tokens.clear()

    def step(self) -> Show | None:
        """Return the next call to make; None if nothing is to be shown now. Answer it before the next step."""
        while (outcome := self.after_commit.next()) is not None:
            if outcome.kind == HANDLE:
                return CommitHandle(outcome.epoch, outcome.value, outcome.origin)
            if outcome.kind == LETTERS:
                return ShowLetters(outcome.epoch, outcome.value, outcome.origin)
            show = self.step_of_rows(outcome)
            if show is not None:
                return show
            self.after_commit.confirmed()
        return None

    def step_of_rows(self, outcome: EpochOutcome) -> Show | None:
        """Return the next call for rows; None if they are visible already."""
        token = self.tokens.get((outcome.index, outcome.origin))
        if token is None:
            return ReadToken(outcome.index, outcome.origin)
        if token >= outcome.epoch:
            return None
        return WriteRows(outcome.epoch, outcome.index, outcome.value, token, outcome.origin, outcome.refused)

    def token_read(self, index: int, token: int | None, origin: str = "") -> None:
        """A token was read; None: the call failed."""
        if token is not None:
            self.tokens[index, origin] = token
        self.after_commit.failed()

    def answered(self, answer: ShowAnswer) -> None:
        """The outside has answered a call, other than for a token."""
        outcome = self.after_commit.running
        assert outcome is not None
        if answer is ShowAnswer.DONE:
            if outcome.kind not in (HANDLE, LETTERS):
                self.tokens[outcome.index, outcome.origin] = outcome.epoch
            self.after_commit.confirmed()
        else:
            self.tokens.pop((outcome.index, outcome.origin), None)
            self.after_commit.failed()
