"""The files of snapshots: their names, their content, and which of them may be swept.

A name carries epoch, rewind number, task and incarnation, so no two attempts write the same file. A file counts only if a
commit names it together with its digest, or a file that counts does. The format has a version; a damaged file, or one of a
newer version, is refused by name.
A file holds *parts*, which were encoded while the task went on, and behind them the `TaskSnapshot`. Its parts are all that the
task held, or what had changed since the file before: then the snapshot names the files that it builds upon.
Must not know: stores, what a task keeps in its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced

from squall.exact_structs import build_type_info
from worker.epochs.after_commit import EpochOutcome
from worker.epochs.records import CommitRecord, SnapshotFile

VERSION: Final = 2
_HEAD: Final = b"SQEP%02d\n" % VERSION
#: The head of a file that is a `TaskSnapshot` alone, without parts: what earlier releases have written.
_HEAD_1: Final = b"SQEP01\n"
#: The bytes before a part, and before the snapshot: how long it is.
_LENGTH: Final = 8


class BadSnapshot(ValueError):
    """A snapshot file that is damaged, or that this version cannot read."""


class SnapshotLink(Struct, frozen=True):
    """A file that a snapshot consists of."""

    name: str
    digest: str
    bytes: int


class TaskSnapshot(Struct):
    """What one task wrote for one epoch, as plain values."""

    task: str
    epoch: int
    rewind: int
    incarnation: int
    #: Keyed state, timers, and whatever else the task's own code keeps.
    state: Any = None
    #: (target task, stream, rows) that had not left yet.
    outboxes: list[tuple[str, str, list[Any]]] = []
    #: (source task, rows) that came over the closing edges of cycles, behind this task's snapshot and before their barrier.
    recorded: list[tuple[str, list[Any]]] = []
    #: Tuples that the task holds unsettled: executed again after a rewind.
    held: list[Any] = []
    #: (tuple or timer, failures, seconds until it is tried again).
    parked: list[tuple[Any, int, float]] = []
    #: A spout's position, and values of a spout that cannot rewind, which it must emit again.
    position: Any = None
    again: list[tuple[Any, Any]] = []
    finished: bool = False
    #: Input tasks whose end mark was executed, and target tasks to which this task has sent its own.
    ended: list[str] = []
    ends_sent: list[str] = []
    #: To be shown after this commit or an earlier one, and not confirmed yet.
    outcomes: list[EpochOutcome] = []
    #: The files before this one that it builds upon, the whole one first. `read_chain` adds this one.
    chain: list[SnapshotLink] = []
    #: How many cells the whole one holds, and the submission that has written all of them.
    cells: int = 0
    submission: str = ""
    #: By how many seconds the wall clock was moved since the file before was begun.
    shift: float = 0.0
    #: (component, stream, its fields): of streams whose rows are here. Empty in files of earlier releases, and without rows.
    fields: list[tuple[str, str, list[str]]] = []
    #: Empty in the file. After reading: the parts of all files of the chain, in the order in which they were written.
    parts: list[Any] = []

    def has_rows(self) -> bool:
        """Return whether there are rows of streams, or outcomes, which may hold some."""
        rows = (self.outboxes, self.recorded, self.held, self.parked, self.again, self.outcomes)
        return any(rows)


build_type_info(TaskSnapshot)
_DECODER = msgspec.msgpack.Decoder(TaskSnapshot)


class SnapshotData:
    """The bytes of a file, which are put together piece by piece."""

    def __init__(self) -> None:
        self.data = bytearray(_HEAD)
        #: How many cells the parts hold.
        self.cells = 0
        #: Whether all parts are there.
        self.whole = True
        self.name = ""
        self.since = 0
        #: What is behind the parts, once the file is whole.
        self.last = b""

    def add(self, piece: bytes) -> None:
        """Add a part."""
        self.data += len(piece).to_bytes(_LENGTH, "big")
        self.data += piece

    def finish(self, snapshot: TaskSnapshot) -> None:
        """Add the snapshot: nothing follows."""
        if not snapshot.chain:
            snapshot.cells = self.cells
        self.last = msgspec.msgpack.encode(snapshot)
        self.add(self.last)
        self.name = (
            f"{snapshot.epoch}-{snapshot.rewind}-{snapshot.incarnation}-{snapshot.task.replace('/', '.')}"
        )
        self.since = epoch_of(snapshot.chain[0].name) if snapshot.chain else 0

    def file(self) -> SnapshotFile:
        """Return name and digest. This takes its time, and any thread may ask."""
        return SnapshotFile(self.name, hashlib.sha256(self.data).hexdigest(), self.since)


def pack_snapshot(snapshot: TaskSnapshot) -> bytes:
    """Return a snapshot without its parts."""
    return msgspec.msgpack.encode(replaced(snapshot, parts=[]))


def unpack_snapshot(packed: bytes) -> TaskSnapshot:
    """Return the snapshot that `pack_snapshot` has packed, or that is in a file behind the parts."""
    return _DECODER.decode(packed)


def encode_snapshot(snapshot: TaskSnapshot) -> tuple[SnapshotFile, bytes]:
    """Return the name and digest of a file that holds a snapshot with all its parts, and the bytes of the file."""
    data = SnapshotData()
    for part in snapshot.parts:
        data.add(msgspec.msgpack.encode(part))
    data.cells = snapshot.cells
    data.finish(replaced(snapshot, parts=[], chain=[]))
    return data.file(), bytes(data.data)


def decode_snapshot(file: SnapshotFile | SnapshotLink, data: bytes) -> TaskSnapshot:
    """Return the snapshot in a file, with its own parts. Raises BadSnapshot."""
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise BadSnapshot(f"snapshot {file.name} is damaged: it has {len(data)} bytes with another digest")
    if not data.startswith((_HEAD, _HEAD_1)):
        raise BadSnapshot(
            f"snapshot {file.name} begins with {data[: len(_HEAD)]!r}, not {_HEAD!r}: another version of Squall has written it"
        )
    try:
        if data.startswith(_HEAD_1):
            return _DECODER.decode(data[len(_HEAD_1) :])
        *parts, last = _pieces(memoryview(data)[len(_HEAD) :])
        snapshot = _DECODER.decode(last)
        snapshot.parts = [msgspec.msgpack.decode(part) for part in parts]
    except (msgspec.DecodeError, ValueError) as error:
        raise BadSnapshot(f"snapshot {file.name} cannot be read: {error}") from error
    return snapshot


def read_chain(file: SnapshotFile, read: Callable[[str], bytes]) -> TaskSnapshot:
    """Return a snapshot with the parts of all files that it consists of. `read`: returns the content of a file. Raises
    BadSnapshot, and what `read` raises.
    """
    data = read(file.name)
    snapshot = decode_snapshot(file, data)
    shift, own = snapshot.shift, snapshot.parts
    for link in reversed(snapshot.chain):
        earlier = decode_snapshot(link, read(link.name))
        for part in earlier.parts:
            part["shift"] = part.get("shift", 0.0) + shift
        own = earlier.parts + own
        shift += earlier.shift
    snapshot.parts = own
    if data.startswith(_HEAD):  # nothing builds upon a file of an earlier release
        snapshot.chain.append(SnapshotLink(file.name, file.digest, len(data)))
    return snapshot


def _pieces(data: memoryview) -> list[memoryview]:
    """Return the pieces of a file. Raises ValueError."""
    found, at = [], 0
    while at < len(data):
        start = at + _LENGTH
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            raise ValueError("it ends too early")
        found.append(data[start:at])
    return found


def epoch_of(name: str) -> int:
    """Return the epoch in the name of a file."""
    return int(name.partition("-")[0])


@dataclass(frozen=True, slots=True)
class SweepFiles:
    """Remove the files for which `may_remove` returns true."""

    #: The files that kept commits name.
    kept: frozenset[str]
    #: The newest rewind number, and the last commit.
    rewind: int
    epoch: int
    #: "component.index" -> the oldest epoch whose file a kept commit's snapshot of this task builds upon.
    since: Mapping[str, int] = field(default_factory=dict)

    def may_remove(self, name: str) -> bool:
        """Return whether no commit needs a file, and none ever can.

        None can if a newer rewind number stands in the log. None can either if a later epoch of the same number is committed:
        otherwise files would pile up for as long as nothing fails.
        """
        parts = name.split("-", 3)
        if name in self.kept or len(parts) < 4 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return False  # other files, such as those that NFS makes, are left alone
        epoch, rewind = int(parts[0]), int(parts[1])
        if epoch >= self.since.get(parts[3], epoch + 1):
            return False
        return rewind < self.rewind or (rewind == self.rewind and epoch <= self.epoch)


def removable(sweep: SweepFiles, names: Iterable[str]) -> list[str]:
    """Return those of the files that may be removed."""
    return [name for name in names if sweep.may_remove(name)]


def sweep_of(commits: Iterable[CommitRecord], rewind: int, epoch: int) -> SweepFiles:
    """Return what may be removed while these commits are kept."""
    kept: set[str] = set()
    since: dict[str, int] = {}
    for commit in commits:
        for task, file in commit.files.items():
            kept.add(file.name)
            if file.since:
                name = task.replace("/", ".")
                since[name] = min(file.since, since.get(name, file.since))
    return SweepFiles(frozenset(kept), rewind, epoch, since)


def leftovers(sweep: SweepFiles, names: Iterable[str]) -> list[str]:
    """Return those of the names of unfinished files, `<name>.<random>`, that may be removed: of snapshots as above, and of
    records up to the one that began the last rewind, since others stand at their numbers."""
    found = []
    for name in names:
        whole = name.rpartition(".")[0]
        if whole.isdecimal():
            removed = int(whole) <= sweep.rewind
        else:
            removed = replace(sweep, kept=frozenset()).may_remove(whole)
        if removed:
            found.append(name)
    return found
