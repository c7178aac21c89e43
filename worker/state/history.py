"""What the states of one task were at its last markers, so that the task returns to a commit without reading its snapshot.

Between two markers, each handle keeps what the cells were that change (`StateHandle.touched`). The history keeps these until a
later commit is known, so it holds what has changed in two or three epochs, not the states. A rewind closes the task: `leave`
takes the handles of the object that was closed, and `return_to` gives their contents to those of the object that takes its
place, as they were. This costs time for what has changed alone.
Values of an immutable type are kept by reference, those of a mutable one as the bytes of their first touch after a marker.
After a return, a value that the void epochs had written may be swept a little later than by its `ttl`; it is not read any more.
Must not know: tasks, files, which epochs are committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from worker.state.table import StateHandle

#: For each handle, its `touched`: what its cells were that have changed.
Changes = list[Any]


def changed_cells(handle: StateHandle) -> Any:
    """Return the cells that have changed since the last marker, with what they were; of a `PlainValueHandle`, its
    `RecentValues`."""
    return {} if handle.touched is None else handle.touched


def changes_of(handles: Iterable[StateHandle]) -> Changes:
    """Return what has changed since the last marker. To be called before the handles go on from the next one."""
    return list(map(changed_cells, handles))


@dataclass(slots=True, eq=False)
class StateMark:
    """A marker that the task has reached, or the snapshot with which it began."""

    epoch: int
    #: By how much the wall clock was ahead of the task's clock.
    ahead: float
    #: What has changed until the next marker; None: there was none yet.
    changes: Changes | None = None


class StateHistory:
    """The last markers of one task. It outlives the task's objects, and has one at a time."""

    def __init__(self) -> None:
        #: The oldest first. The loop removes from the front, and the task adds at the end, perhaps in its own thread.
        self.marks: list[StateMark] = []
        #: The handles of an object that was closed; None: an object is there, or nothing can be returned to.
        self.left: list[StateHandle] | None = None
        #: What its last commit had of states that the bolt does not declare.
        self.undeclared: dict[str, Any] = {}
        #: Whether a state held what no snapshot can hold: from then on, each call is checked.
        self.checked = False

    def begin(self, epoch: int, ahead: float) -> None:
        """The states hold what a snapshot says that was read, and nothing has changed since."""
        self.left, self.marks = None, [StateMark(epoch, ahead)]

    def mark(self, epoch: int, ahead: float, changes: Changes) -> None:
        """The task has reached a marker. `changes`: since the marker before."""
        if self.marks:
            self.marks[-1].changes = changes
        self.marks.append(StateMark(epoch, ahead))

    def forget_before(self, epoch: int) -> None:
        """An epoch is committed: the task returns to no epoch before it."""
        while len(self.marks) > 1 and self.marks[1].epoch <= epoch:
            self.marks.pop(0)

    def forget(self) -> None:
        """What the task held is of no use any more."""
        self.left, self.marks, self.undeclared = None, [], {}

    def leave(self, handles: list[StateHandle], undeclared: dict[str, Any]) -> None:
        """The task is closed, and another object takes its place. If that one is closed before it has returned, the contents
        are still those that the object before it has left.
        """
        if self.left is None:
            self.left, self.undeclared = handles, undeclared

    def can_return(self, epoch: int) -> bool:
        """Return whether `return_to` can give the states as they were at this epoch."""
        return self.left is not None and any(mark.epoch == epoch for mark in self.marks)

    def return_to(self, epoch: int, handles: list[StateHandle]) -> StateMark:
        """Give these handles, which hold nothing, the states as they were at an epoch; return its mark. The handles are of the
        same states, in the same order, as those that were left.
        """
        left, self.left = self.left, None
        assert left is not None
        at = next(at for at, mark in enumerate(self.marks) if mark.epoch == epoch)
        void = [mark.changes for mark in reversed(self.marks[at:]) if mark.changes is not None]
        for number, (old, new) in enumerate(zip(left, handles, strict=True)):
            [changed] = changes_of([old])
            for changes in void:
                old.merge_older(changed, changes[number])
            old.bring_back(changed)
            new.take_over(old)
        mark = self.marks[at]
        mark.changes = None
        self.marks = [mark]
        return mark
