"""The part of one worker's tasks in the epochs of their topology: snapshots, barriers, and what a commit makes visible.

The cores of `worker.epochs` decide; this module does what their effects say, in their order. All of it runs in the worker's
loop, except for the user code of threaded tasks and the calls of the store. Tasks are new objects after each rewind, while
their participants live as long as the process: they have what is acked with a commit.
Must not know: how tasks run, the coordinator, sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from squall.transport.frames import Batch, EpochBarrier, EpochFrame, Unread, Unsent
from topology_api import SquallError, StateError
from topology_api.tuples import Source
from worker.epochs.messages import (
    Barrier,
    BeginEpochEnd,
    EndMark,
    EpochCommitted,
    EpochsOver,
    HoldSpouts,
    RestoreTask,
    Rows,
    SnapshotMarker,
    TaskActive,
    TaskRestored,
    ToTask,
)
from worker.epochs.participant import (
    AbortHandle,
    AckEmissions,
    FrameAdmission,
    LoadSnapshot,
    Participant,
    PutInInbox,
    ReadSnapshots,
    ReturnInMemory,
    RunTask,
    SendBarrier,
    SendToCoordinator,
    StopTask,
    TaskEffect,
    WriteSnapshot,
)
from worker.epochs.records import SnapshotFile, short_lineage
from worker.epochs.snapshot_files import TaskSnapshot
from worker.loop.cycle_input import CycleInput, closes_cycle
from worker.loop.epoch_activity import EpochActivity
from worker.loop.epoch_mail import EpochMail
from worker.loop.epoch_outside import EpochOutside, OutsideHost
from worker.loop.epoch_store import EpochFiles
from worker.loop.epoch_tasks import EpochTask
from worker.loop.plan import WorkerPlan
from worker.loop.rescale import Rescale, range_wanted
from worker.loop.rewind_times import RewindTimes
from worker.loop.store_calls import StoreCalls
from worker.tasks.epoch_bolt import EpochBoltTask, SpoiltState
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.gathering import GatheringTask
from worker.tasks.special_batches import MarkerBatch
from worker.tasks.staged_sink import StagedSinkTask
from worker.tasks.unread_tuples import give_up_arriving
from worker.tasks.unsent_rows import LostRow, give_up_row, rows_in_outboxes

_log = logging.getLogger(__name__)

#: The source of a marker in an inbox.
NO_SOURCE: Final = Source("", 0, "", ())


class TaskLinks(Protocol):
    """What the epochs need of the links of a worker: see `worker.loop.epoch_links`."""

    def arrive(self, batch: Batch) -> None:
        """Count a batch of another worker in its window, and pass it to `Epochs.arrive`."""

    def enter_inbox(self, task: EpochBoltTask, batch: Batch) -> None:
        """Put a batch into the inbox of a bolt task."""

    def send_barrier(self, barrier: EpochBarrier, targets: Iterable[int]) -> None:
        """Send a barrier to the other workers of its source's readers."""


class EpochHost(OutsideHost, Protocol):
    """What the epochs need of a worker."""

    def end(self, error: SquallError) -> None:
        """End this worker: it cannot go on."""


