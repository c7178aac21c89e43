"""Calls of sinks in epochs: what is staged before a commit, shown after it, or aborted; and dead letters.

A call runs beside its task's thread, and the task takes rows meanwhile; in simulated time, and if the sink has no thread, it
runs in the task's turn. Without an answer it is made again after a pause.
Must not know: how calls are run, what sinks do, the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from worker.epochs.after_commit import HANDLE, LETTERS, ROWS
from worker.epochs.parking import ParkedLetter
from worker.epochs.participant import AbortHandle, Participant, TaskEffect
from worker.epochs.sinks import CommitHandle, ReadToken, Show, ShowAnswer, ShowLetters
from worker.loop.epoch_mail import EpochMail
from worker.loop.epoch_tasks import EpochTask
from worker.tasks.bolt import BoltTask
from worker.tasks.epoch_sink import EpochSinkTask
from worker.tasks.gathering import GatheringTask
from worker.tasks.sink_rows import RefusedRow
from worker.tasks.staged_sink import StagedSinkTask
from worker.tasks.task import Task

#: Seconds until a call that was not answered is made again.
SHOW_PAUSE: Final = 1.0


class OutsideHost(Protocol):
    """What the calls need of a worker."""

    def execute(self, task: Task, job: Callable[[], Any]) -> None:
        """Run user code of a task, in its thread."""

    def call_outside(self, task: GatheringTask, job: Callable[[], Any]) -> None:
        """Run user code of a sink that reaches the outside, beside its thread if it has one."""

    def queue(self, task: BoltTask) -> None:
        """Let a bolt task run in the next round, if the task has something to do."""

    def keep_letters(self, task: Task, letters: list[ParkedLetter], lineage: str, again: bool) -> bool:
        """Keep dead letters; return whether all of them are kept. `again`: some may be kept already."""


class EpochOutside:
    """The calls of one worker's sinks."""

    def __init__(
        self,
        host: OutsideHost,
        mail: EpochMail,
        now: Callable[[], float],
        participants: Callable[[], dict[int, Participant]],
        tasks: dict[int, EpochTask],
        perform: Callable[[EpochTask, list[TaskEffect]], None],
    ) -> None:
        self.host, self.mail, self.now = host, mail, now
        self.participants, self.tasks, self.perform = participants, tasks, perform
        #: The lineage of the log, in short.
        self.lineage = ""
        #: The tasks whose last letters this process has kept, all of them, and the rewind number at that time.
        self.kept_letters: dict[int, int] = {}

    # After a commit.

    def show(self, task: EpochTask, rewind: int, show: Show) -> None:
        """Make a call that shows an outcome."""
        shown = partial(self.shown, task, rewind)
        if isinstance(show, ShowLetters):
            self.show_letters(task, rewind, show)
        elif isinstance(show, CommitHandle):
            assert isinstance(task, StagedSinkTask)
            self.host.call_outside(
                task, partial(task.commit_handle, show, self.names_of(task, show)[1], shown)
            )
        else:
            assert isinstance(task, EpochSinkTask)
            topology, lineage = self.names_of(task, show)
            token = f"{topology}/{task.spec.id}/{show.index}/{lineage}"
            if isinstance(show, ReadToken):
                read = partial(self.token_read, task, rewind, show)
                self.host.call_outside(task, partial(task.read_token, token, read))
            else:
                refused = partial(self.rows_refused, task, rewind)
                self.host.call_outside(task, partial(task.write_rows, show, token, shown, refused))

    def names_of(self, task: EpochTask, show: Show) -> tuple[str, str]:
        """Return the topology and the lineage by which the outside knows what is shown."""
        topology, _, lineage = show.origin.rpartition("/")
        return (topology, lineage) if show.origin else (task.context.topology, self.lineage)

    def token_read(self, task: EpochTask, rewind: int, show: ReadToken, number: int | None) -> None:
        """The outside has said the number of a token, or not."""
        participant = self.participants()[task.id]
        follow = partial(participant.token_read, rewind, show, number)
        self.follow_later(task, follow, answered=number is not None)

    def rows_refused(self, task: EpochSinkTask, rewind: int, refused: list[RefusedRow]) -> None:
        """The outside refuses rows for good: they become dead letters, and the others wait for the commit of these."""
        if self.tasks.get(task.id) is task and self.participants()[task.id].is_current(rewind):
            done = partial(self.given_up, task, rewind, [each.position for each in refused])
            self.host.execute(task, partial(task.give_up_rows, refused, done))

    def given_up(self, task: EpochSinkTask, rewind: int, positions: list[int]) -> None:
        """The letters of refused rows are there."""
        effects = self.participants()[task.id].rows_refused(rewind, positions)
        self.mail.later(lambda: self.go_on(task, effects))

    def shown(self, task: EpochTask, rewind: int, answer: ShowAnswer) -> None:
        """The outside has said whether it shows what it should, or not."""
        follow = partial(self.participants()[task.id].shown, rewind, answer)
        self.follow_later(task, follow, answered=answer is not ShowAnswer.UNKNOWN)

    def follow_later(self, task: EpochTask, follow: Callable[[], list[TaskEffect]], answered: bool) -> None:
        """Go on after an answer; without one, after a pause."""
        self.mail.later(lambda: self.go_on(task, follow()), self.due(answered))

    def due(self, answered: bool) -> float:
        """Return when to go on."""
        return self.now() if answered else self.now() + SHOW_PAUSE

    def go_on(self, task: EpochTask, effects: list[TaskEffect]) -> None:
        """Do what follows from a message or an answer, and say to the task how much is left to be shown outside."""
        after_commit = self.participants()[task.id].after_commit
        waiting = [outcome for outcome in after_commit.outcomes if outcome.epoch <= after_commit.committed]
        if isinstance(task, GatheringTask):
            rows = {outcome.epoch for outcome in waiting if outcome.kind in (ROWS, HANDLE)}
            task.left_to_show(after_commit.committed, rows)
            self.host.queue(task)  # it may take input again
        letters = [outcome.value for outcome in waiting if outcome.kind == LETTERS]
        task.epochs.parking.unkept = sum(map(len, letters))
        self.perform(task, effects)

    def show_letters(self, task: EpochTask, rewind: int, show: ShowLetters) -> None:
        """Keep dead letters; try again later if they cannot be kept."""
        letters = msgspec.convert(show.letters, list[ParkedLetter], from_attributes=True)
        # A process before this one may have kept them; and so may this one, before all tasks returned to the commit that made
        # them visible, or when there was room for some of them only.
        again = self.kept_letters.pop(task.id, None) != rewind
        kept = self.host.keep_letters(task, letters, self.names_of(task, show)[1], again)
        if kept:
            self.kept_letters[task.id] = rewind
        self.shown(task, rewind, ShowAnswer.DONE if kept else ShowAnswer.UNKNOWN)

    # Before a commit.

    def stage(self, task: StagedSinkTask, rewind: int, epoch: int) -> None:
        """Let a task stage the rows of the epoch that ends, unless a rewind came meanwhile."""
        if self.tasks.get(task.id) is task and self.participants()[task.id].is_current(rewind):
            done = partial(self.staged, task, rewind, epoch)
            self.host.call_outside(task, partial(task.stage, epoch, self.lineage, done))

    def staged(self, task: StagedSinkTask, rewind: int, epoch: int, staged: bool, handle: Any) -> None:
        """The rows of an epoch are staged, or not."""
        if staged:
            self.perform(task, self.participants()[task.id].prepared(rewind, epoch, handle))
        elif not task.crash_on_error:
            self.mail.later(partial(self.stage, task, rewind, epoch), self.due(answered=False))

    def abort(self, task: int, effect: AbortHandle) -> None:
        """Let the present object of a task remove what was staged for a void epoch."""
        present = self.tasks.get(task)
        if isinstance(present, StagedSinkTask):
            done = partial(self.aborted, task, effect)
            self.host.call_outside(
                present, partial(present.abort_handle, effect.epoch, effect.handle, self.lineage, done)
            )

    def aborted(self, task: int, effect: AbortHandle, aborted: bool) -> None:
        """What was staged is gone, or not."""
        if not aborted:
            self.mail.later(partial(self.abort, task, effect), self.due(answered=False))
