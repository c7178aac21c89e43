"""What a coordinator and its tasks send each other, and what travels on the links between tasks beside rows.

Every message carries the rewind number for which it was sent. A receiver that knows a newer one refuses it. Control messages
between two living processes arrive in order, each once (`squall.transport.channels`).
Must not know: who sends them, and how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worker.epochs.records import SnapshotFile

# From the coordinator to tasks.


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """Step one of a rewind: stop, return to an epoch, and answer `TaskRestored`.

    It is sent only when the record `rewind` stands in the log, so it proves that every later epoch of a smaller rewind number
    is void.
    """

    rewind: int
    #: The last commit; 0: begin with nothing.
    epoch: int
    #: "component/index" -> snapshot, of all tasks of the component; empty if `epoch` is 0.
    files: dict[str, SnapshotFile]
    #: The version of the assignment in which the tasks will run: a worker that does not follow it yet delays this message.
    assignment: int = 0


@dataclass(frozen=True, slots=True)
class ResumeTask:
    """Step two of a rewind: all tasks have been restored; run."""

    rewind: int


@dataclass(frozen=True, slots=True)
class BeginEpochEnd:
    """The open epoch ends now and has this number: sources send its barrier. `last`: spouts emit nothing after it."""

    rewind: int
    epoch: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class EpochCommitted:
    """The commit of an epoch stands in the log."""

    rewind: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EpochsOver:
    """The `EndRecord` stands in the log: what was not committed is void."""

    rewind: int
    epoch: int


ToTask = RestoreTask | ResumeTask | BeginEpochEnd | EpochCommitted | EpochsOver

# From tasks to the coordinator.


@dataclass(frozen=True, slots=True)
class TaskRestored:
    """The task has returned to the last commit, and everything that this commit holds is visible outside."""

    rewind: int


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """The task's snapshot of an epoch is in the store. `finished`: after this epoch the task has nothing more to do."""

    rewind: int
    epoch: int
    file: SnapshotFile
    finished: bool = False


@dataclass(frozen=True, slots=True)
class CommitApplied:
    """Everything of a committed epoch is visible outside."""

    rewind: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RewindWanted:
    """The task cannot go on: a frame is lost, or a snapshot could not be written or read."""

    rewind: int
    reason: str


ToCoordinator = TaskRestored | SnapshotWritten | CommitApplied | RewindWanted

# On links, in the order of their tuples.


@dataclass(frozen=True, slots=True)
class Rows:
    """Tuples. Only these take credit."""

    rows: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """The end of an epoch: what follows on this link belongs to the next one."""

    epoch: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class EndMark:
    """The sending task has ended: nothing follows on this link."""


LinkItem = Rows | Barrier | EndMark


@dataclass(frozen=True, slots=True)
class SnapshotMarker:
    """In a task's inbox: all barriers of an epoch are there; the task snapshots when it gets here."""

    epoch: int
    last: bool = False
