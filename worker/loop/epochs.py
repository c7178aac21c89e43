"""The epochs of a worker: its tasks' part in them, the coordinator, and the calls of the store.

The cores of `worker.epochs` decide; this module does what their effects say, in their order. All of it runs in the worker's
loop, except for the user code of threaded tasks and the calls of the store.
Must not know: how tasks run, sockets.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from squall.transport.frames import Batch
from topology_api import SquallError, StateError
from topology_api.tuples import Source
from worker.epochs.after_commit import LETTERS, ROWS
from worker.epochs.coordinator import (
    Coordinator,
    CoordinatorEffect,
    EpochPhase,
    EpochsEnded,
    ReadyForChange,
    SendToTask,
)
from worker.epochs.emissions import Emissions
from worker.epochs.log import LeadLost, PutAnswer, PutRecord, ReadLog
from worker.epochs.messages import Barrier, EndMark, RestoreTask, Rows, SnapshotMarker, ToCoordinator, ToTask
from worker.epochs.parking import ParkedLetter
from worker.epochs.participant import (
    AckEmissions,
    LoadSnapshot,
    Participant,
    PutInInbox,
    ReadSnapshots,
    RunTask,
    SendBarrier,
    SendToCoordinator,
    StopTask,
    TaskEffect,
    WriteSnapshot,
)
from worker.epochs.records import BadLog, SnapshotFile
from worker.epochs.sinks import ReadToken, ShowAnswer, ShowLetters, WriteRows
from worker.epochs.snapshot_files import SweepFiles, TaskSnapshot
from worker.loop.epoch_store import Answer, EpochFiles
from worker.tasks.epoch_bolt import EpochBoltTask, MarkerBatch, rows_in_outboxes
from worker.tasks.epoch_sink import EpochSinkTask
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.task import Task

_log = logging.getLogger(__name__)

#: Seconds until what could not be shown outside is shown again.
SHOW_PAUSE: Final = 1.0
#: After how many seconds the log says which tasks an epoch waits for.
LONG_END: Final = 10.0
#: The length of a lineage's name in tokens.
LINEAGE_DIGITS: Final = 16

#: The source of a marker in an inbox.
NO_SOURCE: Final = Source("", 0, "", ())

EpochTask = EpochBoltTask | EpochSpoutTask


class StoreCalls(Protocol):
    """Who calls the store; see `worker.loop.epoch_store`."""

    answers: deque[Answer]

    @property
    def waits_for(self) -> str: ...

    def call(self, job: Callable[[], Any], done: Callable[[Any], None], unknown: Any = None) -> None: ...

    def stop(self) -> None: ...


class EpochHost(Protocol):
    """What the epochs need of a worker."""

    def run_job(self, task: Task, job: Callable[[], Any]) -> None:
        """Run user code of a task, in its thread."""

    def enter_inbox(self, task: EpochBoltTask, batch: Batch) -> None:
        """Put a batch into the inbox of a bolt task."""

    def keep_letters(self, task: Task, letters: list[ParkedLetter], lineage: str, again: bool) -> bool:
        """Keep dead letters; return whether all of them are kept. `again`: some may be kept already."""

    def end(self, error: SquallError) -> None:
        """End this worker: it cannot go on."""


class Epochs:
    """The epochs of one worker that has all tasks of a topology."""

    def __init__(
        self,
        host: EpochHost,
        tasks: list[EpochTask],
        targets: dict[int, list[int]],
        coordinator: Coordinator,
        files: EpochFiles,
        calls: StoreCalls,
        incarnation: int,
        now: Callable[[], float],
    ) -> None:
        """`targets`: of each task, the tasks that read its streams."""
        self.host = host
        self.files, self.calls, self.now = files, calls, now
        self.coordinator = coordinator
        self.tasks = {task.id: task for task in tasks}
        self.names = {task.id: task.epochs.names[task.id] for task in tasks}
        self.targets = targets
        self.participants = {
            task.id: Participant(
                self.names[task.id],
                incarnation,
                task.epochs.alignment,
                task.epochs.parking,
                task.emissions if isinstance(task, EpochSpoutTask) else Emissions(True),
                partial(own_file, self.names[task.id]),
            )
            for task in tasks
        }
        self.by_name = {name: task for task, name in self.names.items()}
        #: Messages on their way, in order: they are never handled within another one.
        self.mail: deque[Callable[[], None]] = deque()
        #: End marks that have not entered their inbox: (source, target) -> batch.
        self.end_marks: dict[tuple[str, int], Batch] = {}
        self.resumed: set[int] = set()
        #: The tasks that have a marker and have not reached it.
        self.marked: dict[int, EpochTask] = {}
        self.later: list[tuple[float, Callable[[], None]]] = []
        #: The sum of what the tasks had done when the last epoch began to end.
        self.activity = -1
        self.begun = self.over = self.halted = self.hurried = False
        #: Since when an epoch is ending; None: the log has said that it takes long.
        self.ending_since: float | None = None
        #: The tasks whose letters were shown by this process.
        self.showed_letters: set[int] = set()

    @property
    def running(self) -> bool:
        """Whether user code may run."""
        return len(self.resumed) == len(self.tasks) and not self.over

    def stop(self) -> None:
        """The worker stops: what is not committed is void."""
        self.calls.stop()

    # The loop.

    def step(self, now: float) -> bool:
        """Do what is due; return whether anything was done."""
        if not self.begun:
            self.begun = True
            self.coordinate(self.coordinator.start())
        busy = False
        while self.calls.answers:
            busy = True
            done, result, error = self.calls.answers.popleft()
            if error is not None:
                self.host.end(error if isinstance(error, SquallError) else SquallError(str(error)))
                return True
            try:
                done(result)
            except BadLog as error:
                self.host.end(SquallError(str(error)))
                return True
        if self.later:
            self.mail += [job for at, job in self.later if at <= now]
            self.later = [entry for entry in self.later if entry[0] > now]
        if not self.is_quiet(now):
            self.coordinate(self.coordinator.tick(now))
        busy |= bool(self.mail)
        while self.mail:
            self.mail.popleft()()
        if self.marked and self.running:
            busy |= self.take_markers()
        self.watch_the_end(now)
        return busy

    def next_time(self) -> float | None:
        """Return when something is due although nothing happens."""
        times = [at for at, _ in self.later]
        if self.coordinator.phase is EpochPhase.OPEN:
            times.append(self.coordinator.next_begin)
        return min(times, default=None)

    def watch_the_end(self, now: float) -> None:
        """Log which tasks hold up the end of an epoch, once, if it takes long."""
        coordinator = self.coordinator
        if coordinator.phase is not EpochPhase.ALIGNING:
            self.ending_since = now
        elif self.ending_since is not None and now - self.ending_since >= max(LONG_END, coordinator.interval):
            _log.warning(
                "epoch %d has not ended for %.0f s: it waits for %s",
                coordinator.view.next_epoch,
                now - self.ending_since,
                ", ".join(sorted(coordinator.waiting)) or "the store",
            )
            self.ending_since = None

    def is_quiet(self, now: float) -> bool:
        """Return whether an epoch is due in which nothing has happened: then none is committed, and the log does not grow."""
        coordinator = self.coordinator
        if coordinator.phase is not EpochPhase.OPEN or now < coordinator.next_begin or coordinator.stopping:
            return False
        activity = sum(activity_of(task) for task in self.tasks.values())
        if activity != self.activity or coordinator.view.newest is None:
            self.activity = activity
            return False
        coordinator.next_begin = now + coordinator.interval
        return True

    def take_markers(self) -> bool:
        """Let tasks that cannot run reach their markers: spouts, and bolts whose outboxes are full."""
        took = False
        for task in list(self.marked.values()):
            if not task.busy and not task.reached and task.marker_waits:
                took = True
                self.host.run_job(task, task.take_marker)
        return took

    def collect(self, task: EpochTask) -> None:
        """Follow what a task's last run has left: answers of the outside, and the marker that it has reached."""
        while isinstance(task, EpochSinkTask) and task.answers:
            task.answers.pop(0)()
        if not task.reached:
            return
        reached, task.reached = task.reached, []
        self.marked.pop(task.id, None)
        participant = self.participants[task.id]
        for each in reached:
            # As they are now: what has left since the task reached the marker is in front of the barrier.
            try:
                each.content.outboxes = rows_in_outboxes(task.emitter, task.epochs.names)
            except StateError as error:
                self.host.end(error)
                return
            effects = participant.end_epoch(
                each.marker, each.content, each.finished, each.rows, False, self.now()
            )
            self.perform(task, effects)

    def all_ended(self) -> None:
        """All tasks have ended: their last epoch need not wait for its time. Later ones have to: there are some while what is
        committed cannot be shown outside."""
        if not self.hurried and self.coordinator.phase is EpochPhase.OPEN:
            self.hurried = True
            self.coordinator.next_begin = 0.0

    # Tuples.

    def arrive(self, batch: Batch) -> None:
        """A batch of rows, or an end mark, has come for a task here."""
        source = self.names[batch.source.task]
        if batch.ended:
            self.end_marks[source, batch.target] = batch
            item: Any = EndMark()
        else:
            item = Rows((batch,))
        self.perform(self.tasks[batch.target], self.participants[batch.target].arrive(source, item))

    def enter(self, task: EpochTask, items: tuple[Any, ...]) -> None:
        """Put items into a task's inbox."""
        for item in items:
            if isinstance(item, SnapshotMarker):
                self.marked[task.id] = task
                if isinstance(task, EpochSpoutTask):
                    task.markers.append(item)
                else:
                    self.host.enter_inbox(task, MarkerBatch(item, NO_SOURCE, task.id))
                continue
            source, what = item
            assert isinstance(task, EpochBoltTask)
            batch = self.end_marks.pop((source, task.id)) if isinstance(what, EndMark) else what.rows[0]
            self.host.enter_inbox(task, batch)

    def send_barrier(self, task: EpochTask, barrier: Barrier) -> None:
        """Send a barrier to the tasks that read this one, unless its end marks are there."""
        if task.ended:
            return
        for target in self.targets[task.id]:
            effects = self.participants[target].arrive(self.names[task.id], barrier)
            self.perform(self.tasks[target], effects)

    # Effects.

    def coordinate(self, effects: list[CoordinatorEffect]) -> None:
        """Do what the coordinator says."""
        for effect in effects:
            if isinstance(effect, SendToTask):
                if isinstance(effect.message, RestoreTask) and not self.fits():
                    return
                self.mail.append(partial(self.tell_task, self.by_name[effect.task], effect.message))
            elif isinstance(effect, PutRecord):
                job = partial(self.files.put_record, effect.number, effect.record)
                self.calls.call(
                    job,
                    lambda answer: self.coordinate(self.coordinator.put_answered(answer, self.now())),
                    PutAnswer.UNKNOWN,
                )
            elif isinstance(effect, ReadLog):
                read = partial(self.files.records_after, effect.after)
                self.calls.call(
                    read, lambda found: self.coordinate(self.coordinator.records_read(found, self.now()))
                )
            elif isinstance(effect, SweepFiles):
                self.calls.call(partial(self.files.sweep, effect), lambda _: None)
            elif isinstance(effect, ReadyForChange):
                self.halted = True
            elif isinstance(effect, EpochsEnded):
                self.over = True
                if not self.resumed:
                    _log.warning(
                        "the topology has nothing to do: the state in %s is that of a completed run. To run it again, set "
                        "another topology.state.path, or remove this folder",
                        self.files.folder,
                    )
            elif isinstance(effect, LeadLost):
                self.host.end(
                    SquallError(
                        f"another worker leads the topology whose state is in {self.files.folder}: this one ends. Two "
                        "topologies of one name need a topology.state.path each"
                    )
                )

    def fits(self) -> bool:
        """Return whether the last commit is of these tasks; end the worker if it is of others."""
        newest = self.coordinator.view.newest
        there, here = set(newest.files) if newest is not None else set(), set(self.by_name)
        if newest is None or there == here:
            return True
        changed = [f"{name} is gone" for name in sorted(there - here)]
        changed += [f"{name} is new" for name in sorted(here - there)]
        self.host.end(
            SquallError(
                f"the state in {self.files.folder} is of other tasks: {', '.join(changed)}. In this release components and "
                "their numbers of tasks cannot change: submit them as they were, or set another topology.state.path"
            )
        )
        return False

    def tell_task(self, task: int, message: ToTask) -> None:
        """Deliver a message of the coordinator."""
        self.go_on(self.tasks[task], self.participants[task].message(message))

    def tell_coordinator(self, task: int, message: ToCoordinator) -> None:
        """Deliver a message to the coordinator."""
        self.coordinate(self.coordinator.message(self.names[task], message, self.now()))

    def perform(self, task: EpochTask, effects: list[TaskEffect]) -> None:
        """Do what a task's participant says."""
        participant = self.participants[task.id]
        for effect in effects:
            if isinstance(effect, PutInInbox):
                self.enter(task, effect.items)
            elif isinstance(effect, SendBarrier):
                self.send_barrier(task, effect.barrier)
            elif isinstance(effect, WriteSnapshot):
                done = partial(self.snapshot_written, task, effect.rewind)
                self.calls.call(partial(self.files.write_snapshot, effect.file, effect.data), done)
            elif isinstance(effect, SendToCoordinator):
                self.mail.append(partial(self.tell_coordinator, task.id, effect.message))
            elif isinstance(effect, AckEmissions):
                assert isinstance(task, EpochSpoutTask)
                self.host.run_job(task, partial(task.ack_committed, effect.ids))
            elif isinstance(effect, ReadSnapshots):
                done = partial(self.snapshots_read, task, effect.rewind)
                self.calls.call(partial(self.files.read_snapshots, effect.files), done)
            elif isinstance(effect, LoadSnapshot):
                self.host.run_job(task, partial(task.begin_with, effect.snapshot))
            elif isinstance(effect, RunTask):
                self.resumed.add(task.id)
                if self.running:
                    epoch = self.coordinator.view.epoch
                    how = f"goes on from epoch {epoch}" if epoch else "begins"
                    _log.info("the state in %s %s", self.files.folder, how)
            elif isinstance(effect, StopTask):
                self.resumed.discard(task.id)
                task.forget_unsent()
            elif isinstance(effect, ReadToken | WriteRows):
                assert isinstance(task, EpochSinkTask)
                self.ask_outside(task, participant.rewind, effect)
            elif isinstance(effect, ShowLetters):
                self.show_letters(task, participant.rewind, effect)
            else:
                raise AssertionError(f"{effect} of {self.names[task.id]} is not for this worker")

    def snapshot_written(self, task: EpochTask, rewind: int, _: None) -> None:
        """A snapshot is in the store."""
        self.perform(task, self.participants[task.id].snapshot_written(rewind, True))

    def snapshots_read(self, task: EpochTask, rewind: int, found: list[TaskSnapshot]) -> None:
        """The snapshots that a task begins with are there."""
        participant = self.participants[task.id]
        self.perform(task, participant.snapshots_read(rewind, found, only_one, self.now()))

    # The outside.

    @property
    def lineage(self) -> str:
        """The name of this state in tokens and letters."""
        return hashlib.sha256(self.coordinator.view.lineage.encode()).hexdigest()[:LINEAGE_DIGITS]

    def ask_outside(self, task: EpochSinkTask, rewind: int, show: ReadToken | WriteRows) -> None:
        """Let a task of a token sink call the outside."""
        token = f"{task.context.topology}/{task.spec.id}/{show.index}/{self.lineage}"
        if isinstance(show, ReadToken):
            self.host.run_job(
                task, partial(task.read_token, token, partial(self.token_read, task, rewind, show.index))
            )
        else:
            self.host.run_job(task, partial(task.write_rows, show, token, partial(self.shown, task, rewind)))

    def token_read(self, task: EpochTask, rewind: int, index: int, number: int | None) -> None:
        """The outside has said the number of a token, or not."""
        participant = self.participants[task.id]
        follow = partial(participant.token_read, rewind, index, number)
        self.follow_later(task, follow, answered=number is not None)

    def shown(self, task: EpochTask, rewind: int, answer: ShowAnswer) -> None:
        """The outside has said whether it shows what it should, or not."""
        follow = partial(self.participants[task.id].shown, rewind, answer)
        self.follow_later(task, follow, answered=answer is not ShowAnswer.UNKNOWN)

    def follow_later(self, task: EpochTask, follow: Callable[[], list[TaskEffect]], answered: bool) -> None:
        """Go on after an answer; without one, after a pause."""
        due = self.now() if answered else self.now() + SHOW_PAUSE
        self.later.append((due, lambda: self.go_on(task, follow())))

    def go_on(self, task: EpochTask, effects: list[TaskEffect]) -> None:
        """Do what follows from a message or an answer, and say to the task how much is left to be shown outside."""
        after_commit = self.participants[task.id].after_commit
        waiting = [outcome for outcome in after_commit.outcomes if outcome.epoch <= after_commit.committed]
        if isinstance(task, EpochSinkTask):
            rows = {outcome.epoch for outcome in waiting if outcome.kind == ROWS}
            task.left_to_write(after_commit.committed, rows)
        letters = [outcome.value for outcome in waiting if outcome.kind == LETTERS]
        task.epochs.parking.unkept = sum(map(len, letters))
        self.perform(task, effects)

    def show_letters(self, task: EpochTask, rewind: int, show: ShowLetters) -> None:
        """Keep dead letters; try again later if they cannot be kept."""
        letters = msgspec.convert(show.letters, list[ParkedLetter], from_attributes=True)
        # The process before this one may have kept them, without being able to say so.
        again = task.id not in self.showed_letters
        kept = self.host.keep_letters(task, letters, self.lineage, again)
        if kept:
            self.showed_letters.add(task.id)
        self.shown(task, rewind, ShowAnswer.DONE if kept else ShowAnswer.UNKNOWN)


def activity_of(task: EpochTask) -> int:
    """Return a number that grows with everything that a task does and a snapshot would show."""
    done = task.executed + task.emitter.emitted + task.failed + task.ended
    if isinstance(task, EpochSpoutTask):
        return done + task.finished
    return done + task.table.turn + task.end_called


def own_file(name: str, files: dict[str, SnapshotFile]) -> dict[str, SnapshotFile]:
    """Return a task's own snapshot."""
    return {name: files[name]} if name in files else {}


def only_one(snapshots: list[TaskSnapshot]) -> TaskSnapshot:
    """Return the task's own snapshot."""
    [snapshot] = snapshots
    return snapshot
