"""The coordinator of a lineage's epochs: it begins them, commits them, and makes all tasks return to the last commit.

| phase | meaning | ends with |
|---|---|---|
| READING | the log is read | the last record |
| CLAIMING | its `LeadRecord` is being written | the record stands |
| REWINDING | a `RewindRecord` is being written | the record stands |
| RESTORING | step one of a rewind: tasks return to the last commit | every task has answered |
| OPEN | tasks run, and no barrier is under way | the interval, a task that needs a commit, a planned change, a kill |
| ALIGNING | barriers are under way | every task's snapshot is written |
| HELD | the snapshots are written, and the version is on trial: nothing is committed | the end of the trial |
| COMMITTING | the `CommitRecord` is being written | the record stands |
| HALTED | spouts have stopped for a planned change, and their last epoch is committed | a new assignment |
| ENDING | the `EndRecord` is being written | the record stands |
| ENDED, DEPOSED | nothing more is done; another coordinator may lead | |

A version on trial commits nothing: its first commit is one from which no earlier version can go on. So if it is rolled back,
the log still ends with the epoch at which it took over. The caller may unset `on_trial` only when nothing can roll the
version back any more.

A record that is being written is settled before anything else is decided (`log`). What the coordinator tells tasks, it tells
after the record that says so stands. An epoch belongs to one assignment: every change of it is a rewind.
Must not know: stores, links, clocks (times come as arguments), what tasks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from worker.epochs.epoch_facts import EpochFacts
from worker.epochs.log import (
    LeadLost,
    LogEffect,
    LogRead,
    LogView,
    LogWriter,
    PutAnswer,
    PutRecord,
    ReadLog,
    RecordStands,
)
from worker.epochs.messages import (
    BeginEpochEnd,
    CommitApplied,
    EpochCommitted,
    EpochsOver,
    EpochWanted,
    HoldWanted,
    RestoreTask,
    ResumeTask,
    RewindWanted,
    SnapshotWritten,
    TaskActive,
    TaskRestored,
    ToCoordinator,
    ToTask,
)
from worker.epochs.records import (
    COMPLETED,
    KILLED,
    CommitRecord,
    EndRecord,
    FloorRecord,
    LeadRecord,
    LogRecord,
    RewindRecord,
    SnapshotFile,
    StartPoint,
    component_of,
    left_behind,
)
from worker.epochs.snapshot_files import SweepFiles, sweep_of
from worker.epochs.starting import FetchStart, NoSuchEpoch, start_of


class EpochPhase(Enum):
    """See the table above."""

    READING = auto()
    CLAIMING = auto()
    REWINDING = auto()
    RESTORING = auto()
    OPEN = auto()
    ALIGNING = auto()
    HELD = auto()
    COMMITTING = auto()
    HALTED = auto()
    ENDING = auto()
    ENDED = auto()
    DEPOSED = auto()


P = EpochPhase
#: Phase -> the phases that may follow. From every phase another coordinator's lead leads to DEPOSED.
FOLLOWS: Final[dict[EpochPhase, frozenset[EpochPhase]]] = {
    P.READING: frozenset({P.CLAIMING}),
    P.CLAIMING: frozenset({P.RESTORING, P.ENDING}),
    P.REWINDING: frozenset({P.RESTORING, P.ENDING}),
    P.RESTORING: frozenset({P.OPEN, P.REWINDING, P.ENDING}),
    P.OPEN: frozenset({P.ALIGNING, P.REWINDING, P.ENDING}),
    P.ALIGNING: frozenset({P.HELD, P.COMMITTING, P.REWINDING, P.ENDING}),
    P.HELD: frozenset({P.COMMITTING, P.REWINDING, P.ENDING}),
    P.COMMITTING: frozenset({P.OPEN, P.HALTED, P.REWINDING, P.ENDING}),
    P.HALTED: frozenset({P.REWINDING, P.ENDING}),
    P.ENDING: frozenset({P.ENDED}),
    P.ENDED: frozenset(),
    P.DEPOSED: frozenset(),
}
#: Phases in which a record of the leader may be begun.
LEADING: Final = frozenset({P.RESTORING, P.OPEN, P.ALIGNING, P.HELD, P.HALTED})


class IllegalPhase(Exception):
    """A phase that cannot follow."""


class SendToTask(msgspec.Struct, frozen=True):
    """Send a message to this incarnation of a task."""

    task: str
    incarnation: int
    message: ToTask


class ReadyForChange(msgspec.Struct, frozen=True):
    """Spouts have stopped, and their last epoch is committed: the new assignment may be made."""

    epoch: int


class EpochsEnded(msgspec.Struct, frozen=True):
    """The topology is completed or killed: the record stands."""

    reason: str


class TrimLog(msgspec.Struct, frozen=True):
    """Put this floor, and remove the records that it stands for (`trimming.trim_log`). Nothing waits for it."""

    floor: FloorRecord


CoordinatorEffect = (
    PutRecord
    | TrimLog
    | ReadLog
    | SendToTask
    | SweepFiles
    | ReadyForChange
    | EpochsEnded
    | LeadLost
    | FetchStart
    | NoSuchEpoch
)


class Coordinator:
    """One life of a coordinator. Methods return what has to be done."""

    def __init__(
        self,
        leader: str,
        version: int,
        tasks: Mapping[str, int],
        interval: float,
        keep: int = 10,
        submission: str = "",
        start: tuple[str, int | None] | None = None,
    ) -> None:
        """`leader`: an id that no other life has. `tasks`: "component/index" -> incarnation. `submission`: to which `version`
        belongs; a later one leads whatever its version. `start`: the epoch with which the submission begins, (the path of
        another log or "", its number or None); None: with the last commit."""
        self.leader = leader
        self.version = version
        self.submission = submission
        self.tasks = dict(tasks)
        self.interval = interval
        self.start_wanted, self.keep = start, keep
        #: Into how many groups the keys of stateful bolts are divided: the same number in all commits of a lineage. The caller
        #: sets this.
        self.groups = 0
        self.view = LogView(keep)
        self.writer = LogWriter(self.view, leader)
        self.phase = P.READING
        #: The tasks that have not yet answered the running step.
        self.waiting: set[str] = set()
        #: The tasks that have not yet applied the last commit.
        self.applying: set[str] = set()
        self.files: dict[str, SnapshotFile] = {}
        self.finished: set[str] = set()
        self.next_begin = 0.0
        #: Whether the running epoch is the last of its assignment.
        self.last = False
        self.rewind_wanted = False
        self.change_wanted = False
        #: Whether an earlier version may have to go on from the last commit. The caller sets this; the next `tick` follows.
        self.on_trial = False
        #: Until when the last epoch of a killed topology may take.
        self.deadline: float | None = None
        #: For people.
        self.facts = EpochFacts()

    # What happens.

    def start(self) -> list[CoordinatorEffect]:
        """Read the log, then lead."""
        return self.after_log(self.writer.read(), 0.0)

    def tick(self, now: float) -> list[CoordinatorEffect]:
        """Do what is due."""
        if self.deadline is not None and now >= self.deadline and self.phase in LEADING:
            return self.end(KILLED, now)
        if self.phase is P.HELD and not self.on_trial:
            self.facts.trial_ended(now)
            return self.commit(now)
        done = self.end_if_done(now)
        if not done and self.phase is P.OPEN and (now >= self.next_begin or self.stopping):
            return self.begin_end(now)
        return done

    def assign(self, version: int, tasks: Mapping[str, int], now: float) -> list[CoordinatorEffect]:
        """Follow a new assignment, or new processes of the same one: a rewind."""
        if version < self.version:
            return []
        self.version, self.tasks = version, dict(tasks)
        self.change_wanted = False
        self.facts.rewind_wanted("processes of the topology were started or replaced")
        return self.rewind(now)

    def plan_change(self) -> list[CoordinatorEffect]:
        """Stop the spouts with a last epoch, and say when it is committed (again, if asked again). `call_off` or `assign` ends
        this."""
        self.change_wanted = True
        return [ReadyForChange(self.view.epoch)] if self.phase is P.HALTED else []

    def call_off(self, now: float) -> list[CoordinatorEffect]:
        """The planned change does not take place."""
        if not self.change_wanted:
            return []
        self.change_wanted = False
        if not self.last and self.phase is not P.HALTED:
            return []
        self.facts.rewind_wanted("a planned change was called off")
        return self.rewind(now)

    def kill(self, deadline: float) -> None:
        """End after a last epoch, or at the deadline without it."""
        self.deadline = deadline

    def message(self, task: str, message: ToCoordinator, now: float) -> list[CoordinatorEffect]:
        """Follow a message. One of another rewind number is refused, and with it every message of a process that was replaced:
        only the processes of the present assignment hear of the present number.
        """
        if message.rewind != self.view.rewind or isinstance(message, TaskActive | HoldWanted):
            return []  # whether an epoch without activity is committed, and spouts pause, is for the caller to decide
        if isinstance(message, EpochWanted):
            if self.phase is P.OPEN:  # the commit that is under way otherwise is the one that the task needs
                self.next_begin = min(self.next_begin, now)
                self.last = False  # of a killed topology: a sink needs one more commit
            return []
        if isinstance(message, RewindWanted):
            self.facts.rewind_wanted(message.reason)
            return self.rewind(now)
        if isinstance(message, CommitApplied):
            if message.epoch == self.view.epoch:
                self.applying.discard(task)
            return self.end_if_done(now)
        if isinstance(message, TaskRestored):
            if self.phase is P.RESTORING:
                self.waiting.discard(task)
                if message.waits:
                    self.applying.add(task)
                return self.resume_if_restored(now)
            return []
        if self.phase is P.ALIGNING and message.epoch == self.view.next_epoch:
            self.facts.snapshot_written(task, message.bytes, now)
            return self.snapshot_written(task, message, now)
        return []

    def put_answered(self, answer: PutAnswer, now: float) -> list[CoordinatorEffect]:
        """The store has answered a `PutRecord`."""
        return self.after_log(self.writer.put_answered(answer), now)

    def records_read(self, records: Sequence[LogRecord] | None, now: float) -> list[CoordinatorEffect]:
        """The store has answered a `ReadLog`."""
        return self.after_log(self.writer.records_read(records), now)

    # The log.

    def after_log(self, effects: list[LogEffect], now: float) -> list[CoordinatorEffect]:
        """Pass on what the writer wants, and go on with what stands."""
        found: list[CoordinatorEffect] = []
        for effect in effects:
            if isinstance(effect, RecordStands):
                found += self.stands(effect.record, now)
            elif isinstance(effect, LeadLost):
                self.phase = P.DEPOSED
                found.append(effect)
            elif not isinstance(effect, LogRead):
                found.append(effect)
            elif self.phase is P.READING:
                found += self.claim()
        return found

    def claim(self, found: CommitRecord | None = None) -> list[CoordinatorEffect]:
        """Lead, unless a newer assignment of the same submission has a leader. `found`: what `FetchStart` has asked for."""
        start = StartPoint(found, foreign=True) if found is not None else None
        if start is None and self.start_wanted is not None and not self.view.has_led(self.submission):
            wanted = start_of(self.view, *self.start_wanted)
            if not isinstance(wanted, StartPoint):
                return [wanted]
            start = wanted
        self.version += self.view.base_of(self.submission)
        if self.version < self.view.assignment:
            self.phase = P.DEPOSED
            return [LeadLost()]
        self.enter(P.CLAIMING)
        token = self.writer.new_token()
        return self.write(LeadRecord(token, self.leader, self.version, self.submission, start, self.keep))

    def write(self, record: LogRecord) -> list[CoordinatorEffect]:
        """Begin to write a record."""
        return [effect for effect in self.writer.write(record) if isinstance(effect, PutRecord | ReadLog)]

    def stands(self, record: LogRecord, now: float) -> list[CoordinatorEffect]:
        """Go on after one of its own records stands."""
        if isinstance(record, EndRecord):
            self.enter(P.ENDED)
            return [*self.to_all(EpochsOver(self.view.rewind, self.view.epoch)), EpochsEnded(record.reason)]
        if isinstance(record, CommitRecord):
            return self.committed(record, now)
        self.facts.rewound(self.view.epoch, now)
        return self.restore()

    def enter(self, phase: EpochPhase) -> None:
        """Change the phase. Raises IllegalPhase, and changes nothing, if it cannot follow."""
        if phase not in FOLLOWS[self.phase]:
            raise IllegalPhase(f"{phase.name} cannot follow {self.phase.name}")
        self.phase = phase

    def to_all(self, message: ToTask) -> list[CoordinatorEffect]:
        """A message to every task."""
        return [SendToTask(task, incarnation, message) for task, incarnation in self.tasks.items()]

    # A rewind.

    def rewind(self, now: float) -> list[CoordinatorEffect]:
        """Make all tasks return to the last commit, once no record is being written."""
        if self.phase not in LEADING:
            # Before a rewind's own record stands, no task has heard of it: it restores the tasks that there are then.
            self.rewind_wanted = self.phase is P.COMMITTING
            return []
        self.rewind_wanted = False
        self.enter(P.REWINDING)
        return self.write(RewindRecord(self.writer.new_token(), self.version))

    def restore(self) -> list[CoordinatorEffect]:
        """Step one: a record with the new rewind number stands."""
        self.enter(P.RESTORING)
        self.waiting, self.applying, self.last = set(self.tasks), set(), False
        return [*self.restore_messages()]

    def restore_messages(self) -> list[SendToTask]:
        """Return what every task hears in step one."""
        newest = self.view.newest
        files = newest.files if newest is not None else {}
        version = self.version - self.view.base_of(self.submission)
        counts = dict(Counter(map(component_of, files)))
        sent = []
        for task, incarnation in self.tasks.items():
            component = component_of(task)
            own = {name: file for name, file in files.items() if component_of(name) == component}
            message = RestoreTask(
                self.view.rewind,
                self.view.epoch,
                own,
                version,
                self.view.present_lineage,
                counts,
                newest.groups if newest is not None else self.groups,
            )
            sent.append(SendToTask(task, incarnation, message))
        return sent

    def resume_if_restored(self, now: float) -> list[CoordinatorEffect]:
        """Step two, once every task has answered."""
        if not self.may_resume():
            return []
        self.facts.restored()
        self.enter(P.OPEN)
        self.next_begin = now + self.interval
        if done := self.end_if_done(now):
            return done
        resumed = self.to_all(ResumeTask(self.view.rewind))
        return [*resumed, self.sweep(), *trimming_of(self.view), *self.tick(now)]

    def may_resume(self) -> bool:
        """Return whether every task has returned to the last commit."""
        return not self.waiting

    # An epoch.

    @property
    def stopping(self) -> bool:
        """Whether the next epoch is the last of its assignment."""
        return self.change_wanted or self.deadline is not None

    def begin_end(self, now: float) -> list[CoordinatorEffect]:
        """Send the barriers of the open epoch."""
        if self.last:
            return []  # the spouts have stopped already, and wait for the end of the topology
        self.enter(P.ALIGNING)
        self.facts.end_begun(now)
        self.last = self.stopping
        self.waiting, self.files, self.finished = set(self.tasks), {}, set()
        return self.to_all(BeginEpochEnd(self.view.rewind, self.view.next_epoch, self.last))

    def snapshot_written(self, task: str, message: SnapshotWritten, now: float) -> list[CoordinatorEffect]:
        """Commit once every task's snapshot is in the store."""
        self.waiting.discard(task)
        self.files[task] = message.file
        if message.finished:
            self.finished.add(task)
        if not self.may_commit():
            return []
        return self.commit(now)

    def commit(self, now: float) -> list[CoordinatorEffect]:
        """Commit the epoch whose snapshots are there, unless an earlier version may have to go on from the last commit."""
        if self.on_trial:
            self.enter(P.HELD)
            self.facts.held(now)
            return []
        self.enter(P.COMMITTING)
        view = self.view
        finished = tuple(sorted(self.finished))
        files = {**left_behind(view.newest, self.tasks), **self.files}
        return self.write(
            CommitRecord(self.writer.new_token(), view.next_epoch, view.rewind, files, finished, self.groups)
        )

    def may_commit(self) -> bool:
        """Return whether every task's snapshot is in the store."""
        return not self.waiting

    def committed(self, record: CommitRecord, now: float) -> list[CoordinatorEffect]:
        """Go on after a commit: tell the tasks, sweep, and do what had to wait."""
        self.applying = set(self.tasks)
        self.facts.committed(now)
        told = self.to_all(EpochCommitted(record.rewind, record.epoch))
        sent = [*told, self.sweep(), *trimming_of(self.view)]
        if self.change_wanted and self.last and not self.rewind_wanted and self.deadline is None:
            self.enter(P.HALTED)
            return [*sent, ReadyForChange(record.epoch)]
        self.enter(P.OPEN)
        self.next_begin = now + self.interval
        if self.rewind_wanted:
            return [*sent, *self.rewind(now)]
        return [*sent, *self.tick(now)]

    def sweep(self) -> SweepFiles:
        """Return what may be removed from the store."""
        view = self.view
        return sweep_of(view.kept, view.rewind, view.epoch)

    # The end.

    def end_if_done(self, now: float) -> list[CoordinatorEffect]:
        """End if the last commit says that nothing is left to do, or is the last one, and all of it is visible outside."""
        if self.applying or self.phase not in (P.OPEN, P.HALTED) or self.view.newest is None:
            return []
        finished = self.view.newest.finished
        if len(finished) >= len(self.tasks) and set(finished) >= set(self.tasks):
            return self.end(COMPLETED, now)
        if self.deadline is not None and self.last:
            return self.end(KILLED, now)
        return []

    def end(self, reason: str, now: float) -> list[CoordinatorEffect]:
        """Write that no epoch follows."""
        self.enter(P.ENDING)
        return self.write(EndRecord(self.writer.new_token(), self.view.epoch, reason))


def trimming_of(view: LogView) -> list[CoordinatorEffect]:
    """Trim a log that has become long. Only who leads does so, and while it writes no record."""
    if not view.is_long:
        return []
    view.floor = view.last
    return [TrimLog(view.floor_here())]
