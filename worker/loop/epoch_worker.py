"""A worker of a topology whose state is kept outside of it: nothing runs before the last commit is restored.

Must not know: sockets, how epochs are agreed on (`worker.epochs`).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from random import Random
from typing import Any, Final

from squall.dead_letters.letter import DeadLetter, shown_values
from squall.transport.credit import ReceiveWindow, SendWindow
from squall.transport.frames import Batch
from topology_api import Failure, Replay, SquallError
from worker.epochs.alignment import Alignment
from worker.epochs.coordinator import Coordinator
from worker.epochs.parking import ParkedLetter, Parking
from worker.errors.reports import make_report
from worker.loop.epoch_store import EpochFiles, InlineCalls, ThreadCalls
from worker.loop.epochs import Epochs, StoreCalls
from worker.loop.links import Links
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.routing.outbox import Outbox
from worker.tasks.bolt import BoltTask
from worker.tasks.epoch_bolt import EpochBoltTask, EpochSetup
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.task import Task
from worker.tracking.dead_letters import GivenUp

#: The most parked tuples of a task; at the limit it takes no input.
MOST_PARKED: Final = 1000
#: The length of the id of a bolt's letter.
ID_DIGITS: Final = 24


class EpochLinks(Links):
    """Links whose batches pass the alignment of their task.

    A window belongs to a pair of tasks: frames of one task that are held behind its barrier take no credit from its neighbours.
    """

    epochs: Epochs

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pairs: dict[tuple[int, int], SendWindow] = {}
        self.arriving: dict[tuple[int, int], ReceiveWindow] = {}

    def window_for(self, parcel: Outbox | Batch) -> SendWindow:
        pair = (parcel.source.task, parcel.target)
        window = self.pairs.get(pair)
        if window is None:
            window = self.pairs[pair] = SendWindow(self.window_of(parcel.target))
        return window

    def arrive(self, batch: Batch) -> None:
        if batch.frame:
            pair = (batch.source.task, batch.target)
            window = self.arriving.get(pair)
            if window is None:
                window = self.arriving[pair] = ReceiveWindow(self.window_of(batch.target))
            batch.window = window
        self.epochs.arrive(batch)

    def enter_inbox(self, task: BoltTask, batch: Batch) -> None:
        """Put a batch into an inbox."""
        task.inbox.append(batch)
        self.woken.append(task)

    def done(self, batch: Batch) -> None:
        if batch.window is None:
            return
        upto = batch.window.confirm(batch.frame)
        if self.window_for(batch).grant(upto) and batch.target in self.waiting:
            self.retry.update(self.waiting.pop(batch.target))

    def forget_pairs(self) -> None:
        """All tasks are new objects: nothing is in flight."""
        self.pairs.clear()
        self.arriving.clear()


class EpochWorker(Worker):
    """All tasks of a topology, and their epochs."""

    kind_of_links = EpochLinks
    links: EpochLinks
    epochs: Epochs | None = None

    # Life.

    def open_tasks(self, rows: list[Any]) -> None:
        plan = self.plan
        if len(set(plan.worker_of.values())) > 1:
            self.end(
                SquallError(
                    "a topology with topology.state.path runs in one worker: set topology.workers to 1"
                )
            )
            return
        self.environment.prepare = self.prepare_task
        super().open_tasks(rows)

    def prepare_task(self, task: Task) -> None:
        """Give a new task its part in epochs."""
        assert isinstance(task, EpochBoltTask | EpochSpoutTask)
        plan, conf, time_of = self.plan, self.plan.conf_of(task.spec.id), self.environment.time_of
        give_up = conf["topology.outage.give.up.secs"]
        sources = plan.end_sources(task.spec.id) if isinstance(task, EpochBoltTask) else []
        task.join_epochs(
            EpochSetup(
                to_wall=time_of,
                from_wall=lambda time: time - (time_of(self.now()) - self.now()),
                names=plan.names,
                replay=replay_of(plan),
                alignment=Alignment([plan.names[source] for source in sources]),
                parking=Parking(plan.names[task.id], MOST_PARKED),
                give_up_secs=None if give_up is None else float(give_up),
                most_uncommitted=int(conf["topology.epoch.uncommitted"]),
            )
        )
        if isinstance(task, EpochBoltTask):
            task.sources = frozenset(sources)
            task.fields_of = {
                (each.source, each.stream): plan.topology.component(each.source).outputs[each.stream].fields
                for each in task.spec.inputs
            }

    def begin_epochs(self) -> None:
        """All tasks are opened: restore the last commit, and go on from there."""
        plan = self.plan
        tasks = [task for task in self.tasks.values() if isinstance(task, EpochBoltTask | EpochSpoutTask)]
        files = EpochFiles(plan.conf["topology.state.path"], plan.topology.name)
        calls: StoreCalls = InlineCalls() if self.inline else ThreadCalls(plan.topology.name, self.wake)
        leader = f"{plan.topology_id}/{self.name}/{plan.incarnation}/{Random().getrandbits(64):x}"
        names = {plan.names[task.id]: plan.incarnation.restart for task in tasks}
        coordinator = Coordinator(
            leader,
            plan.incarnation.version,
            names,
            float(plan.conf["topology.epoch.secs"]),
            int(plan.conf["topology.epoch.keep"]),
            plan.topology_id,
        )
        targets = {task.id: plan.end_targets(task.spec.id) for task in tasks}
        self.links.epochs = self.epochs = Epochs(
            self,
            tasks,
            targets,
            coordinator,
            files,
            calls,
            plan.incarnation.restart,
            self.now,
        )

    def replan(self, plan: WorkerPlan) -> None:
        """Begin from the last commit, with new task objects."""
        self.stop_epochs()
        for task in list(self.tasks.values()):
            self.remove(task)
        self.links.forget_pairs()
        super().replan(plan)

    def stop_epochs(self) -> None:
        """What is not committed is void."""
        if self.epochs is not None:
            self.epochs.stop()
            self.epochs = None

    def stop(self) -> None:
        self.stop_epochs()
        super().stop()

    @property
    def finished_spouts(self) -> set[int]:
        return set()  # a commit says what has finished, and a rewind may undo it

    @property
    def ended(self) -> bool:
        return super().ended and self.epochs is not None and self.epochs.over

    @property
    def drained(self) -> bool:
        return super().drained and (self.epochs is None or self.epochs.halted)

    def set_active(self, active: bool) -> None:
        if self.epochs is not None and self.epochs.coordinator.change_wanted:
            # The change does not take place. The spouts have stopped, so all goes on from the last commit, as after a restart.
            self.draining = False
            self.replan(self.plan)
        super().set_active(active)

    def end(self, error: SquallError) -> None:
        """End this worker: it cannot go on."""
        row = min(self.plan.tasks)
        report = make_report(self.plan.topology.name, row[1], row[0], "start", error, None, self.now())
        self.take_reports([report])
        self.crash = self.crash or report

    # The loop.

    def step(self) -> bool:
        if not self.started or self.stopped or self.crash:
            return False
        if self.epochs is None:
            if not self.table.opened:
                return self.threads.visit(self.now()) | self.collect_threads()
            self.begin_epochs()
        assert self.epochs is not None
        busy = self.epochs.step(self.now())
        if not self.epochs.running:
            return busy | self.threads.visit(self.now()) | self.collect_threads()
        if self.draining and super().drained and not self.epochs.coordinator.change_wanted:
            self.epochs.coordinate(self.epochs.coordinator.plan_change())
        busy |= super().step()
        if not busy and super().ended:
            self.epochs.all_ended()
        return busy

    def collect_threads(self) -> bool:
        """Collect the runs of threaded tasks that have ended, while nothing else runs."""
        busy = False
        for task_id in self.threads.runner.collect():
            busy = True
            self.ran(self.tasks[task_id], self.now())
        return busy

    def ran(self, task: Task, now: float) -> None:
        if task.jobs == 1 and self.epochs is not None:
            assert isinstance(task, EpochBoltTask | EpochSpoutTask)
            self.epochs.collect(task)
        super().ran(task, now)

    def next_time(self) -> float | None:
        if not self.started or self.stopped or self.crash:
            return None
        if self.epochs is None or not self.epochs.running:
            return None if self.epochs is None else self.epochs.next_time()
        times = (super().next_time(), self.epochs.next_time())
        return min((time for time in times if time is not None), default=None)

    # What `Epochs` needs of its worker.

    def run_job(self, task: Task, job: Callable[[], Any]) -> None:
        """See `EpochHost`."""
        self.execute(task, job)

    def enter_inbox(self, task: EpochBoltTask, batch: Batch) -> None:
        """See `EpochHost`."""
        self.links.enter_inbox(task, batch)

    def keep_letters(self, task: Task, letters: list[ParkedLetter], lineage: str, again: bool) -> bool:
        """See `EpochHost`."""
        keeper = self.environment.letters(task.id)
        now = keeper.time_of(self.now())
        given_up = [letter_of(task, letter, lineage, now) for letter in letters]
        if again:
            known = keeper.known([each.letter.id for each in given_up])
            given_up = [each for each in given_up if each.letter.id not in known]
        return keeper.keep(given_up) == len(given_up)


def replay_of(plan: WorkerPlan) -> Replay:
    """Return the policy for tuples that fail in a bolt: that of the first spout that has one."""
    found = [plan.topology.load(spec.id).replay for spec in plan.topology.spouts]
    return next((replay for replay in found if replay is not None), Replay(max_attempts=1))


def letter_of(task: Task, letter: ParkedLetter, lineage: str, now: float) -> GivenUp:
    """Return the dead letter of a tuple that was given up in a bolt task."""
    source, _, stream, packed = letter.item
    assert isinstance(task, EpochBoltTask)
    row = pickle.loads(packed)
    values, as_text = shown_values(row)
    context = task.context
    failure = Failure("failed", task.spec.id, task.id, letter.failure, letter.attempts)
    return GivenUp(
        DeadLetter(
            id=hashlib.sha256(f"{lineage}/{letter.id}".encode()).hexdigest()[:ID_DIGITS],
            topology=context.topology,
            topology_id=context.topology_id,
            component=context.component,
            task=context.task,
            stream=stream,
            message_id="",
            fields=tuple(task.fields_of[source, stream]),
            values=values,
            as_text=as_text,
            failure=failure,
            attempts=letter.attempts,
            emitted_at=now,
            given_up_at=now,
        ),
        row,
    )


def worker_class(plan: WorkerPlan) -> type[Worker]:
    """Return the kind of worker that a plan needs."""
    return EpochWorker if plan.has_epochs else Worker
