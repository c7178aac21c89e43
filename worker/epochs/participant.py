"""A task's part in epochs: what it does at a barrier, at a commit and at a rewind.

| phase | meaning | ends with |
|---|---|---|
| IDLE | a new process; nothing was heard of a coordinator | `RestoreTask` |
| RESTORING | stopped; snapshots are being read, or are in memory | their content |
| SHOWING | what the commit holds is being shown outside | the last confirmation |
| RESTORED | waits for the other tasks | `ResumeTask` |
| RUNNING | runs | `RestoreTask`, `EpochsOver` |
| OVER | stopped for good | |

The caller runs user code, keeps state and outboxes, and does what the effects say, in their order. It snapshots when it reaches
the marker in its inbox: `end_epoch`. Messages and frames of an older rewind number are refused; frames of a newer one wait.
Must not know: links, stores, user code, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec

from worker.epochs.after_commit import HANDLE, LETTERS, ROWS, AfterCommit, EpochOutcome
from worker.epochs.alignment import Alignment, InboxItem
from worker.epochs.emissions import Emissions
from worker.epochs.in_memory import InMemory
from worker.epochs.messages import (
    Barrier,
    BeginEpochEnd,
    CommitApplied,
    EpochCommitted,
    EpochsOver,
    EpochWanted,
    HoldSpouts,
    LinkItem,
    RestoreTask,
    ResumeTask,
    RewindWanted,
    Rows,
    SnapshotMarker,
    SnapshotWritten,
    TaskRestored,
    ToCoordinator,
    ToTask,
)
from worker.epochs.parking import Parked, Parking
from worker.epochs.records import SnapshotFile
from worker.epochs.sinks import ReadToken, Show, ShowAnswer, Showing
from worker.epochs.snapshot_chain import SnapshotChain
from worker.epochs.snapshot_files import SnapshotData, TaskSnapshot, link_to


class TaskPhase(Enum):
    """See the table above."""

    IDLE = auto()
    RESTORING = auto()
    SHOWING = auto()
    RESTORED = auto()
    RUNNING = auto()
    OVER = auto()


class FrameAdmission(Enum):
    """What happens to a frame of some rewind number."""

    NOW = auto()
    WAIT = auto()
    REFUSE = auto()


class StopTask(msgspec.Struct, frozen=True):
    """Stop calling user code; drop inbox, outboxes, and what running calls will have done."""


class ReadSnapshots(msgspec.Struct, frozen=True):
    """Read these files, and pass their content to `snapshots_read`."""

    rewind: int
    files: dict[str, SnapshotFile]


class ReturnInMemory(msgspec.Struct, frozen=True):
    """Pass this snapshot to `snapshots_read`: the task can return to it without its parts."""

    rewind: int
    snapshot: TaskSnapshot


class LoadSnapshot(msgspec.Struct, frozen=True):
    """The task is as in this snapshot now; None: it begins with nothing. Do not run yet."""

    snapshot: TaskSnapshot | None
    #: Whether the snapshot has no parts: what belongs to keys is undone to its marker.
    in_memory: bool = False


class RunTask(msgspec.Struct, frozen=True):
    """Run."""


class PutInInbox(msgspec.Struct, frozen=True):
    """Add to the task's inbox."""

    items: tuple[InboxItem, ...]


class SendBarrier(msgspec.Struct, frozen=True):
    """Send the barrier to every target that has not got this task's end mark, ahead of what is in outboxes."""

    barrier: Barrier


class WriteSnapshot(msgspec.Struct, frozen=True):
    """Write a file, and call `snapshot_written` with its name and digest."""

    rewind: int
    epoch: int
    data: SnapshotData


class AckEmissions(msgspec.Struct, frozen=True):
    """Call `ack` of the spout for these message ids."""

    ids: tuple[Any, ...]


class AbortHandle(msgspec.Struct, frozen=True):
    """Call a staged sink's `abort`: the log says that the epoch is void."""

    epoch: int
    handle: Any


