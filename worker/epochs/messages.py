"""What a coordinator and its tasks send each other, and what travels on the links between tasks beside rows.

Every message carries the rewind number for which it was sent. A receiver that knows a newer one refuses it. Control messages
between two living processes arrive in order, each once (`squall.transport.channels`).
Between two processes a message travels in an *envelope* that names the task, and as msgpack.
Must not know: who sends them, and how.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from squall.exact_structs import build_type_info
from worker.epochs.records import SnapshotFile

#: Why spouts pause: a cycle has to drain, or the next commit, and what it shows outside, has to come first.
HoldReason = Literal["cycle", "commit"]

# From the coordinator to tasks.


class RestoreTask(Struct, frozen=True, tag=True):
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
    #: The token of the log's first record: no other log has it.
    lineage: str = ""
    #: How many tasks each component has in the last commit; empty if `epoch` is 0.
    counts: dict[str, int] = {}
    #: Into how many groups the keys of stateful bolts are divided in the last commit; 0: it has no groups.
    groups: int = 0


class ResumeTask(Struct, frozen=True, tag=True):
    """Step two of a rewind: all tasks have been restored; run."""

    rewind: int


class BeginEpochEnd(Struct, frozen=True, tag=True):
    """The open epoch ends now and has this number: sources send its barrier. `last`: spouts emit nothing after it."""

    rewind: int
    epoch: int
    last: bool = False


class EpochCommitted(Struct, frozen=True, tag=True):
    """The commit of an epoch stands in the log."""

    rewind: int
    epoch: int


class EpochsOver(Struct, frozen=True, tag=True):
    """The `EndRecord` stands in the log: what was not committed is void."""

    rewind: int
    epoch: int


class HoldSpouts(Struct, frozen=True, tag=True):
    """Spouts emit nothing from now on, for this reason; "": they go on."""

    rewind: int
    why: str
    what: HoldReason = "cycle"


ToTask = RestoreTask | ResumeTask | BeginEpochEnd | EpochCommitted | EpochsOver | HoldSpouts

# From tasks to the coordinator.


class TaskRestored(Struct, frozen=True, tag=True):
    """The task has returned to the last commit, and everything that this commit holds is visible outside. `waits`: but for
    rows of which the next commit leaves some out."""

    rewind: int
    waits: bool = False


class SnapshotWritten(Struct, frozen=True, tag=True):
    """The task's snapshot of an epoch is in the store. `finished`: after this epoch the task has nothing more to do."""

    rewind: int
    epoch: int
    file: SnapshotFile
    finished: bool = False
    #: The size of the file.
    bytes: int = 0


class CommitApplied(Struct, frozen=True, tag=True):
    """Everything of a committed epoch is visible outside."""

    rewind: int
    epoch: int


class RewindWanted(Struct, frozen=True, tag=True):
    """The task cannot go on: a frame is lost, or a snapshot could not be written or read."""

    rewind: int
    reason: str


class TaskActive(Struct, frozen=True, tag=True):
    """Something has happened in the task's worker since the last end of an epoch began."""

    rewind: int
    #: Whether all tasks of the worker have ended.
    ended: bool = False


class EpochWanted(Struct, frozen=True, tag=True):
    """The task can do nothing before the next commit: end the open epoch, unless one ends already."""

    rewind: int


class HoldWanted(Struct, frozen=True, tag=True):
    """The task, or its worker, has reached a limit, as this text says: spouts are to pause. "": half of it is left."""

    rewind: int
    why: str
    what: HoldReason = "cycle"


ToCoordinator = (
    TaskRestored | SnapshotWritten | CommitApplied | RewindWanted | TaskActive | EpochWanted | HoldWanted
)

# Envelopes.


class ForTask(Struct, frozen=True, tag=True):
    """A message to a task of another process."""

    task: str
    message: ToTask


class ForCoordinator(Struct, frozen=True, tag=True):
    """A message of a task of another process."""

    task: str
    message: ToCoordinator


Envelope = ForTask | ForCoordinator


class BadEnvelope(ValueError):
    """Bytes that are no message of this release."""


build_type_info(ForTask, ForCoordinator)
_DECODER: Final = msgspec.msgpack.Decoder(Envelope)


def pack_envelope(envelope: Envelope) -> bytes:
    """Return the bytes of an envelope."""
    return msgspec.msgpack.encode(envelope)


def unpack_envelope(data: bytes) -> Envelope:
    """Return the envelope in some bytes. Raises BadEnvelope."""
    try:
        envelope: Envelope = _DECODER.decode(data)
        return envelope
    except msgspec.MsgspecError as error:
        raise BadEnvelope(str(error)) from error


# On links, in the order of their tuples.


class Rows(msgspec.Struct, frozen=True):
    """Tuples. Only these take credit."""

    rows: tuple[Any, ...]


class Barrier(msgspec.Struct, frozen=True):
    """The end of an epoch: what follows on this link belongs to the next one."""

    epoch: int
    last: bool = False


class EndMark(msgspec.Struct, frozen=True):
    """The sending task has ended: nothing follows on this link."""


LinkItem = Rows | Barrier | EndMark


class SnapshotMarker(msgspec.Struct, frozen=True):
    """In a task's inbox: all barriers of an epoch are there; the task snapshots when it gets here."""

    epoch: int
    last: bool = False
