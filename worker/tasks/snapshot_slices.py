"""Encodes what a task holds for its snapshots, in slices between its calls, so that no tuple waits for a snapshot.

Must not know: user code, files, when a snapshot is to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from worker.epochs.snapshot_files import SnapshotData, TaskSnapshot
from worker.state.contents import count_keys
from worker.state.history import changes_of
from worker.state.saved import load_parts, load_states, load_timers, with_parts
from worker.state.saving import TIMERS, StateSaving, touched_cells
from worker.state.table import StateHandle
from worker.tasks.fitting import check_key

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask, EpochSetup

#: The least seconds that a slice may take, and the part of the time since the slice before.
SLICE_SECS: Final = 0.002
SLICE_SHARE: Final = 0.25


class SnapshotSlices:
    """The snapshots of one task, one after the other."""

    def __init__(
        self, setup: EpochSetup, now: Callable[[], float], on_error: Callable[[Exception], None]
    ) -> None:
        """`on_error`: gets the error of what cannot be encoded in a later slice than the first."""
        self.chain, self.to_wall, self.history = setup.chain, setup.to_wall, setup.history
        self.now, self.on_error = now, on_error
        #: What is being encoded; None: nothing is.
        self.saving: StateSaving | None = None
        #: The file of the last snapshot.
        self.data = SnapshotData()
        #: When the last slice was encoded.
        self.sliced_at = 0.0
        #: By how much the wall clock was ahead when the last snapshot began.
        self.ahead = self.to_wall(0.0)

    def begin(self, content: TaskSnapshot, handles: list[StateHandle]) -> None:
        """Take what the task holds: all of it, or what has changed since the snapshot before. Raises an error of any kind for
        what cannot be encoded.
        """
        ahead = self.to_wall(0.0)
        content.shift, self.ahead = ahead - self.ahead, ahead
        whole = self.chain.wants_whole(touched_cells(handles))
        self.chain.begin(whole)
        self.data = SnapshotData(self.chain.groups)
        self.data.whole = False
        changes = changes_of(handles)
        # All times of a snapshot are by the wall clock as it is now.
        self.saving = StateSaving(handles, whole, lambda time: time + ahead, self.data.add, self.chain.groups)
        self.history.mark(content.epoch, ahead, changes)
        self.encode_for(SLICE_SECS)

    def encode_for(self, seconds: float) -> None:
        """Encode for about so long. Raises an error of any kind."""
        saving, until = self.saving, self.now() + seconds
        assert saving is not None
        while not saving.step() and self.now() < until:
            pass
        self.sliced_at = self.now()
        if saving.done:
            self.saving = None
            self.data.cells = saving.cells
            self.data.whole = True

    def encode(self) -> None:
        """Encode a little more, if there is more: a fifth of the task's time is for it."""
        if self.saving is None:
            return
        try:
            self.encode_for(max(SLICE_SECS, (self.now() - self.sliced_at) * SLICE_SHARE))
        except Exception as error:
            self.saving = None
            self.on_error(error)


def load_contents(task: EpochBoltTask, snapshot: TaskSnapshot) -> None:
    """Fill states and timers of a task. Raises StateError."""
    saved, parts, from_wall = snapshot.state, snapshot.parts, task.epochs.from_wall
    timed = any(part["kind"] == TIMERS and part["values"] for part in parts)
    check_key(task, saved.get("key", []), bool(saved.get("timers")) or timed)
    where = task.context.topology, task.context.component
    undeclared = load_states(task.states, saved.get("states", {}), from_wall, *where)
    load_timers(task.timers, saved.get("timers", b""), from_wall)
    same_code = task.epochs.chain.same_submission
    further = load_parts(task.states, task.timers, parts, from_wall, *where, same_code)
    task.undeclared = with_parts(undeclared, further)
    task.keys = count_keys(task.states)
    task.slices.ahead = task.epochs.to_wall(0.0)
    task.epochs.history.begin(snapshot.epoch, task.slices.ahead)


def return_contents(task: EpochBoltTask, snapshot: TaskSnapshot) -> None:
    """Give a task the states and timers that the object before it has left, as they were when this snapshot was taken."""
    history = task.epochs.history
    mark = history.return_to(snapshot.epoch, [*task.states.values(), task.timers])
    task.undeclared = history.undeclared
    task.keys = count_keys(task.states)
    task.slices.ahead = mark.ahead  # the files upon which the next snapshot builds say times by this clock
