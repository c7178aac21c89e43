"""The records of the log of epochs, and how they are written as bytes.

One log belongs to a lineage: the life of a topology's state over submissions, versions and assignments. Its records are
numbered from 1, and each is put only if there is none at its number. The number of a `LeadRecord` or `RewindRecord` is the
*rewind number* of everything that follows, until the next such record.
Must not know: who writes records, where they are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from squall.exact_structs import build_type_info
from worker.routing.key_groups import GroupRange

#: Why a log ends.
COMPLETED: Final = "completed"
KILLED: Final = "killed"
#: The length of a lineage's name for the outside.
LINEAGE_DIGITS: Final = 16


class BadLog(ValueError):
    """A record that cannot be read, or that no coordinator can have written."""


class SnapshotFile(Struct, frozen=True):
    """A snapshot that a commit counts. A file of this name with another digest is damaged."""

    name: str
    digest: str
    #: The epoch of the oldest file of the same task that this one builds upon; 0: it is whole.
    since: int = 0
    #: Where what follows its parts begins; 0: it is of an earlier release, and can only be read as a whole.
    tail: int = 0
    #: The key groups of the keys in it; None: it is not divided by groups, and may hold any key.
    groups: GroupRange | None = None
    #: Whether some of the task's inputs had ended.
    ending: bool = False

    def renamed(self, name: str) -> SnapshotFile:
        """Return what a commit says of the same file under another name."""
        return replace(self, name=name)


class CommitRecord(Struct, frozen=True, tag="commit"):
    """An epoch counts."""

    token: str
    epoch: int
    rewind: int
    #: "component/index" -> its snapshot. The handles and rows of sinks, parked tuples and dead letters are inside.
    files: dict[str, SnapshotFile]
    #: The tasks that have nothing more to do after this epoch.
    finished: tuple[str, ...] = ()
    #: Into how many groups the keys of its stateful bolts are divided; 0: an earlier release has written it, without groups.
    groups: int = 0


class StartPoint(Struct, frozen=True):
    """The epoch with which a submission begins, in place of the last commit. It counts until the submission's own first commit:
    if another submission leads before that, the last commit does."""

    commit: CommitRecord
    #: Whether the epoch is of another log: then a new lineage begins with the first commit.
    foreign: bool = False


class LeadRecord(Struct, frozen=True, tag="lead"):
    """A coordinator has begun to lead; each earlier one leads no longer."""

    #: Identifies this record: no two attempts to write have the same token, so a writer that reads it back knows its own.
    token: str
    leader: str
    #: The version of the assignment for which the coordinator was started.
    assignment: int
    #: The submission to which the assignment belongs. Versions begin at 1 in each; "": they never do.
    submission: str = ""
    #: Where the submission begins, if not with the last commit.
    start: StartPoint | None = None
    #: How many of the newest commits are kept from now on; 0: as many as before, or an earlier release has written it.
    keep: int = 0


class RewindRecord(Struct, frozen=True, tag="rewind"):
    """All tasks return to the last commit before this record; what came after that commit is void."""

    token: str
    assignment: int


class DropRecord(Struct, frozen=True, tag="drop"):
    """Snapshots were deleted by an operator, or rewritten without a state: no commit, before or after this, names the old
    ones."""

    token: str
    #: Names of files -> the files in their places; None: there is none.
    files: dict[str, SnapshotFile | None]


class EndRecord(Struct, frozen=True, tag="end"):
    """No epoch follows in this submission. A `LeadRecord` after it belongs to the next one."""

    token: str
    #: The last commit; 0: there is none.
    epoch: int
    reason: str


class CommitFacts(Struct, frozen=True):
    """What is known of a commit beside its record."""

    #: The number of its record.
    number: int
    #: The submission that has committed it.
    submission: str = ""
    #: How the topology ended after it; None: it did not, or went on.
    end: str | None = None
    #: When its record was written, in seconds since 1970, by the clock of the file system; None: its file says so.
    at: float | None = None


class FloorRecord(Struct, frozen=True, tag="floor"):
    """What the first records of a log say together: see `trimming`, and for the fields `LogView`. It is in a file of its own,
    and stands for these records."""

    #: How many records.
    number: int
    lineage: str
    leader: str
    leaders: list[str]
    rewind: int
    assignment: int
    submission: str | None
    rewinds: int
    bases: dict[str, int]
    next_epoch: int
    commits: list[CommitRecord]
    switches: list[CommitRecord]
    led_by: str
    committed_by: str
    start: StartPoint | None
    next_lineage: str
    edits: dict[str, SnapshotFile | None]
    end: EndRecord | None
    #: Epoch -> what is known of its commit; of the kept ones.
    facts: dict[int, CommitFacts]
    #: How many of the newest commits are kept; 0: an earlier release has written it.
    keep: int = 0


LogRecord = LeadRecord | CommitRecord | RewindRecord | DropRecord | EndRecord | FloorRecord

build_type_info(LeadRecord, CommitRecord, RewindRecord, DropRecord, EndRecord, FloorRecord)
_DECODER = msgspec.msgpack.Decoder(LogRecord)


def left_behind(newest: CommitRecord | None, tasks: Iterable[str]) -> dict[str, SnapshotFile]:
    """Return the snapshots of components that a topology does not have any more: a later version may have them again."""
    here = {component_of(task) for task in tasks}
    there = newest.files if newest is not None else {}
    return {task: file for task, file in there.items() if component_of(task) not in here}


def short_lineage(lineage: str) -> str:
    """Return the name of a lineage for the outside: in tokens, names of files and ids of dead letters."""
    return hashlib.sha256(lineage.encode()).hexdigest()[:LINEAGE_DIGITS]


def component_of(task: str) -> str:
    """Return the component of a task, "component/index"."""
    return task.partition("/")[0]


def edited(record: CommitRecord, edits: Mapping[str, SnapshotFile | None]) -> CommitRecord:
    """Return a commit as it is after `DropRecord`s."""
    if not any(file.name in edits for file in record.files.values()):
        return record
    files = {task: edits.get(file.name, file) for task, file in record.files.items()}
    return replace(record, files={task: file for task, file in files.items() if file is not None})


def encode_record(record: LogRecord) -> bytes:
    """Return the bytes of a record."""
    return msgspec.msgpack.encode(record)


def decode_record(number: int, data: bytes) -> LogRecord:
    """Return the record that stands at a number of the log. Raises BadLog."""
    try:
        record: LogRecord = _DECODER.decode(data)
        return record
    except (msgspec.DecodeError, ValueError) as error:
        raise BadLog(
            f"record {number} of the log of epochs cannot be read ({error}): restore the file, or set another "
            "topology.state.path"
        ) from error


def decode_floor(number: int, data: bytes) -> FloorRecord:
    """Return the floor in the file of a number. Raises BadLog."""
    try:
        floor = _DECODER.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadLog(
            f"floor {number} of the log of epochs cannot be read ({error}): restore the file, or set another "
            "topology.state.path"
        ) from error
    if not isinstance(floor, FloorRecord) or floor.number != number:
        raise BadLog(f"floor {number} of the log of epochs is another record: do not edit the log")
    return floor
