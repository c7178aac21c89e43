"""The coordinator of a topology's epochs in its worker, that of the first spout task: its messages and its calls of the store.

The core decides (`worker.epochs.coordinator`); this module does what its effects say, in their order.
Must not know: tasks, how messages travel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from squall.packages.state_paths import StateStart
from topology_api import SquallError, Topology
from topology_api.epoch_rules import DEFAULT_GROUPS
from worker.epochs.coordinator import (
    Coordinator,
    CoordinatorEffect,
    EpochPhase,
    EpochsEnded,
    SendToTask,
    TrimLog,
)
from worker.epochs.log import LeadLost, PutAnswer, PutRecord, ReadLog
from worker.epochs.messages import (
    EpochsOver,
    EpochWanted,
    HoldSpouts,
    HoldWanted,
    RestoreTask,
    ResumeTask,
    TaskActive,
    ToCoordinator,
)
from worker.epochs.records import LogRecord
from worker.epochs.snapshot_files import SweepFiles
from worker.epochs.spout_hold import SpoutHold
from worker.epochs.starting import FetchStart, NoSuchEpoch
from worker.loop.epoch_mail import EpochMail
from worker.loop.epoch_store import EpochFiles
from worker.loop.rescale import misfits
from worker.loop.state_start import fetch_start
from worker.loop.store_calls import StoreCalls

_log = logging.getLogger(__name__)


class EpochLead:
    """One life of a coordinator."""

    def __init__(
        self,
        mail: EpochMail,
        coordinator: Coordinator,
        files: EpochFiles,
        calls: StoreCalls,
        now: Callable[[], float],
        activity: Callable[[], int],
        end: Callable[[SquallError], None],
        topology: Topology,
    ) -> None:
        """`activity`: returns a number that grows with everything that the tasks of this worker do. `end`: ends the worker,
        which cannot go on."""
        self.mail, self.coordinator, self.end = mail, coordinator, end
        self.topology = topology
        self.files, self.calls, self.now = files, calls, now
        self.count_activity = activity
        #: The number when the last epoch began to end.
        self.activity = -1
        #: Whether tasks of other workers have done anything since then.
        self.active_elsewhere = False
        #: Tasks that have reported that all tasks of their worker have ended.
        self.ended_elsewhere: set[str] = set()
        self.begun = self.hurried = False
        #: Whether spouts pause because a task has reached a limit.
        self.hold = SpoutHold()
        #: Whether tasks were told to run.
        self.resumed = False
        #: Whether nothing has happened since the last commit.
        self.quiet = False
        #: Whether the configuration names the number of key groups. If not, it is that of what is committed.
        self.groups_named = True
        #: Turns the wall clock's time into that of `now`; None: the times of files say nothing.
        self.from_wall: Callable[[float], float] | None = None

    def step(self, now: float) -> None:
        """Do what is due."""
        if not self.begun:
            self.begun = True
            self.perform(self.coordinator.start())
        if not self.is_quiet(now):
            self.perform(self.coordinator.tick(now))

    def next_time(self) -> float | None:
        """Return when something is due although nothing happens."""
        return self.coordinator.next_begin if self.coordinator.phase is EpochPhase.OPEN else None

    def is_quiet(self, now: float) -> bool:
        """Return whether no epoch is to be ended yet."""
        coordinator = self.coordinator
        if coordinator.phase is not EpochPhase.OPEN or now < coordinator.next_begin:
            return False
        self.quiet = self.has_nothing(now)
        return self.quiet

    def has_nothing(self, now: float) -> bool:
        """Return whether an epoch is due in which nothing has happened: then none is committed, and the log does not grow."""
        coordinator = self.coordinator
        if coordinator.stopping:
            return False
        activity = self.count_activity()
        if activity != self.activity or self.active_elsewhere or coordinator.view.newest is None:
            self.activity, self.active_elsewhere = activity, False
            return False
        coordinator.next_begin = now + coordinator.interval
        return True

    def tasks_ended(self, other_workers: int) -> None:
        """All tasks of this worker have ended. If all others have, too, their last epoch need not wait for its time. Later ones
        have to: there are some while what is committed cannot be shown outside."""
        if len(self.ended_elsewhere) < other_workers:
            return
        if not self.hurried and self.coordinator.phase is EpochPhase.OPEN:
            self.hurried = True
            self.coordinator.next_begin = 0.0

    # What happens.

    def message(self, task: str, message: ToCoordinator) -> None:
        """Deliver a message of a task."""
        if isinstance(message, HoldWanted):
            self.hold_spouts(task, message)
        if isinstance(message, EpochWanted) and message.rewind == self.coordinator.view.rewind:
            self.active_elsewhere = True  # its report of that may come later
        if not isinstance(message, TaskActive):
            self.perform(self.coordinator.message(task, message, self.now()))
        elif message.rewind == self.coordinator.view.rewind:
            self.active_elsewhere = True
            if message.ended:
                self.ended_elsewhere.add(task)

    def hold_spouts(self, task: str, message: HoldWanted) -> None:
        """A task says whether it has reached a limit: let all spouts pause, or go on."""
        rewind = self.coordinator.view.rewind
        if message.rewind != rewind:
            return
        changed = self.hold.heard(task, message.why, message.what)
        if changed is not None:
            self.perform(self.coordinator.to_all(HoldSpouts(rewind, *changed)))

    def peer_gone(self, name: str) -> None:
        """The process of another worker has ended: what it did since the last commit is void."""
        self.coordinator.facts.rewind_wanted(f"the process of worker {name} has ended")
        self.perform(self.coordinator.rewind(self.now()))

    def greet(self, tasks: list[str]) -> None:
        """A process of another worker is there: repeat what it has to hear, in case that the one before it has got it."""
        coordinator, view = self.coordinator, self.coordinator.view
        if coordinator.phase is EpochPhase.ENDED:
            for task in tasks:
                self.mail.to_task(task, EpochsOver(view.rewind, view.epoch))
        elif coordinator.phase is EpochPhase.RESTORING:
            wanted = coordinator.waiting.intersection(tasks)
            self.perform([each for each in coordinator.restore_messages() if each.task in wanted])

    def stop_for_change(self) -> None:
        """Stop the spouts of all workers with a last epoch."""
        if not self.coordinator.change_wanted:
            self.perform(self.coordinator.plan_change())

    def call_off(self) -> None:
        """The planned change does not take place."""
        self.perform(self.coordinator.call_off(self.now()))

    def perform(self, effects: list[CoordinatorEffect] | list[SendToTask]) -> None:
        """Do what the coordinator says."""
        for effect in effects:
            if isinstance(effect, SendToTask):
                if isinstance(effect.message, RestoreTask):
                    if not self.fits():
                        return
                    self.ended_elsewhere.clear()
                    self.hold = SpoutHold()
                    self.hurried = False
                self.resumed = self.resumed or isinstance(effect.message, ResumeTask)
                self.mail.to_task(effect.task, effect.message)
            elif isinstance(effect, PutRecord):
                job = partial(self.files.put_record, effect.number, effect.record)
                self.calls.call(
                    job,
                    lambda answer: self.perform(self.coordinator.put_answered(answer, self.now())),
                    PutAnswer.UNKNOWN,
                )
            elif isinstance(effect, ReadLog):
                read = partial(self.files.records_after, effect.after)
                self.calls.call(read, self.records_read)
            elif isinstance(effect, SweepFiles):
                self.calls.call(partial(self.files.sweep, effect), lambda _: None)
            elif isinstance(effect, TrimLog):
                self.calls.call(partial(self.files.trim, effect.floor), lambda _: None)
            elif isinstance(effect, FetchStart):
                fetch = partial(
                    fetch_start,
                    self.files,
                    StateStart(effect.path, effect.epoch),
                    self.coordinator.groups if self.groups_named else None,
                )
                self.calls.call(fetch, lambda found: self.perform(self.coordinator.claim(found)))
            elif isinstance(effect, NoSuchEpoch):
                there = ", ".join(map(str, effect.kept)) or "none"
                text = f"--state @{effect.epoch}: {self.files.folder} does not keep this epoch; these are kept: {there}"
                self.end(SquallError(text))
            elif isinstance(effect, LeadLost):
                self.depose()
            elif isinstance(effect, EpochsEnded) and not self.resumed:
                _log.warning(
                    "the topology has nothing to do: its input had been read to its end by epoch %d. To read it again, drop "
                    "the state in %s (`squall state drop`), or set another topology.state.path",
                    self.coordinator.view.epoch,
                    self.files.folder,
                )
            # `ReadyForChange` and `EpochsEnded` are in messages to the tasks, too.

    def records_read(self, found: list[LogRecord] | None) -> None:
        """The log has been read."""
        if self.files.commit_read is not None and self.from_wall is not None:
            self.coordinator.facts.found_commit(self.from_wall(self.files.commit_read))
        self.perform(self.coordinator.records_read(found, self.now()))

    def depose(self) -> None:
        """Another coordinator leads. If it is of this topology, its worker replaces this one in an assignment that is not known
        here yet."""
        mine, _, _ = self.coordinator.leader.partition("/")
        theirs, _, _ = self.coordinator.view.leader.partition("/")
        if mine == theirs:
            _log.warning("another worker coordinates the epochs from now on")
            return
        self.end(
            SquallError(
                f"another topology uses the state in {self.files.folder}: this one ends. Two topologies of one name need a "
                "topology.state.path each"
            )
        )

    def fits(self) -> bool:
        """Return whether the last commit can be that of these tasks; end the worker if it cannot."""
        newest = self.coordinator.view.newest
        if not self.groups_named and newest is not None:
            self.coordinator.groups = newest.groups or DEFAULT_GROUPS
        groups = self.coordinator.groups
        found = misfits(newest, self.coordinator.tasks, self.topology, groups) if newest is not None else []
        if found:
            advice = ""  # what to do about key groups is in the problem itself
            if len(found) > 1 or newest is None or newest.groups in (0, groups):
                advice = (
                    ". Submit the topology as it was, rename a component that is named here, remove the state (kill the "
                    "topology, then `squall state drop`), or set another topology.state.path"
                )
            self.end(
                SquallError(
                    f"the topology cannot go on from the state in {self.files.folder}: {'; '.join(found)}{advice}"
                )
            )
        return not found
