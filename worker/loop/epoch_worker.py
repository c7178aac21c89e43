"""A worker of a topology whose state is kept outside of it: nothing runs before the last commit is restored.

The worker of the first spout task has the coordinator of all epochs. A rewind closes all tasks and makes new ones: in this
worker, and, since each hears of it, in all others.
Must not know: sockets, how epochs are agreed on (`worker.epochs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import partial
from random import Random
from typing import Any, Final

from msgspec import structs

from squall.dead_letters.letter import DeadLetter, shown_values
from squall.reports.error_reports import STATE
from squall.transport.frames import Control, EpochFrame, Unsent
from squall.unreadable import loads, why_unreadable
from topology_api import Failure, SquallError, StateError
from topology_api.epoch_rules import STATE_PATH, STATE_WEBHDFS, epoch_secs, named_groups
from worker.epochs.coordinator import Coordinator
from worker.epochs.messages import (
    BadEnvelope,
    RestoreTask,
    ToCoordinator,
)
from worker.epochs.parking import ParkedLetter
from worker.epochs.records import BadLog
from worker.errors.reports import make_report
from worker.loop.cycle_input import CYCLE_TUPLES
from worker.loop.epoch_lead import EpochLead
from worker.loop.epoch_links import EpochLinks
from worker.loop.epoch_mail import EpochMail
from worker.loop.epoch_peers import EpochPeers
from worker.loop.epoch_store import EpochFiles
from worker.loop.epoch_tasks import join_epochs
from worker.loop.epoch_telling import EpochTelling
from worker.loop.epochs import Epochs
from worker.loop.letters_again import LettersAgain
from worker.loop.outside_calls import OutsideCalls
from worker.loop.plan import WorkerPlan
from worker.loop.store_calls import InlineCalls, StoreCalls, ThreadCalls
from worker.loop.uncommitted import UNCOMMITTED_MB, Uncommitted
from worker.loop.worker import Worker
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.epoch_spout import EpochSpoutTask
from worker.tasks.parked_tuples import TIMER, TIMER_FIELDS, fields_of, mark_of
from worker.tasks.task import Task
from worker.tracking.dead_letters import GivenUp
from worker.tracking.ids import task_of

#: The length of the id of a bolt's letter.
ID_DIGITS: Final = 24


class EpochWorker(Worker):
    """Tasks of a topology, and their epochs."""

    kind_of_links = EpochLinks
    links: EpochLinks

    def __init__(self, plan: WorkerPlan, *args: Any, **kwargs: Any) -> None:
        super().__init__(plan, *args, **kwargs)
        name, conf = plan.topology.name, plan.conf
        self.files = EpochFiles(conf[STATE_PATH], name, conf[STATE_WEBHDFS], plan.committed)
        self.calls: StoreCalls = (
            InlineCalls(self.now) if self.inline else ThreadCalls(name, self.wake, self.now, self.files.close)
        )
        self.mail = EpochMail(self.name, self.ack_router, self.tell_lead)
        self.outside = OutsideCalls(self)
        self.call_outside = self.outside.call  # see `OutsideHost`
        self.links.epochs = self.epochs = Epochs(
            self, self.links, self.mail, self.files, self.calls, self.now, int(conf[CYCLE_TUPLES])
        )
        self.uncommitted = Uncommitted(self.name, int(conf[UNCOMMITTED_MB]), self.epochs)
        #: The coordinator, if it is in this worker, once its tasks are opened.
        self.lead: EpochLead | None = None
        self.telling = EpochTelling(self)
        self.again = LettersAgain(self)
        #: Why the next coordinator here begins.
        self.lead_reason = f"worker {self.name}, which coordinates the epochs, was started"
        self.peers = EpochPeers.of(self.peers, self)
        self.environment.prepare = self.prepare_task
        self.cycles.is_idle = partial(cycle_idle, self)
        #: Whether spouts may emit.
        self.active = True
        #: Whether no task has begun with a commit.
        self.fresh = True
        self.mail.assign(plan)
        self.epochs.assign(plan)

    # Life.

    def prepare_task(self, task: Task) -> None:
        """Give a new task its part in epochs."""
        assert isinstance(task, EpochBoltTask | EpochSpoutTask)
        if isinstance(task, EpochSpoutTask):
            task.active = self.active
        known = self.epochs.participants.get(task.id)
        self.epochs.join(task, join_epochs(task, self.environment, known, partial(message_id_at, self)))
        if isinstance(task, EpochBoltTask):
            task.outages.on_trial = self.on_trial
        self.outside.prepare(task)

    def tell_lead(self, task: str, message: ToCoordinator) -> None:
        """Deliver a message to the coordinator, if it is here."""
        if self.lead is not None:
            self.lead.message(task, message)

    def begin_to_lead(self) -> None:
        """All tasks here are opened, and the coordinator belongs here: let it claim the lead."""
        plan = self.plan
        coordinator = Coordinator(
            f"{plan.topology_id}/{self.name}/{plan.incarnation}/{Random().getrandbits(64):x}",
            max(plan.version, plan.incarnation.version),
            dict.fromkeys(plan.names.values(), plan.incarnation.restart),
            epoch_secs(plan.topology, plan.conf),
            int(plan.conf["topology.epoch.keep"]),
            plan.tenure,
            None if plan.state_start is None else (plan.state_start.path, plan.state_start.epoch),
        )
        coordinator.groups = plan.key_groups
        coordinator.facts.rewind_wanted(self.lead_reason)
        activity = self.epochs.activity.count
        self.lead = EpochLead(
            self.mail, coordinator, self.files, self.calls, self.now, activity, self.end, plan.topology
        )
        self.lead.groups_named = named_groups(plan.conf) is not None
        if not self.inline:  # in simulated time, the files' times say nothing
            time_of, now = self.environment.time_of, self.now
            self.lead.from_wall = lambda time: time - (time_of(now()) - now())

    def replan(self, plan: WorkerPlan) -> None:
        """Begin from the last commit, with new task objects."""
        plan = structs.replace(plan, groups=self.plan.groups)
        self.lead = None
        self.lead_reason = "the tasks were placed again"
        names = self.plan.names
        kept = [spout for spout in self.lasting_spouts() if plan.names.get(spout.id) == names[spout.id]]
        kept = [spout for spout in kept if spout.id in plan.tasks_here]
        self.close_tasks(kept)
        for spout in kept:
            # Its tuples may go to further tasks now.
            spout.epochs = structs.replace(spout.epochs, names=plan.names)
        self.fresh = True
        self.mail.assign(plan)
        self.epochs.assign(plan)
        super().replan(plan)

    def close_tasks(self, kept: Collection[EpochSpoutTask] = ()) -> None:
        """Close all tasks but some, for others that take their places. What they did since the last commit is void."""
        gone = [task for task in self.tasks.values() if task not in kept]
        for task in gone:
            if isinstance(task, EpochBoltTask):
                task.stopped = True  # a call that waits for the outside can end now
        self.ack_router.finish()
        self.outside.forget()
        # All at the same time: this takes as long as the longest call, not as all of them.
        self.threads.begin_to_finish(task for task in gone if task.threaded and not self.inline)
        for task in gone:
            self.remove(task)
            if isinstance(task, EpochBoltTask):
                self.epochs.collect_answers(task)  # of its last calls: what was staged must not be forgotten
                self.take_reports(task.reports)
            assert isinstance(task, EpochBoltTask | EpochSpoutTask)
            task.forget_contents()
        self.epochs.forget_objects()
        self.links.forget_pairs()
        for spout in kept:
            spout.begin_again()
            self.epochs.join(spout, self.epochs.participants[spout.id])
        self.environment.lives += 1
        if self.threads.left_behind:
            hanging = ", ".join(f"{task.spec.id}[{task.id}]" for task in self.threads.left_behind)
            self.end(
                SquallError(
                    f"a call of {hanging} does not return, so its tasks cannot return to the last commit"
                )
            )
            self.unopened = True  # the process is started again

    def lasting_spouts(self) -> list[EpochSpoutTask]:
        """Return the spouts that go on in a rewind: those that cannot rewind. A new object might emit the same again.

        One that runs in its own thread may be in a call that began before the rewind, so a new object takes its place.
        """
        spouts = [spout for spout in self.spouts if isinstance(spout, EpochSpoutTask) and spout.opened]
        return [spout for spout in spouts if not spout.rewindable and (self.inline or not spout.threaded)]

    def renew(self, message: RestoreTask) -> None:
        """Make new objects for all other tasks, for a rewind."""
        self.epochs.void(message.epoch)
        self.close_tasks(self.lasting_spouts())
        self.open_tasks([row for row in self.plan.own_tasks if row[0] not in self.tasks])

    def divide_as(self, plan: WorkerPlan, fresh: bool) -> None:
        """Make all tasks again, and the ways of their tuples, with the number of key groups of the last commit: the
        configuration names none, and what was committed has become known. No task has run yet, in any worker: the coordinator
        lets them run when all have begun with the commit. `fresh`: whether no task here has begun with one."""
        if not fresh:
            self.end(
                SquallError(f"the last commit has {plan.groups:,} key groups, and an earlier one had others")
            )
            return
        self.plan = self.environment.plan = self.completion.plan = self.epochs.plan = plan
        self.close_tasks()
        self.epochs.participants.clear()  # what `open` has emitted comes again
        self.open_tasks(plan.own_tasks)

    def stop(self) -> None:
        self.calls.stop()
        super().stop()
        self.outside.stop()

    @property
    def finished_spouts(self) -> set[int]:
        return set()  # a commit says what has finished, and a rewind may undo it

    @property
    def ended(self) -> bool:
        return self.epochs.over and self.opened  # the log ends when all tasks have ended

    @property
    def drained(self) -> bool:
        return super().drained and (self.epochs.halted or self.epochs.rewind == 0)

    def set_active(self, active: bool) -> None:
        self.active = active
        if self.lead is not None and self.lead.coordinator.change_wanted:
            self.lead.call_off()
        super().set_active(active)
        for spout in self.spouts:
            if not spout.opened:
                spout.active = active

    def end(self, error: SquallError) -> None:
        """End this worker: it cannot go on."""
        row = min(self.plan.tasks)
        report = make_report(self.plan.topology.name, row[1], row[0], STATE, error, None, self.now())
        self.take_reports([report])
        self.crash = self.crash or report

    # The loop.

    def step(self) -> bool:
        if not self.started or self.stopped or self.crash:
            return False
        now = self.now()
        busy = self.process_arrived(now)
        self.calls.step(now)
        busy |= self.take_answers()
        if self.mail.leads and self.table.opened:
            if self.lead is None:
                self.begin_to_lead()
            assert self.lead is not None
            self.lead.coordinator.on_trial = self.on_trial
            self.lead.step(now)
        if now >= self.telling.next_look:
            self.telling.log_waits(now)
        busy |= self.take_messages()
        busy |= self.outside.follow()
        busy |= self.mail.run_due(now)
        if self.epochs.running:
            busy |= self.epochs.step(now)
            if now >= self.uncommitted.measured_next:
                self.uncommitted.measure(now)
            if self.again.found or self.again.waiting:
                busy |= self.again.step()
            if self.draining and self.lead is not None and super().drained:
                self.lead.stop_for_change()
            busy |= super().step()
            self.report(now, busy)
        else:
            busy |= self.threads.visit(now) | self.collect_threads()
        self.send_controls()
        return busy or bool(self.mail.jobs or self.calls.answers)

    def report(self, now: float, busy: bool) -> None:
        """Let the coordinator know what the tasks here do."""
        if not self.epochs.running:
            return
        all_ended = not busy and super().ended
        if self.lead is None:
            self.epochs.activity.report(now, idle=not busy)
            if all_ended:
                self.epochs.activity.report_end()
        elif all_ended:
            self.lead.tasks_ended(len(set(self.mail.hosts.values())) - 1)

    def take_answers(self) -> bool:
        """Follow the answers of the store; return whether there were any."""
        busy = False
        while self.calls.answers and not self.crash:
            busy = True
            done, result, error = self.calls.answers.popleft()
            try:
                if error is not None:
                    raise error
                done(result)
            except (BadLog, SquallError, ValueError) as error:
                self.end(error if isinstance(error, SquallError) else SquallError(str(error)))
        return busy

    def take_messages(self) -> bool:
        """Deliver the messages of the coordinator, as far as the tasks are there; return whether any was."""
        busy = False
        messages = self.mail.messages
        while messages and self.table.opened and not self.crash:
            name, message = messages[0].task, messages[0].message
            if isinstance(message, RestoreTask):
                if message.assignment > max(self.plan.version, self.plan.incarnation.version):
                    break  # it is of an assignment that this worker does not follow yet
                if message.rewind > self.epochs.rewind:
                    self.epochs.begin_rewind(message)
                    self.uncommitted.restart()
                    fresh, self.fresh = self.fresh, False
                    plan = structs.replace(self.plan, groups=message.groups)
                    if plan.key_groups != self.plan.key_groups:
                        self.divide_as(plan, fresh)
                        continue
                    if not fresh:
                        self.renew(message)
                        continue
            busy = True
            messages.popleft()
            self.epochs.message(name, message)
        return busy

    def process_arrived(self, now: float) -> bool:
        if not self.arrived:
            return False
        while self.arrived:
            frame = self.arrived.popleft()
            if isinstance(frame, Control):
                self.process_control(frame, now)
            elif isinstance(frame, EpochFrame):
                self.epochs.admit(frame)
        self.wake_bolts()
        return True

    def process_control(self, control: Control, now: float) -> None:
        try:
            for packed in control.epochs:
                self.mail.receive(packed)
        except BadEnvelope as error:
            text = f"worker {control.sender} sends messages that this one cannot read ({error}): run one release on all hosts"
            self.end(SquallError(text))
        if control.rewind != self.epochs.rewind:
            control.grants, control.cycles = {}, []
        if any(lost.call for lost in control.unsent):
            control.failures = []  # `take_unsent` settles their trees
        super().process_control(control, now)

    def take_unsent(self, lost: Unsent, now: float) -> None:
        if lost.call:
            if lost.cycle >= 0:
                self.cycles.unsent(lost.cycle, self.links.worker_of[lost.target], 1)
            self.epochs.unsent(lost)
            return
        super().take_unsent(lost, now)
        where = f"{lost.component}[{lost.task}]"
        self.end(
            StateError(
                f"{where}: a tuple that has come from another worker cannot be read, and state would miss it: {lost.error}. "
                "With topology.state.path all values must be such that pickle can carry them"
            )
        )

    def send_controls(self) -> None:
        for worker in [*self.links.grants, *(worker for worker, _ in self.cycles.outgoing)]:
            self.ack_router.control(worker)
        for control in self.ack_router.controls.values():
            control.rewind = self.epochs.rewind
        super().send_controls()

    def collect_threads(self) -> bool:
        """Collect the runs of threaded tasks that have ended, while nothing else runs."""
        busy = False
        for task_id in self.threads.runner.collect():
            busy = True
            self.ran(self.tasks[task_id], self.now())
        return busy

    def ran(self, task: Task, now: float) -> None:
        if task.jobs == 1:
            assert isinstance(task, EpochBoltTask | EpochSpoutTask)
            self.epochs.collect(task)
        super().ran(task, now)

    def next_time(self) -> float | None:
        if not self.started or self.stopped or self.crash:
            return None
        times = [super().next_time(), self.uncommitted.next_time()] if self.epochs.running else []
        times += [self.mail.next_time(), self.calls.next_time()]
        if self.lead is not None:
            times.append(self.lead.next_time())
        return min((time for time in times if time is not None), default=None)

    # What `Epochs` and `EpochLead` need of their worker.

    def keep_letters(self, task: Task, letters: list[ParkedLetter], lineage: str, again: bool) -> bool:
        """See `EpochHost`."""
        keeper = self.environment.letters(task.id)
        now = keeper.time_of(self.now())
        given_up = [letter_of(task, letter, lineage, now) for letter in letters]
        if again:
            known = keeper.known([each.letter.id for each in given_up])
            given_up = [each for each in given_up if each.letter.id not in known]
        return keeper.keep(given_up) == len(given_up)

    # What `EpochPeers` needs of its worker.

    def peer_gone(self, name: str) -> None:
        """See `PeerHost`."""
        if self.lead is not None:
            self.mail.later(partial(self.lead.peer_gone, name))

    def peer_there(self, name: str) -> None:
        """See `PeerHost`."""
        if self.lead is not None:
            self.lead.greet([task for task, worker in self.mail.hosts.items() if worker == name])

    def frames_gone(self, rewind: int) -> None:
        """See `PeerHost`."""
        for task, participant in self.epochs.participants.items():
            if task in self.epochs.tasks:
                self.epochs.perform(self.epochs.tasks[task], participant.frame_lost(rewind))
                break


def cycle_idle(worker: EpochWorker, index: int) -> bool:
    """Return whether a worker's part of a cycle is idle: nothing waits there, also not for its next try."""
    return worker.completion.cycle_idle(index) and not any(
        isinstance(bolt, EpochBoltTask) and bolt.owes_calls()
        for bolt in worker.bolts
        if worker.plan.cycle_of.get(bolt.spec.id) == index
    )


