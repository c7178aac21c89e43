"""The snapshots to which a living task can return without reading them from the store.

Of each snapshot that it has written or read, a task keeps in memory what belongs to no key: outboxes, parked tuples, position,
outcomes, as they are in its file. What belongs to keys is undone by `TaskUndo`. Kept are those of the last commit that the task
knows of, and of the epochs after it. A rewind that names another file than the one that is held reads it from the store: such a
file is of another process, or of another assignment.
Must not know: what is undone, and how; stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import SnapshotLink, TaskSnapshot, link_to, pack_snapshot, unpack_snapshot


class TaskUndo(Protocol):
    """Undoes what a task's calls have changed."""

    def can_return(self, epoch: int) -> bool:
        """Return whether it can be undone to the marker of this epoch."""

    def forget_before(self, epoch: int) -> None:
        """An epoch is committed: nothing is undone to one before it."""

    def forget(self) -> None:
        """The task reads a snapshot, or nothing is left to it."""


class NothingToUndo:
    """Of a task without state."""

    def can_return(self, epoch: int) -> bool:
        """See `TaskUndo`."""
        return True

    def forget_before(self, epoch: int) -> None:
        """See `TaskUndo`."""

    def forget(self) -> None:
        """See `TaskUndo`."""


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot without its parts."""

    #: The files from which it would be read.
    files: Mapping[str, SnapshotFile]
    packed: bytes
    #: Its own file, if that is not among those that it builds upon.
    link: SnapshotLink | None


class InMemory:
    """The snapshots of one task."""

    def __init__(self, undo: TaskUndo) -> None:
        self.undo = undo
        #: Epoch -> its snapshot.
        self.held: dict[int, HeldSnapshot] = {}

    def written(self, task: str, epoch: int, file: SnapshotFile, packed: bytes, size: int) -> None:
        """A snapshot is in the store. `packed`: what is in the file behind the parts. `size`: the bytes of the file."""
        self.held[epoch] = HeldSnapshot({task: file}, packed, link_to(file, size))

    def read(self, epoch: int, files: Mapping[str, SnapshotFile], snapshot: TaskSnapshot) -> None:
        """The task begins with a snapshot that was read from these files."""
        self.held = {epoch: HeldSnapshot(files, pack_snapshot(snapshot), None)}

    def commit(self, epoch: int) -> None:
        """An epoch is committed: no rewind goes to one before it."""
        self.held = {each: held for each, held in self.held.items() if each >= epoch}
        self.undo.forget_before(epoch)

    def back_to(self, epoch: int, files: Mapping[str, SnapshotFile]) -> TaskSnapshot | None:
        """A rewind goes to an epoch, for which the log names these files. Return its snapshot, without parts, if the task can
        return to it; None: it has to be read, and nothing is held.
        """
        held = self.held.get(epoch)
        if held is None or held.files != files or not self.undo.can_return(epoch):
            self.forget()
            return None
        self.held = {epoch: held}
        snapshot = unpack_snapshot(held.packed)
        if held.link is not None:
            snapshot.chain.append(held.link)
        return snapshot

    def forget(self) -> None:
        """Hold nothing: the next rewind reads."""
        self.held = {}
        self.undo.forget()