class SendToCoordinator(msgspec.Struct, frozen=True):
    """Send a message to the coordinator."""

    message: ToCoordinator


TaskEffect = (
    StopTask
    | ReadSnapshots
    | ReturnInMemory
    | LoadSnapshot
    | RunTask
    | PutInInbox
    | SendBarrier
    | WriteSnapshot
    | AckEmissions
    | AbortHandle
    | SendToCoordinator
    | Show
)


@dataclass(slots=True, eq=False)
class Ending:
    """An epoch whose snapshot is being put together and written."""

    snapshot: TaskSnapshot
    finished: bool
    #: Whether the sink's handle, if there is one, is in the snapshot.
    prepared: bool
    #: The file, whose parts are perhaps still being encoded.
    data: SnapshotData
    written: bool = False


#: Makes one snapshot of those that a task inherits.
Merge = Callable[[list[TaskSnapshot]], TaskSnapshot]


class Participant:
    """One process of one task."""

    def __init__(
        self,
        task: str,
        incarnation: int,
        alignment: Alignment,
        parking: Parking,
        emissions: Emissions,
        choose_files: Callable[[dict[str, SnapshotFile]], dict[str, SnapshotFile]],
        in_memory: InMemory,
    ) -> None:
        """`choose_files`: of a component's snapshots, those that this task reads."""
        self.task = task
        self.index = int(task.rpartition("/")[2])
        self.incarnation = incarnation
        self.alignment = alignment
        self.parking = parking
        self.emissions = emissions
        self.choose_files = choose_files
        self.in_memory = in_memory
        #: The files from which the rewind at hand goes on.
        self.files: dict[str, SnapshotFile] = {}
        #: Whether what is held for it names tasks as they were numbered at the commit, and no more.
        self.outdated = False
        self.chain = SnapshotChain()
        #: The submission in which this process runs.
        self.submission = ""
        #: Makes plain values of rows that came over the closing edges of cycles.
        #: The fields of the streams that the task reads and writes: see `TaskSnapshot.fields`.
        self.row_fields: list[tuple[str, str, list[str]]] = []
        self.pack_recorded: Callable[[Rows], list[Any]] = lambda item: list(item.rows)
        self.after_commit = AfterCommit()
        self.showing = Showing(self.after_commit)
        self.phase = TaskPhase.IDLE
        self.rewind = 0
        #: The last commit that this task knows of, and the last one that it has reported as applied.
        self.epoch = 0
        self.applied = 0
        self.ending: Ending | None = None
        #: Why the spout of this task may emit nothing, although it is active: some task has reached a limit; "": it may.
        self.held = ""
        #: Whether the coordinator was asked to end the open epoch.
        self.asked = False
        #: Whether a process before this one may have emitted what is in the snapshot.
        self.new = True

    # Messages of the coordinator.

    def message(self, message: ToTask) -> list[TaskEffect]:
        """Follow a message."""
        if isinstance(message, RestoreTask):
            return self.restore(message) if message.rewind > self.rewind else []
        if isinstance(message, EpochsOver) and self.phase is TaskPhase.IDLE:
            self.rewind = message.rewind  # this process was started when the log had already ended
        if not self.is_current(message.rewind):
            return []
        if isinstance(message, EpochCommitted):
            return self.committed(message.epoch)
        if isinstance(message, EpochsOver):
            return self.over(message.epoch)
        if isinstance(message, HoldSpouts):
            self.held = message.why
            return []
        if isinstance(message, BeginEpochEnd):
            running = self.phase is TaskPhase.RUNNING
            return self.into_inbox(self.alignment.begin(message.epoch, message.last)) if running else []
        assert isinstance(message, ResumeTask)
        if self.phase is not TaskPhase.RESTORED:
            return []
        self.phase = TaskPhase.RUNNING
        return [RunTask()]

    def is_current(self, rewind: int) -> bool:
        """Return whether a message or an answer belongs to the present rewind number."""
        return rewind == self.rewind

    def into_inbox(self, items: list[InboxItem]) -> list[TaskEffect]:
        """Pass on what enters the inbox; and write the snapshot if a barrier has made it whole."""
        effects: list[TaskEffect] = [PutInInbox(tuple(items))] if items else []
        return [*effects, *self.write_if_whole()]

    # A rewind.

    def restore(self, message: RestoreTask) -> list[TaskEffect]:
        """Step one: stop, and return to the last commit: in memory, or by reading snapshots. Void handles are aborted."""
        self.rewind = message.rewind
        self.phase = TaskPhase.RESTORING
        self.ending, self.asked, self.held = None, False, ""
        effects: list[TaskEffect] = [StopTask(), *self.commit_known(message.epoch), *self.abort_void()]
        self.emissions.rewind()
        self.files = self.choose_files(message.files)
        held = self.in_memory.back_to(message.epoch, self.files, message.counts)
        self.outdated = self.in_memory.is_outdated(message.epoch, message.counts)
        if held is not None:
            return [*effects, ReturnInMemory(message.rewind, held)]
        return [*effects, ReadSnapshots(message.rewind, self.files)]

    def abort_void(self) -> list[TaskEffect]:
        """Abort what was prepared for epochs that are void: those after the last commit, which a newer record ends."""
        void = self.after_commit.void(self.epoch)
        return [AbortHandle(outcome.epoch, outcome.value) for outcome in void if outcome.kind == HANDLE]

    def snapshots_read(
        self,
        rewind: int,
        snapshots: Iterable[TaskSnapshot] | None,
        merge: Merge,
        now: float,
        in_memory: bool = False,
    ) -> list[TaskEffect]:
        """Take over the content of the snapshots; None: they cannot be read. `in_memory`: it is that of `ReturnInMemory`."""
        if not self.is_current(rewind) or self.phase is not TaskPhase.RESTORING:
            return []
        if snapshots is None:
            return [self.to_coordinator(RewindWanted(rewind, f"{self.task} cannot read its snapshot"))]
        found = list(snapshots)
        snapshot = found[0] if found else None
        if snapshot is not None and (self.outdated or not in_memory):
            snapshot = merge(found)
        if snapshot is not None and not in_memory:
            self.in_memory.read(self.epoch, self.files, snapshot)
        begun = snapshot or TaskSnapshot(self.task, 0, 0, 0)
        self.alignment.restore(begun.ended)
        self.parking.restore(begun.parked, now, begun.resent, begun.unread)
        self.after_commit.restore(begun.outcomes, self.epoch)
        self.showing.restore()
        if snapshot is not None and (self.new or self.emissions.rewindable):
            self.emissions.restore(snapshot.again)
        self.chain.restore(snapshot, self.submission)
        self.new = False
        self.applied = self.epoch
        self.phase = TaskPhase.SHOWING
        effects: list[TaskEffect] = [LoadSnapshot(snapshot, in_memory), *self.show()]
        return effects

    def restored_if_shown(self) -> list[TaskEffect]:
        """Answer step one once all that is committed is visible."""
        waits = self.after_commit.waits
        if self.phase is not TaskPhase.SHOWING or not (self.after_commit.shown or waits):
            return []
        self.phase = TaskPhase.RESTORED
        return [self.to_coordinator(TaskRestored(self.rewind, waits))]

    def admit(self, rewind: int) -> FrameAdmission:
        """Return what happens to a frame. One that waits is admitted again after `LoadSnapshot`."""
        if rewind == self.rewind and self.phase is TaskPhase.RUNNING:
            return FrameAdmission.NOW
        if rewind < self.rewind:
            return FrameAdmission.REFUSE
        ready = self.phase in (TaskPhase.SHOWING, TaskPhase.RESTORED, TaskPhase.RUNNING)
        return FrameAdmission.NOW if rewind == self.rewind and ready else FrameAdmission.WAIT

    def arrive(self, source: str, item: LinkItem) -> list[TaskEffect]:
        """An admitted item came from a source task, in the order in which it was sent."""
        return self.into_inbox(self.alignment.arrive(source, item))

    def give_up_arriving(self, source: str, item: Any, failure: str) -> None:
        """A tuple that came over the closing edge of a cycle will not be executed: it is a dead letter of the epoch in which it
        was sent."""
        epoch = self.alignment.epoch_of_next(source)
        if epoch is None:
            self.parking.give_up(Parked(item, 1, 0.0), failure)
        else:
            self.parking.give_up_in(epoch, item, failure)

    def frame_lost(self, rewind: int) -> list[TaskEffect]:
        """A frame that this task sent is gone, and cannot be sent again."""
        why = f"tuples that {self.task} sent to another worker can never arrive"
        return [self.to_coordinator(RewindWanted(rewind, why))] if self.is_current(rewind) else []

    def state_spoilt(self, error: str) -> list[TaskEffect]:
        """The task has found that its state cannot be kept: what wrote it is to be done again, and found."""
        return [self.to_coordinator(RewindWanted(self.rewind, error))]

    # The end of an epoch.

    def needs_commit(self) -> list[TaskEffect]:
        """The task can do nothing before the next commit: ask, once, that the open epoch ends, unless it has ended here."""
        if self.asked or self.emissions.closed or self.phase is not TaskPhase.RUNNING:
            return []
        self.asked = True
        return [self.to_coordinator(EpochWanted(self.rewind))]

    def end_epoch(
        self,
        marker: SnapshotMarker,
        content: TaskSnapshot,
        finished: bool,
        rows: Any,
        prepares: bool,
        now: float,
        data: SnapshotData | None = None,
    ) -> list[TaskEffect]:
        """The task has reached a marker. `content`: what the caller keeps. `rows`: of a token sink, or None. `prepares`: a
        staged sink is preparing its handle, see `prepared`. `data`: has the parts; if some are missing, see `encoded`."""
        epoch, self.asked = marker.epoch, False
        self.alignment.reached = epoch
        self.emissions.close(epoch)
        content.task, content.epoch, content.rewind = self.task, epoch, self.rewind
        content.incarnation = self.incarnation
        content.again = self.emissions.content()
        self.after_commit.close(epoch)
        letters = self.parking.close(epoch)
        self.parking.fill(content, now)
        if letters:
            self.after_commit.add(EpochOutcome(epoch, self.index, LETTERS, letters))
        if rows:
            self.after_commit.add(EpochOutcome(epoch, self.index, ROWS, rows))
        if data is None:  # without parts, it builds upon no file
            self.chain.begin(whole=True)
        content.chain, content.cells = list(self.chain.links), self.chain.cells
        content.submission = self.submission
        self.ending = Ending(content, finished, not prepares, data or SnapshotData())
        return [SendBarrier(Barrier(epoch, marker.last)), *self.write_if_whole()]

    def prepared(self, rewind: int, epoch: int, handle: Any) -> list[TaskEffect]:
        """A staged sink has prepared its rows of an epoch; None: there were none. It is aborted if a rewind came meanwhile."""
        if not self.is_current(rewind) or self.ending is None:
            return [AbortHandle(epoch, handle)] if handle is not None else []
        if handle is not None:
            self.after_commit.add(EpochOutcome(epoch, self.index, HANDLE, handle))
        self.ending.prepared = True
        return self.write_if_whole()

    def encoded(self) -> list[TaskEffect]:
        """All parts of the snapshot are there, unless a rewind came meanwhile."""
        return self.write_if_whole()

    def write_if_whole(self) -> list[TaskEffect]:
        """Write the snapshot once everything that belongs to it is there."""
        ending = self.ending
        if ending is None or ending.written or not ending.prepared or not self.alignment.whole:
            return []
        if not ending.data.whole:
            return []
        ending.written = True
        snapshot = ending.snapshot
        if late := self.parking.close_late(snapshot):
            self.after_commit.add(EpochOutcome(snapshot.epoch, self.index, LETTERS, late))
        snapshot.recorded = [(source, self.pack_recorded(item)) for source, item in self.alignment.recorded]
        snapshot.outcomes = list(self.after_commit.outcomes)
        snapshot.fields = self.row_fields if snapshot.has_rows() else []
        ending.data.finish(snapshot)
        return [WriteSnapshot(self.rewind, snapshot.epoch, ending.data)]

    def snapshot_written(self, rewind: int, file: SnapshotFile | None) -> list[TaskEffect]:
        """The file is in the store; None: it could not be written, and the epoch cannot be committed."""
        ending = self.ending
        if not self.is_current(rewind) or ending is None:
            return []
        if file is None:
            return [self.to_coordinator(RewindWanted(rewind, f"{self.task} cannot write its snapshot"))]
        self.ending = None
        data, epoch = ending.data, ending.snapshot.epoch
        size = len(data.data)
        self.in_memory.written(self.task, epoch, file, data.last, size)
        self.chain.written(link_to(file, size), data.cells)
        return [self.to_coordinator(SnapshotWritten(rewind, epoch, file, ending.finished, size))]

    # Commits, and what they make visible.

    def commit_known(self, epoch: int) -> list[TaskEffect]:
        """An epoch is committed: ack its emissions, and release what it holds."""
        self.epoch = max(self.epoch, epoch)
        self.after_commit.commit(epoch)
        self.in_memory.commit(epoch)
        ids = self.emissions.commit(epoch)
        return [AckEmissions(tuple(ids))] if ids else []

    def committed(self, epoch: int) -> list[TaskEffect]:
        """Follow a commit while running."""
        return [*self.commit_known(epoch), *self.show()]

    def show(self) -> list[TaskEffect]:
        """Show the next outcome, or report that all are visible."""
        if self.after_commit.running is not None:
            return []
        show = self.showing.step()
        if show is not None:
            return [show]
        if self.phase is TaskPhase.SHOWING:
            return self.restored_if_shown()
        if self.after_commit.waits:
            undecided = self.after_commit.refusing and self.phase is TaskPhase.RUNNING
            return [self.to_coordinator(EpochWanted(self.rewind))] if undecided else []
        if self.applied < self.epoch and self.phase is TaskPhase.RUNNING:
            self.applied = self.epoch
            return [self.to_coordinator(CommitApplied(self.rewind, self.epoch))]
        return []

    def shown(self, rewind: int, answer: ShowAnswer) -> list[TaskEffect]:
        """The outside has answered a call other than `ReadToken`."""
        if not self.is_current(rewind) or self.after_commit.running is None:
            return []
        self.showing.answered(answer)
        return self.show()

    def rows_refused(self, rewind: int, positions: Iterable[int]) -> list[TaskEffect]:
        """The outside takes all rows of a call but these, whose letters are among those of the open epoch."""
        if not self.is_current(rewind) or self.after_commit.running is None:
            return []
        self.after_commit.refuse(positions)
        return self.show()

    def token_read(self, rewind: int, show: ReadToken, token: int | None) -> list[TaskEffect]:
        """The outside has answered a `ReadToken`; None: it failed."""
        if not self.is_current(rewind) or self.after_commit.running is None:
            return []
        self.showing.token_read(show.index, token, show.origin)
        return self.show()

    def over(self, epoch: int) -> list[TaskEffect]:
        """The log has ended: what was not committed is void."""
        effects: list[TaskEffect] = [StopTask(), *self.commit_known(epoch), *self.abort_void()]
        self.phase = TaskPhase.OVER
        self.ending = None
        return [*effects, *self.show()]

    def to_coordinator(self, message: ToCoordinator) -> TaskEffect:
        """A message to the coordinator."""
        return SendToCoordinator(message)
