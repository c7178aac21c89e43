"""A simulated cluster: workers with tasks and perhaps a coordinator, links, and a Nimbus that places tasks.

Must not know: what happens when (see the stories), what is right (see the oracle).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.epochs.epoch_cycles import Holds
from tests.epochs.epoch_links import SimulatedLinks
from tests.epochs.epoch_refusals import shown
from tests.epochs.epoch_stores import Outside
from tests.epochs.epoch_tasks import SimulatedTask
from tests.epochs.epoch_timeline import Process, Timeline
from tests.epochs.epoch_topologies import Part, Plan
from worker.epochs import trimming
from worker.epochs.coordinator import (
    Coordinator,
    CoordinatorEffect,
    EpochPhase,
    EpochsEnded,
    ReadyForChange,
    SendToTask,
    TrimLog,
)
from worker.epochs.log import LeadLost, PutAnswer, PutRecord, ReadLog
from worker.epochs.messages import RestoreTask
from worker.epochs.participant import (
    AbortHandle,
    AckEmissions,
    LoadSnapshot,
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
from worker.epochs.records import SnapshotFile
from worker.epochs.sinks import CommitHandle, ReadToken, ShowAnswer, ShowLetters, WriteRows
from worker.epochs.snapshot_files import BadSnapshot, SnapshotData, SweepFiles, read_chain, removable


class Worker(Process):
    """A worker process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tasks: dict[str, SimulatedTask] = {}
        self.coordinator: Coordinator | None = None
        self.placement: Placement | None = None


@dataclass
class Placement:
    """An assignment: task -> (worker, incarnation)."""

    version: int
    places: dict[str, tuple[Worker, int]]
    #: Component -> number of tasks.
    counts: dict[str, int]
    #: Whether this is of a version on trial.
    on_trial: bool = False

    @property
    def leader(self) -> Worker:
        """The worker of the first spout task."""
        return next(iter(self.places.values()))[0]


@dataclass
class Settings:
    """How bad the world is."""

    interval: float
    lose: float
    gone: float
    late: float
    #: How much slower than the store sinks are.
    sinks: float = 1.0
    #: The longest time that a frame takes, and one that is late.
    net: float = 0.002
    long: float = 0.15
    #: After how many records the log is trimmed, at least.
    trim_every: int = 8
    #: How many emissions of a spout task may wait for their commit.
    most_uncommitted: int = 1_000_000
    #: How many rows may wait for a task of a cycle.
    most_on_cycle: int = 1_000_000