class Epochs:
    """The tasks of one worker, and their participants."""

    def __init__(
        self,
        host: EpochHost,
        links: TaskLinks,
        mail: EpochMail,
        files: EpochFiles,
        calls: StoreCalls,
        now: Callable[[], float],
        cycle_tuples: int,
    ) -> None:
        """`cycle_tuples`: how many tuples may wait for a task on edges that close a cycle."""
        self.host, self.links, self.mail = host, links, mail
        self.files, self.calls, self.now = files, calls, now
        #: By task id. A task's participant lives as long as the process; the task does not.
        self.participants: dict[int, Participant] = {}
        self.tasks: dict[int, EpochTask] = {}
        self.spouts: list[EpochSpoutTask] = []
        self.by_name: dict[str, int] = {}
        #: The names of the topology's tasks, in all workers.
        self.names: dict[int, str] = {}
        #: Of each source task, the tasks here that read its streams.
        self.readers: dict[int, list[int]] = {}
        #: The number of the last rewind whose first step was taken here.
        self.rewind = 0
        #: Frames and messages of lower rewind numbers are void: the tasks here are new objects already, also while these are
        #: being opened in their threads, and their participants have not heard of the rewind.
        self.oldest = 0
        #: How many tasks each component has in the last commit.
        self.counts: dict[str, int] = {}
        #: Into how many key groups it has divided their keys; 0: it has no groups.
        self.groups = 0
        #: End marks that have not entered their inbox: (source, target) -> batch.
        self.end_marks: dict[tuple[str, int], Batch] = {}
        #: Frames of a rewind whose first step their target has not taken yet.
        self.early: dict[int, list[EpochFrame]] = {}
        self.resumed: set[int] = set()
        #: The last epoch whose barrier each task here has sent since the last rewind.
        self.passed: dict[int, int] = {}
        #: The tasks that have a marker and have not reached it.
        self.marked: dict[int, EpochTask] = {}
        #: The tasks whose snapshot is being encoded.
        self.encoding: dict[int, EpochBoltTask] = {}
        self.over = self.halted = False
        #: For people: the epoch that ends and since when, until its commit is known; and the last rewind.
        self.ending: tuple[int, float] | None = None
        self.rewinding = RewindTimes()
        #: The last epoch of the assignment; 0: none is known.
        self.last_epoch = 0
        self.activity = EpochActivity(
            lambda: sum(activity_of(task) for task in self.tasks.values()),
            lambda ended: mail.to_coordinator(next(iter(self.by_name)), TaskActive(self.rewind, ended)),
        )
        self.cycle_input = CycleInput(cycle_tuples, now, self.perform, mail.settle)
        self.outside = EpochOutside(host, mail, now, lambda: self.participants, self.tasks, self.perform)

    @property
    def running(self) -> bool:
        """Whether user code may run."""
        return bool(self.tasks) and len(self.resumed) == len(self.tasks) and not self.over

    # The tasks.

    def join(self, task: EpochTask, participant: Participant) -> None:
        """A task was made."""
        self.tasks[task.id] = task
        if isinstance(task, EpochSpoutTask):
            self.spouts.append(task)
        self.by_name[participant.task] = task.id
        self.participants[task.id] = participant

    def forget_objects(self) -> None:
        """All tasks were closed: others take their places, and begin with the last commit."""
        self.tasks.clear()
        self.spouts.clear()
        self.by_name.clear()
        self.resumed.clear()
        self.passed.clear()
        self.cycle_input.restart()
        self.marked.clear()
        self.encoding.clear()
        self.end_marks.clear()

    def assign(self, plan: WorkerPlan) -> None:
        """Follow an assignment: forget the participants of tasks that are in other workers now."""
        self.plan, self.names, here = plan, plan.names, plan.tasks_here
        self.readers = {
            task: [target for target in plan.barrier_targets(component) if target in here]
            for task, component, _ in plan.tasks
        }
        self.participants = {
            task: participant
            for task, participant in self.participants.items()
            if task in here and participant.task == self.names[task]
        }
        for participant in self.participants.values():
            participant.in_memory.numbers = plan.numbers
        self.early.clear()
        self.oldest = self.rewind + 1  # an assignment begins with a rewind

    def void(self, epoch: int) -> None:
        """The tasks are about to be closed, and an epoch is the last commit: ack what is committed."""
        for task in self.tasks.values():
            self.perform(task, self.participants[task.id].commit_known(epoch))

    # The loop.

    def step(self, now: float) -> bool:
        """Do what is due; return whether anything was done."""
        if not self.running:
            return False
        for spout in self.spouts:
            if spout.waits_for_commit:
                self.perform(spout, self.participants[spout.id].needs_commit())
        took = self.take_markers() if self.marked else False
        return self.encode_slices() or took if self.encoding else took

    def take_markers(self) -> bool:
        """Let tasks that cannot run reach their markers: spouts, and bolts whose outboxes are full."""
        took = False
        for task in list(self.marked.values()):
            if not task.busy and not task.reached and task.marker_waits:
                took = True
                self.host.execute(task, task.take_marker)
        return took

    def encode_slices(self) -> bool:
        """Let each task whose snapshot is being encoded do a little of that; return whether any did. A threaded task does it
        between its calls, too.
        """
        worked = False
        for task in list(self.encoding.values()):
            if not task.jobs and not task.yielded:
                worked = True
                self.host.execute(task, task.slices.encode)
        return worked

    def collect(self, task: EpochTask) -> None:
        """Follow what a task's last run has left: answers of the outside, the marker that it has reached, its snapshot."""
        self.collect_answers(task)
        if task.reached:
            self.collect_reached(task)
        encoding = self.encoding.get(task.id)
        if encoding is not None and encoding.slices.data.whole:
            del self.encoding[task.id]
            self.perform(task, self.participants[task.id].encoded())

    def collect_reached(self, task: EpochTask) -> None:
        """Follow the marker that a task has reached."""
        reached, task.reached = task.reached, []
        self.marked.pop(task.id, None)
        participant = self.participants[task.id]
        for each in reached:
            if isinstance(each, SpoiltState):
                _log.warning(
                    "all tasks return to the last commit, to find the call that has written this: %s",
                    each.error,
                )
                self.perform(task, participant.state_spoilt(each.error))
                return
            # As they are now: what has left since the task reached the marker is in front of the barrier.
            try:
                each.content.outboxes, lost = rows_in_outboxes(task.emitter, task.epochs.names)
            except StateError as error:
                self.host.end(error)
                return
            for row in lost:
                give_up_row(task, row)
                self.mail.settle(row.trees)
            if each.data is not None and not each.data.whole:
                assert isinstance(task, EpochBoltTask)
                self.encoding[task.id] = task
            effects = participant.end_epoch(
                each.marker, each.content, each.finished, each.rows, each.stages, self.now(), each.data
            )
            self.perform(task, effects)
            if isinstance(task, StagedSinkTask) and each.stages:
                stage = partial(self.outside.stage, task, participant.rewind, each.marker.epoch)
                self.mail.later(stage, self.now())

    def collect_answers(self, task: EpochTask) -> None:
        """Follow the answers of the outside."""
        while isinstance(task, GatheringTask) and task.answers:
            task.next_answer()()

    # Tuples.

    def arrive(self, batch: Batch) -> None:
        """A batch of rows, or an end mark, has come for a task here, in its turn."""
        source, participant = self.names[batch.source.task], self.participants[batch.target]
        if batch.ended:
            self.end_marks[source, batch.target] = batch
            self.perform(self.tasks[batch.target], participant.arrive(source, EndMark()))
            return
        task = self.tasks[batch.target]
        assert isinstance(task, EpochBoltTask)
        if closes_cycle(batch):
            self.cycle_input.arrive(task, participant, source, batch)
        if participant.alignment.passes(source):  # without an object for each effect
            self.links.enter_inbox(task, batch)
        else:
            self.perform(task, participant.arrive(source, Rows((batch,))))

    def admit(self, frame: EpochFrame) -> None:
        """A frame has come from another worker. Frames of an older rewind are refused, those of a newer one wait."""
        if frame.rewind < self.oldest:
            return
        item = frame.item
        targets = self.readers.get(item.source, []) if isinstance(item, EpochBarrier) else [item.target]
        for target in targets:
            participant = self.participants.get(target)
            if participant is None:
                continue
            admission = participant.admit(frame.rewind)
            if admission is FrameAdmission.WAIT:
                self.early.setdefault(target, []).append(frame)
            elif admission is FrameAdmission.NOW:
                self.accept(target, item, frame.unread)

    def accept(self, target: int, item: Batch | EpochBarrier, unread: Iterable[Unread] = ()) -> None:
        """Take a frame that was admitted for one of its targets. `unread`: tuples that came with it, and cannot be read."""
        if isinstance(item, Batch):
            for each in unread:
                task, sender = self.tasks[target], self.names[item.source.task]
                give_up_arriving(task, self.participants[target], sender, item.source, each.row)
                self.mail.settle(each.trees)
            self.links.arrive(item)
            return
        barrier = Barrier(item.epoch, item.last)
        source = self.names[item.source]
        self.perform(self.tasks[target], self.participants[target].arrive(source, barrier))

    def take_early(self, target: int) -> None:
        """A task has taken the first step of a rewind: look again at the frames that waited for it."""
        for frame in self.early.pop(target, ()):
            admission = self.participants[target].admit(frame.rewind)
            if admission is FrameAdmission.WAIT:
                self.early.setdefault(target, []).append(frame)
            elif admission is FrameAdmission.NOW:
                self.accept(target, frame.item, frame.unread)

    def enter(self, task: EpochTask, items: tuple[Any, ...]) -> None:
        """Put items into a task's inbox."""
        for item in items:
            if isinstance(item, SnapshotMarker):
                self.marked[task.id] = task
                if isinstance(task, EpochSpoutTask):
                    task.markers.append(item)
                else:
                    self.links.enter_inbox(task, MarkerBatch(item, NO_SOURCE, task.id))
                continue
            source, what = item
            assert isinstance(task, EpochBoltTask)
            batch = self.end_marks.pop((source, task.id)) if isinstance(what, EndMark) else what.rows[0]
            self.links.enter_inbox(task, batch)

    def send_barrier(self, task: EpochTask, barrier: Barrier) -> None:
        """Send a barrier to the tasks that read this one, unless its end marks are there: inner edges of cycles have none."""
        self.passed[task.id] = barrier.epoch
        if task.ended and task.spec.id not in self.plan.cycle_of:
            return
        sent = EpochBarrier(task.id, barrier.epoch, barrier.last)
        for target in self.readers.get(task.id, ()):
            self.accept(target, sent)
        self.links.send_barrier(sent, self.plan.barrier_targets(task.spec.id))

    def executed(self, batch: Batch) -> None:
        """A batch that came over an edge which closes a cycle was executed."""
        task = self.tasks.get(batch.target)
        if isinstance(task, EpochBoltTask):
            self.cycle_input.executed(task, self.participants[task.id], len(batch.rows))

    def unsent(self, lost: Unsent) -> None:
        """A tuple that was emitted here cannot travel to another worker. It becomes a dead letter of the epoch in which it was
        sent; if its task's part of this one has ended already, because the other worker could not be reached, all tasks return
        to the last commit, and do what they did since once more.
        """
        task = self.tasks.get(lost.task)
        if lost.rewind != self.rewind or lost.rewind < self.oldest or task is None or lost.source is None:
            return  # void
        if lost.epoch != self.passed.get(lost.task, 0):
            self.perform(task, self.participants[task.id].frame_lost(lost.rewind))
            return
        row = LostRow(lost.source, self.names[lost.target], tuple(lost.values), lost.trees)
        give_up_row(task, row, lost.error)
        self.mail.settle(row.trees)

    # Messages and effects.

    def message(self, name: str, message: ToTask) -> None:
        """Deliver a message of the coordinator to a task here."""
        if name not in self.by_name or message.rewind < self.oldest:
            return  # of an assignment that is not followed any more, or of before a rewind
        task = self.tasks[self.by_name[name]]
        if isinstance(message, EpochsOver) and not self.rewind:
            self.rewind = message.rewind  # this process was started when the log had already ended
        if message.rewind == self.rewind:
            self.follow(message)
        self.outside.go_on(task, self.participants[task.id].message(message))

    def follow(self, message: ToTask) -> None:
        """Note what a message says about all tasks."""
        if isinstance(message, RestoreTask):
            self.counts, self.groups = message.counts, message.groups
            self.outside.lineage = short_lineage(message.lineage)
        elif isinstance(message, BeginEpochEnd):
            self.activity.epoch_ends()
            if self.ending is None or self.ending[0] != message.epoch:
                self.ending = message.epoch, self.now()
            if message.last:
                self.last_epoch = message.epoch
        elif isinstance(message, EpochCommitted):
            self.ending = None
            self.halted = self.halted or message.epoch == self.last_epoch
        elif isinstance(message, HoldSpouts):
            for spout in self.spouts:
                spout.held, spout.held_by_cycle = message.why, message.what == "cycle"
        elif isinstance(message, EpochsOver):
            self.over = True

    def begin_rewind(self, message: RestoreTask) -> None:
        """The tasks here take the first step of a rewind."""
        self.rewind = self.oldest = message.rewind
        self.halted, self.last_epoch, self.over = False, 0, False
        self.ending = None
        self.rewinding.begin(self.now())
        self.activity.restart()

    def perform(self, task: EpochTask, effects: list[TaskEffect]) -> None:
        """Do what a task's participant says."""
        participant = self.participants[task.id]
        for effect in effects:
            if isinstance(effect, PutInInbox):
                self.enter(task, effect.items)
            elif isinstance(effect, SendBarrier):
                self.send_barrier(task, effect.barrier)
            elif isinstance(effect, WriteSnapshot):
                done = partial(self.snapshot_written, task.id, effect.rewind)
                self.calls.call(partial(self.files.keep_snapshot, effect.data), done)
            elif isinstance(effect, SendToCoordinator):
                self.mail.to_coordinator(participant.task, effect.message)
                if isinstance(effect.message, TaskRestored):
                    self.rewinding.returned(task.id, participant.epoch, len(self.tasks), self.now())
            elif isinstance(effect, AckEmissions):
                assert isinstance(task, EpochSpoutTask)
                self.host.execute(task, partial(task.ack_committed, effect.ids))
            elif isinstance(effect, ReadSnapshots):
                done = partial(self.snapshots_read, task.id, effect.rewind)
                self.calls.call(partial(self.read, participant.task, effect), done)
            elif isinstance(effect, ReturnInMemory):
                self.rewinding.in_memory.add(task.id)
                self.snapshots_read(task.id, effect.rewind, [effect.snapshot], in_memory=True)
            elif isinstance(effect, LoadSnapshot):
                self.host.execute(task, partial(task.begin_with, effect.snapshot, effect.in_memory))
                self.mail.later(partial(self.take_early, task.id))
            elif isinstance(effect, RunTask):
                self.resumed.add(task.id)
                if self.running:
                    how = f"goes on from epoch {participant.epoch}" if participant.epoch else "begins"
                    _log.info("the state in %s %s", self.files.folder, how)
            elif isinstance(effect, StopTask):
                self.resumed.discard(task.id)
                task.forget_unsent()
            elif isinstance(effect, AbortHandle):
                self.outside.abort(task.id, effect)
            else:
                self.outside.show(task, participant.rewind, effect)

    def snapshot_written(self, task: int, rewind: int, file: SnapshotFile) -> None:
        """A snapshot is in the store."""
        if task in self.tasks:
            self.perform(self.tasks[task], self.participants[task].snapshot_written(rewind, file))

    def read(self, name: str, wanted: ReadSnapshots) -> list[TaskSnapshot]:
        """Read the snapshots with which a task begins. Called by the store's thread."""
        component, _, index = name.partition("/")
        own = self.plan.range_of(component, int(index))
        return self.files.restore_point(wanted.files, wanted.rewind, range_wanted(name, wanted.files, own))

    def snapshots_read(
        self, task: int, rewind: int, found: list[TaskSnapshot], in_memory: bool = False
    ) -> None:
        """The snapshots that a task begins with are there. `in_memory`: it has one, which was not read. Those that were read
        for an older rewind are of no use to the object that has taken the task's place meanwhile."""
        if task not in self.tasks or rewind < self.oldest:
            return
        participant, rescale = self.participants[task], Rescale(self.plan, self.counts, self.groups)
        try:
            effects = participant.snapshots_read(
                rewind, found, partial(rescale.begin, participant.task), self.now(), in_memory
            )
        except StateError as error:
            self.host.end(error)
            return
        self.perform(self.tasks[task], effects)


def activity_of(task: EpochTask) -> int:
    """Return a number that grows with everything that a task does and a snapshot would show."""
    done = task.executed + task.emitter.emitted + task.failed + task.ended
    if isinstance(task, EpochSpoutTask):
        return done + task.finished
    return done + task.table.turn + task.end_called
