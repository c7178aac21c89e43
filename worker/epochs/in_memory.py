"""The snapshots to which a living task can return without reading them from the store.

Of each snapshot that it has written or read, a task keeps in memory what belongs to no key: outboxes, parked tuples, position,
outcomes, as they are in its file. What belongs to keys is undone by `TaskUndo`. Kept are those of the last commit that the task
knows of, and of the epochs after it.

Why a task that lives may return in memory although the assignment is another one: where a task runs is in no snapshot. What is
held is what would be read as long as three things are as they were.
- The file. The log names the files of its last commit, and a file's name and digest are used once. So the task has written, or
  read, exactly what is named, however many assignments it has missed. Another file is of another process: it is read.
- The share of the task. If its component has another number of tasks now, it needs other keys, and perhaps what tasks held that
  are gone; the same file may still be all that it needs. It is read.
- The names of the tasks around it. In what is held are tuples on their way to others, and inputs that have ended. If another
  component has another number of tasks now, these are changed as after reading (`renumbered`). That is done from the numbers of
  the commit, once. A snapshot that was read, and so changed already, for numbers that are no more, is read again.
Must not know: what is undone, and how; stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

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


#: How many tasks each component has.
Numbers = Mapping[str, int]


class HeldSnapshot(msgspec.Struct, frozen=True):
    """A snapshot without its parts."""

    #: The files from which it would be read.
    files: Mapping[str, SnapshotFile]
    packed: bytes
    #: Its own file, if that is not among those that it builds upon.
    link: SnapshotLink | None
    #: The numbers of tasks to which it was changed when it was read; None: it has those of its commit.
    numbers: Numbers | None


class InMemory:
    """The snapshots of one task. The caller sets `numbers` with each assignment."""

    def __init__(self, undo: TaskUndo, component: str = "") -> None:
        """`component`: that of the task."""
        self.undo, self.component = undo, component
        self.numbers: Numbers = {}
        #: Epoch -> its snapshot.
        self.held: dict[int, HeldSnapshot] = {}

    def written(self, task: str, epoch: int, file: SnapshotFile, packed: bytes, size: int) -> None:
        """A snapshot is in the store. `packed`: what is in the file behind the parts. `size`: the bytes of the file."""
        self.held[epoch] = HeldSnapshot({task: file}, packed, link_to(file, size), None)

    def read(self, epoch: int, files: Mapping[str, SnapshotFile], snapshot: TaskSnapshot) -> None:
        """The task begins with a snapshot that was read from these files."""
        self.held = {epoch: HeldSnapshot(files, pack_snapshot(snapshot), None, self.numbers)}

    def commit(self, epoch: int) -> None:
        """An epoch is committed: no rewind goes to one before it."""
        self.held = {each: held for each, held in self.held.items() if each >= epoch}
        self.undo.forget_before(epoch)

    def back_to(
        self, epoch: int, files: Mapping[str, SnapshotFile], before: Numbers | None = None
    ) -> TaskSnapshot | None:
        """A rewind goes to an epoch, for which the log names these files. Return its snapshot, without parts, if the task can
        return to it; None: it has to be read, and nothing is held. `before`: the numbers of tasks at this commit; None: those
        of now.
        """
        held = self.held.get(epoch)
        before = self.numbers if before is None else before
        if held is None or not self.fits(held, files, before) or not self.undo.can_return(epoch):
            self.forget()
            return None
        self.held = {epoch: held}
        snapshot = unpack_snapshot(held.packed)
        if held.link is not None:
            snapshot.chain.append(held.link)
        return snapshot

    def fits(self, held: HeldSnapshot, files: Mapping[str, SnapshotFile], before: Numbers) -> bool:
        """Return whether a snapshot is what would be read of these files, but for the names of other tasks in it."""
        if held.files != files or not keeps_share(self.component, before, self.numbers):
            return False
        return held.numbers is None or not renumbered(held.numbers, self.numbers)

    def is_outdated(self, epoch: int, before: Numbers) -> bool:
        """Return whether the snapshot of an epoch is yet to be changed for the numbers of tasks that there are now."""
        held = self.held.get(epoch)
        return held is not None and held.numbers is None and bool(renumbered(before, self.numbers))

    def forget(self) -> None:
        """Hold nothing: the next rewind reads."""
        self.held = {}
        self.undo.forget()


def renumbered(before: Numbers, now: Numbers) -> frozenset[str]:
    """Return the components whose number of tasks is another one now. Those that are gone, or new, are not among them."""
    return frozenset(name for name, count in before.items() if now.get(name, count) != count)


def keeps_share(component: str, before: Numbers, now: Numbers) -> bool:
    """Return whether the tasks of a component have the same keys as before."""
    return component not in renumbered(before, now)