@dataclass
class Cluster:
    """One topology on a cluster."""

    line: Timeline
    random: Random
    plan: Plan
    outside: Outside
    settings: Settings
    window: int = 2
    placement: Placement = field(default_factory=lambda: Placement(0, {}, {}))
    lives: int = 0
    #: Source values that spouts which cannot rewind have consumed.
    consumed: dict[str, int] = field(default_factory=dict)
    #: Spout tasks whose process was replaced.
    replaced: set[str] = field(default_factory=set)
    channels: dict[tuple[Worker, Worker], float] = field(default_factory=dict)
    ended: str = ""
    #: How many times a task has returned in memory.
    returned: int = 0
    #: What Nimbus wants: a planned change, and the deadline of a kill.
    change: Callable[[], None] | None = None
    deadline: float | None = None
    #: Whether the version that has the name may still be rolled back.
    on_trial: bool = False
    on_ack: Callable[[str, tuple[Any, ...]], None] = lambda task, ids: None
    #: Faults that wait for a moment: the name of an effect, and how many of these are left until then.
    armed: dict[str, int] = field(default_factory=dict)
    on_moment: Callable[[str, Worker], None] = lambda name, worker: None
    on_end: Callable[[], None] = lambda: None
    log: Callable[[str], None] = lambda text: None
    #: Whether events are described in full.
    verbose: bool = False

    def __post_init__(self) -> None:
        self.links, self.holds = SimulatedLinks(self), Holds()

    # Placing.

    def new_worker(self) -> Worker:
        """Start a worker; it takes a moment."""
        self.lives += 1
        worker = Worker(f"w{self.lives}")
        worker.frozen = True
        self.line.soon(0.02, None, self.line.thaw, worker)
        return worker

    def task_names(self) -> list[str]:
        """All tasks, spouts first."""
        return [f"{name}/{i}" for name, count in self.counts().items() for i in range(count)]

    def counts(self) -> dict[str, int]:
        """Component -> number of tasks, as it is to be."""
        return {part.name: part.parallelism for part in self.plan.parts.values()}

    def place(self, places: dict[str, Worker], new: set[str]) -> None:
        """Make a new assignment: task -> worker. Tasks in `new` are new processes even where they stay."""
        version = self.placement.version + 1
        before = self.placement.places
        found = {}
        for task in self.task_names():
            worker = places[task]
            stays = task in before and before[task][0] is worker and task not in new
            found[task] = (worker, before[task][1] if stays else version)
        self.placement = Placement(version, found, self.counts(), self.on_trial)
        self.change = None
        if self.verbose:
            self.log(f"placement {version}: { {task: place[0].name for task, place in found.items()} }")
        for worker in dict.fromkeys(place[0] for place in [*found.values(), *before.values()]):
            self.line.soon(0.01, worker, self.adopt, worker, self.placement)

    def adopt(self, worker: Worker, placement: Placement) -> None:
        """A worker follows an assignment."""
        if worker.placement is not None and worker.placement.version >= placement.version:
            return
        worker.placement = placement
        for name, task in list(worker.tasks.items()):
            if placement.places.get(name) != (worker, task.incarnation):
                task.closed = True
                del worker.tasks[name]
        for name, (place, incarnation) in placement.places.items():
            if place is worker and name not in worker.tasks:
                component, _, index = name.partition("/")
                part = self.plan.parts[component]
                worker.tasks[name] = SimulatedTask(self, worker, part, int(index), incarnation)
        coordinator = worker.coordinator
        tasks = {name: incarnation for name, (_, incarnation) in placement.places.items()}
        if placement.leader is not worker:
            worker.coordinator = None
        elif coordinator is None or coordinator.phase is EpochPhase.DEPOSED:
            self.lives += 1
            coordinator = Coordinator(
                f"{worker.name}.{self.lives}", placement.version, tasks, self.settings.interval, keep=3
            )
            worker.coordinator = coordinator
            coordinator.view.trim_every = self.settings.trim_every
            coordinator.on_trial = placement.on_trial
            self.run_coordinator(worker, coordinator, coordinator.start())
            self.tick(worker, coordinator)
        else:
            self.run_coordinator(
                worker, coordinator, coordinator.assign(placement.version, tasks, self.line.now)
            )

    def pass_trial(self) -> None:
        """Nimbus keeps the version on trial; its coordinator hears of it."""
        self.on_trial = False
        leader = self.placement.leader
        self.line.soon(0.02, leader, self.trial_passed, leader, self.placement)

    def trial_passed(self, leader: Worker, placement: Placement) -> None:
        """A coordinator hears that nothing rolls its version back any more, or will hear it from its placement."""
        placement.on_trial = False
        coordinator = leader.coordinator
        if coordinator is not None:
            coordinator.on_trial = False

    def tick(self, worker: Worker, coordinator: Coordinator) -> None:
        """Tell a coordinator the time, and what Nimbus wants."""
        if worker.coordinator is not coordinator or coordinator.phase in (
            EpochPhase.ENDED,
            EpochPhase.DEPOSED,
        ):
            return
        if worker is self.placement.leader:
            if self.change is not None:
                self.run_coordinator(worker, coordinator, coordinator.plan_change())
            if self.deadline is not None and coordinator.deadline is None:
                coordinator.kill(self.deadline)
        self.run_coordinator(worker, coordinator, coordinator.tick(self.line.now))
        self.line.after(0.005, worker, self.tick, worker, coordinator)

    # Coordinators.

    def run_coordinator(
        self, worker: Worker, coordinator: Coordinator, effects: list[CoordinatorEffect]
    ) -> None:
        """Do what a coordinator wants. A process that was frozen in the middle of something does the rest when it thaws."""
        if worker.frozen:
            worker.deferred.append((self.run_coordinator, (worker, coordinator, effects)))
            return
        for number, effect in enumerate(effects):
            if self.verbose:
                self.log(f"{coordinator.leader} {coordinator.phase.name}: {effect}")
            if self.armed and not self.survives(worker, effect):
                worker.deferred.append((self.run_coordinator, (worker, coordinator, effects[number:])))
                return
            self.holds.follow(coordinator, effect)
            if isinstance(effect, SendToTask):
                self.send_to_task(worker, effect)
            elif isinstance(effect, PutRecord):
                self.outside.carry_out(
                    worker,
                    trimming.put_record(effect.number, effect.record),
                    lambda answer: self.run_coordinator(
                        worker, coordinator, coordinator.put_answered(answer, self.line.now)
                    ),
                    PutAnswer.UNKNOWN,
                )
            elif isinstance(effect, ReadLog):
                self.outside.carry_out(
                    worker,
                    trimming.read_log(effect.after),
                    lambda records: self.run_coordinator(
                        worker, coordinator, coordinator.records_read(records, self.line.now)
                    ),
                    None,
                )
            elif isinstance(effect, TrimLog):
                self.outside.carry_out(worker, trimming.trim_log(effect.floor), lambda _: None, None)
            elif isinstance(effect, SweepFiles):
                for name in removable(effect, self.outside.files):
                    self.line.soon(0.05, None, self.outside.remove, name)
            elif isinstance(effect, EpochsEnded):
                self.ended = effect.reason
                self.on_end()
            elif isinstance(effect, ReadyForChange):
                if self.change is not None and worker is self.placement.leader:
                    self.line.soon(0.01, None, self.make_change, self.change)
            else:
                assert isinstance(effect, LeadLost)

    def make_change(self, change: Callable[[], None]) -> None:
        """Nimbus makes the assignment that it has planned, unless another one came first."""
        if self.change is change:
            change()

    def control_delay(self, source: Worker, target: Worker) -> float:
        """Control messages between two workers keep their order."""
        delay = self.line.draw() * (0.15 if self.line.draw() < self.settings.late / 3 else 0.003)
        at = max(self.channels.get((source, target), 0.0), self.line.now + delay) + 1e-7
        self.channels[source, target] = at
        return at - self.line.now

    def send_to_task(self, worker: Worker, effect: SendToTask) -> None:
        """A coordinator's message to a task."""
        placement = worker.placement
        assert placement is not None
        place = placement.places.get(effect.task)
        if place is not None:
            target = place[0]
            self.line.after(self.control_delay(worker, target), target, self.task_message, target, effect, 0)

    def task_message(self, target: Worker, effect: SendToTask, tries: int) -> None:
        """A task gets a message; a process that does not know it yet gets the assignment soon."""
        task = target.tasks.get(effect.task)
        known = -1 if target.placement is None else target.placement.version
        version = effect.message.assignment if isinstance(effect.message, RestoreTask) else 0
        if task is None or task.incarnation < effect.incarnation or known < version:
            if known < max(effect.incarnation, version) and tries < 50:
                self.line.after(0.002, target, self.task_message, target, effect, tries + 1)
        elif task.incarnation == effect.incarnation:
            if isinstance(effect.message, RestoreTask) and effect.message.rewind > task.participant.rewind:
                task.leave()
            self.run_effects(task, task.participant.message(effect.message))

    def survives(self, worker: Worker, effect: CoordinatorEffect | TaskEffect) -> bool:
        """Let a fault happen that waits for this moment; return whether the worker goes on."""
        name = type(effect).__name__
        left = self.armed.get(name)
        if left is not None:
            self.armed[name] = left - 1
            if left <= 1:
                del self.armed[name]
                self.on_moment(name, worker)
        return worker.alive and not worker.frozen

    # Tasks.

    def run_effects(self, task: SimulatedTask, effects: list[TaskEffect]) -> None:
        """Do what a participant wants. A process that was frozen in the middle of something does the rest when it thaws."""
        if task.worker.frozen:
            task.worker.deferred.append((self.run_effects, (task, effects)))
            return
        for number, effect in enumerate(effects):
            if self.armed and not self.survives(task.worker, effect):
                task.worker.deferred.append((self.run_effects, (task, effects[number:])))
                return
            self.run_effect(task, effect)

    def run_effect(self, task: SimulatedTask, effect: TaskEffect) -> None:
        """Do one thing."""
        worker, participant, outside = task.worker, task.participant, self.outside
        if isinstance(effect, PutInInbox):
            task.inbox.extend(effect.items)
            task.wake()
        elif isinstance(effect, SendBarrier):
            task.send_barrier(effect.barrier)
        elif isinstance(effect, SendToCoordinator):
            if self.verbose:
                self.log(f"{task.name}.{task.incarnation} {effect.message}")
            self.send_to_coordinator(task, effect)
        elif isinstance(effect, StopTask):
            task.running = False
        elif isinstance(effect, RunTask):
            task.running = True
            task.wake()
        elif isinstance(effect, LoadSnapshot):
            task.load(effect.snapshot, effect.in_memory)
        elif isinstance(effect, AckEmissions):
            self.on_ack(task.name, effect.ids)
        elif isinstance(effect, AbortHandle):
            self.line.soon(0.005, None, outside.abort, effect.epoch, effect.handle)
        elif isinstance(effect, ReadSnapshots):
            self.read_snapshots(task, effect)
        elif isinstance(effect, ReturnInMemory):
            self.returned += 1
            found = participant.snapshots_read(
                effect.rewind, [effect.snapshot], task.merge, self.line.now, in_memory=True
            )
            self.run_effects(task, found)
        elif isinstance(effect, WriteSnapshot):
            rewind = effect.rewind
            outside.call(
                worker,
                lambda: self.keep(effect.data),
                lambda file: self.answer(task, participant.snapshot_written(rewind, file)),
                None,
            )
        else:
            self.show(task, effect)

    def keep(self, data: SnapshotData) -> SnapshotFile:
        """Write a file."""
        file = data.file()
        self.outside.files[file.name] = bytes(data.data)
        return file

    def answer(self, task: SimulatedTask, effects: list[TaskEffect]) -> None:
        """The answer to a call of a task."""
        if not task.closed:
            self.run_effects(task, effects)

    def read_snapshots(self, task: SimulatedTask, effect: ReadSnapshots) -> None:
        """Read the snapshots of a commit."""

        def read() -> Any:
            try:
                wanted = task.numbers.wanted(effect.files)
                labelled = wanted is not None
                return [read_chain(file, self.data_of, wanted, labelled) for file in effect.files.values()]
            except BadSnapshot as error:
                self.log(str(error))
                return None

        def done(snapshots: Any) -> None:
            found = task.participant.snapshots_read(effect.rewind, snapshots, task.merge, self.line.now)
            self.answer(task, found)

        self.outside.call(task.worker, read, done, None, lasting=False)

    def data_of(self, name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        """Bytes of a file."""
        data = self.outside.files.get(name, b"")[offset:]
        return data if length is None else data[:length]

    def show(self, task: SimulatedTask, effect: TaskEffect) -> None:
        """A call that makes something visible."""
        outside, participant = self.outside, task.participant
        rewind = participant.rewind
        if isinstance(effect, ReadToken):
            key = (task.part.name, effect.index)
            outside.call(
                task.worker,
                lambda: outside.tokens.get(key, 0),
                lambda token: self.answer(task, participant.token_read(rewind, effect, token)),
                None,
                lasting=False,
            )
            return
        calls: dict[type, Callable[[Any], ShowAnswer | list[int]]] = {
            CommitHandle: lambda e: outside.commit(e.epoch, e.handle),
            WriteRows: lambda e: outside.write(task.part, e),
            ShowLetters: lambda e: outside.keep_letters(e.letters),
        }
        outside.call(
            task.worker,
            lambda: calls[type(effect)](effect),
            lambda answer: self.answer(task, shown(task, rewind, effect, answer)),
            ShowAnswer.UNKNOWN,
            factor=self.settings.sinks,
        )

    def prepare(self, task: SimulatedTask, rewind: int, epoch: int, rows: list[Any]) -> None:
        """A staged sink prepares; this cannot fail here, but takes its time."""
        outside = self.outside

        def done() -> None:
            handle = outside.prepare(task.name, epoch, rows)
            self.line.soon(0.002, task.worker, self.prepared, task, rewind, epoch, handle)

        self.line.after(outside.duration() * self.settings.sinks, None, done)

    def prepared(self, task: SimulatedTask, rewind: int, epoch: int, handle: str) -> None:
        """The handle of an epoch is there."""
        self.run_effects(task, task.participant.prepared(rewind, epoch, handle))

    def send_to_coordinator(self, task: SimulatedTask, effect: SendToCoordinator) -> None:
        """A task's message goes to the worker that leads by the task's own assignment."""
        placement = task.worker.placement
        assert placement is not None
        leader = placement.leader
        self.line.after(
            self.control_delay(task.worker, leader), leader, self.coordinator_message, leader, task, effect
        )

    def coordinator_message(self, leader: Worker, task: SimulatedTask, effect: SendToCoordinator) -> None:
        """A coordinator gets a message."""
        coordinator = leader.coordinator
        if coordinator is not None:
            found = coordinator.message(task.name, effect.message, self.line.now)
            self.run_coordinator(leader, coordinator, found)
            held = self.holds.heard(coordinator, task.name, effect.message)
            self.run_coordinator(leader, coordinator, held)

    # The rest of the world.

    def consume(self, task: str) -> int:
        """A value of a source that cannot go back."""
        number = self.consumed.get(task, 0)
        self.consumed[task] = number + 1
        return number

    def end_cycle_if_quiet(self, part: Part) -> None:
        """End a cycle once no row is on it (the worker's `CycleWatch` finds this by asking twice)."""
        tasks = []
        for name, (worker, incarnation) in self.placement.places.items():
            if name.partition("/")[0] == part.name:
                task = worker.tasks.get(name)
                if task is None or task.incarnation != incarnation or not worker.alive or worker.frozen:
                    return
                tasks.append(task)
        if len({task.participant.rewind for task in tasks}) > 1:
            return
        for task in tasks:
            quiet = task.idle() and task.running and task.ended >= set(task.inputs)
            if not quiet or any(task.outboxes.get(target) for target in task.closing):
                return
            if any(task.side(target).sent != task.side(target).executed for target in task.closing):
                return
        for task in tasks:
            task.end_cycle()
