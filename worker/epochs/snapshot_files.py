"""The files of snapshots: their names, their content, and which of them may be swept.

A name carries epoch, rewind number, task and incarnation, so no two attempts write the same file. A file counts only if a
commit names it together with its digest. The format has a version; a damaged file, or one of a newer version, is refused by
name.
Must not know: stores, what a task keeps in its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from squall.exact_structs import build_type_info
from worker.epochs.after_commit import EpochOutcome
from worker.epochs.records import SnapshotFile

VERSION: Final = 1
_HEAD: Final = b"SQEP%02d\n" % VERSION


class BadSnapshot(ValueError):
    """A snapshot file that is damaged, or that this version cannot read."""


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


build_type_info(TaskSnapshot)
_DECODER = msgspec.msgpack.Decoder(TaskSnapshot)


def encode_snapshot(snapshot: TaskSnapshot) -> tuple[SnapshotFile, bytes]:
    """Return the name and digest of a snapshot's file, and its bytes."""
    data = _HEAD + msgspec.msgpack.encode(snapshot)
    name = f"{snapshot.epoch}-{snapshot.rewind}-{snapshot.incarnation}-{snapshot.task.replace('/', '.')}"
    return SnapshotFile(name, hashlib.sha256(data).hexdigest()), data


def decode_snapshot(file: SnapshotFile, data: bytes) -> TaskSnapshot:
    """Return the snapshot in a file. Raises BadSnapshot."""
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise BadSnapshot(f"snapshot {file.name} is damaged: it has {len(data)} bytes with another digest")
    if not data.startswith(_HEAD):
        raise BadSnapshot(
            f"snapshot {file.name} begins with {data[: len(_HEAD)]!r}, not {_HEAD!r}: another version of Squall has written it"
        )
    try:
        return _DECODER.decode(data[len(_HEAD) :])
    except (msgspec.DecodeError, ValueError) as error:
        raise BadSnapshot(f"snapshot {file.name} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class SweepFiles:
    """Remove the files for which `may_remove` returns true."""

    #: The files that kept commits name.
    kept: frozenset[str]
    #: The newest rewind number, and the last commit.
    rewind: int
    epoch: int

    def may_remove(self, name: str) -> bool:
        """Return whether no commit names a file, and none ever can.

        None can if a newer rewind number stands in the log. None can either if a later epoch of the same number is committed:
        otherwise files would pile up for as long as nothing fails.
        """
        parts = name.split("-", 2)
        if name in self.kept or len(parts) < 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return False  # other files, such as those that NFS makes, are left alone
        epoch, rewind = int(parts[0]), int(parts[1])
        return rewind < self.rewind or (rewind == self.rewind and epoch <= self.epoch)


def removable(sweep: SweepFiles, names: Iterable[str]) -> list[str]:
    """Return those of the files that may be removed."""
    return [name for name in names if sweep.may_remove(name)]


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