def message_id_at(worker: EpochWorker, root: int) -> Any:
    """Return the message id of a tree whose spout task is in this worker and has it open; None: it is not known here. Any
    thread may call this."""
    spout = worker.tasks.get(task_of(root))
    return spout.tracker.message_id(root) if isinstance(spout, EpochSpoutTask) else None


def letter_of(task: Task, letter: ParkedLetter, lineage: str, now: float) -> GivenUp:
    """Return the dead letter of a tuple or timer that was given up in a bolt task."""
    source, _, stream, packed = letter.item[:4]
    mark, fields = mark_of(letter.item), fields_of(letter.item)
    row, doubtful = loads(packed)
    why = mark.unkept or (why_unreadable(row) if doubtful else "")
    if source == TIMER:
        fields = list(TIMER_FIELDS)
    elif not fields:
        assert isinstance(task, EpochBoltTask)
        fields = list(task.fields_of[source, stream])
    values, as_text = shown_values(row)
    as_text = tuple(sorted({*as_text, *mark.texts}))
    context = task.context
    failure = Failure(mark.reason or "failed", task.spec.id, task.id, letter.failure, letter.attempts)
    return GivenUp(
        DeadLetter(
            id=hashlib.sha256(f"{lineage}/{letter.id}".encode()).hexdigest()[:ID_DIGITS],
            topology=context.topology,
            topology_id=context.topology_id,
            component=context.component,
            task=context.task,
            stream=stream,
            message_id=mark.message_id,
            fields=tuple(fields),
            values=values,
            as_text=as_text,
            failure=failure,
            attempts=mark.attempts + letter.attempts,
            emitted_at=mark.emitted_at or now,
            given_up_at=now,
            resent=mark.resent,
            source=source,
            why_no_values=why,
        ),
        row,
    )
