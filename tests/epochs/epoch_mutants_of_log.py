"""Guards of the log, the coordinator and the files, removed: each function makes a method without it.

Must not know: which mutants there are, how they are found.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as with_fields

from tests.epochs.epoch_stores import Outside
from worker.epochs.coordinator import Coordinator, EpochPhase
from worker.epochs.log import LogView, LogWriter, PutAnswer
from worker.epochs.messages import BeginEpochEnd, EpochWanted, RestoreTask
from worker.epochs.records import CommitRecord, FloorRecord, LeadRecord, LogRecord, encode_record
from worker.epochs.snapshot_files import SweepFiles
from worker.epochs.trimming import LOG, LogSteps, PutNumbered, ReadRun, RemoveNumbers

# The log.


def no_read_back(old: Any) -> Any:
    """A lost answer counts as "stored"."""
    return lambda self, answer: self.stands() if answer is PutAnswer.UNKNOWN else old(self, answer)


def lost_is_failed(old: Any) -> Any:
    """A lost answer counts as "not stored": the record is given up, and a rewind follows."""

    def method(self: Coordinator, answer: PutAnswer, now: float) -> Any:
        if answer is PutAnswer.UNKNOWN and isinstance(self.writer.pending, CommitRecord):
            self.writer.pending = None
            self.writer.view.last += 1
            self.view.rewind = self.view.last
            self.phase = EpochPhase.CLAIMING
            return self.restore()
        return old(self, answer, now)

    return method


def leads_on(old: Any) -> Any:
    """Another's lead is read, and changes nothing."""

    def method(self: LogView, record: Any) -> None:
        leader = self.leader
        old(self, record)
        if leader and isinstance(record, LeadRecord):
            self.leader = leader

    return method


def put_over(old: Any) -> Any:
    """A record is put although there is one: the number after it is never looked at."""

    def method(self: Outside, folder: str, number: int, data: bytes) -> Any:
        self.numbered[folder].pop(number, None)
        self.used.discard(number)
        return old(self, folder, number, data)

    return method


def token_not_compared_in_log(old: Any) -> Any:
    """Any record at the number counts as one's own."""

    def method(self: LogWriter, records: Any) -> Any:
        return self.stands() if records and self.pending is not None else old(self, records)

    return method


def not_outdated(old: Any) -> Any:
    """A coordinator of an older assignment takes the lead."""
    return lambda self: False


# Trimming.


def floors_not_looked_at(old: Any) -> Any:
    """A number whose record was removed looks free to a writer."""

    def steps(number: int, record: LogRecord) -> LogSteps[PutAnswer]:
        stored = yield PutNumbered(LOG, number, encode_record(record))
        return PutAnswer.STORED if stored else PutAnswer.TAKEN

    return steps


def floors_unknown(old: Any) -> Any:
    """A reader goes on behind the last record that it knows, and finds nothing."""

    def steps(after: int) -> LogSteps[list[LogRecord]]:
        found: list[LogRecord] = yield ReadRun(after, many=True)
        return found

    return steps


def not_outrun(old: Any) -> Any:
    """A reader does not look at the floors again after it has read."""
    return lambda begin, floors: False


def removed_first(old: Any) -> Any:
    """Records are removed before their floor stands."""

    def steps(floor: FloorRecord) -> LogSteps[None]:
        yield RemoveNumbers(LOG, tuple(range(2, floor.number + 1)))
        yield from old(floor)

    return steps


def removes_too_much(old: Any) -> Any:
    """The record after the floor is removed, too."""

    def steps(floor: FloorRecord) -> LogSteps[None]:
        yield from old(floor)
        yield RemoveNumbers(LOG, (floor.number + 1,))

    return steps


def not_in_floor(**fields: Any) -> Any:
    """A floor lacks something that its records have said."""
    return lambda old: lambda self: with_fields(old(self), **fields)


def did_not_lead(old: Any) -> Any:
    """Who led for a moment, and does not know it, takes the lead again."""
    return lambda self: False


# The coordinator.


def restore_early(old: Any) -> Any:
    """Tasks have to return before the record stands: they abort without the log."""

    def method(self: Coordinator, now: float) -> Any:
        was = self.phase
        effects = old(self, now)
        if was in (EpochPhase.COMMITTING,):
            early = RestoreTask(self.view.last + 1, self.view.epoch, dict(files_of(self)), self.version)
            effects = [*effects, *self.to_all(early)]
        return effects

    return method


def files_of(coordinator: Coordinator) -> dict[str, Any]:
    """The files of the last commit."""
    newest = coordinator.view.newest
    return {} if newest is None else newest.files


def commit_half(old: Any) -> Any:
    """The commit does not wait for the last snapshot, and counts that task's old one."""

    def method(self: Coordinator) -> bool:
        if len(self.waiting) == 1 and (task := next(iter(self.waiting))) in files_of(self):
            self.files[task] = files_of(self)[task]
            return True
        return bool(old(self))

    return method


def resume_half(old: Any) -> Any:
    """Tasks run before all have returned."""
    return lambda self: len(self.waiting) <= 1


def any_rewind(old: Any) -> Any:
    """The coordinator follows messages of other rewind numbers."""

    def method(self: Coordinator, task: str, message: Any, now: float) -> Any:
        return old(self, task, with_fields(message, rewind=self.view.rewind), now)

    return method


def ends_when_asked(old: Any) -> Any:
    """An epoch that is asked for ends at once, also while another one ends."""

    def method(self: Coordinator, task: str, message: Any, now: float) -> Any:
        if isinstance(message, EpochWanted) and self.phase in (EpochPhase.ALIGNING, EpochPhase.COMMITTING):
            return self.begin_end(now)
        return old(self, task, message, now)

    return method


def completed_early(old: Any) -> Any:
    """The topology is completed before what its last commit holds is visible."""

    def method(self: Coordinator, now: float) -> Any:
        self.applying = set()
        return old(self, now)

    return method


def completed_uncommitted(old: Any) -> Any:
    """The topology is completed once every task says so, before the commit."""

    def method(self: Coordinator, task: str, message: Any) -> Any:
        effects = old(self, task, message)
        if effects and self.finished >= set(self.tasks):
            self.writer.pending = None
            self.phase = EpochPhase.OPEN
            return self.end("completed", 0.0)
        return effects

    return method


def next_before_commit(old: Any) -> Any:
    """Barriers of the next epoch are sent before the commit stands."""

    def method(self: Coordinator, task: str, message: Any) -> Any:
        effects = old(self, task, message)
        if effects:
            effects += self.to_all(BeginEpochEnd(self.view.rewind, self.view.next_epoch + 1))
        return effects

    return method


def number_again(old: Any) -> Any:
    """A rewind does not pass over the number of the epoch that was begun."""

    def method(self: LogView, assignment: int) -> None:
        before = self.next_epoch
        old(self, assignment)
        self.next_epoch = max(before, 1)

    return method


# Files.


def sweep_more(old: Any) -> Any:
    """Files of the open epoch, and of rewind numbers that are newer, are swept."""
    return lambda self, name: name not in self.kept


def keep_no_chains(old: Any) -> Any:
    """Kept are the files that commits name, not those on which these build."""
    return lambda self: with_fields(old(self), since={})


def keep_less(old: Any) -> Any:
    """Files of the newest commit are not kept."""

    def method(self: Coordinator) -> SweepFiles:
        found: SweepFiles = old(self)
        newest = {file.name for file in files_of(self).values()}
        return with_fields(found, kept=found.kept - newest, since={})

    return method


def never_on_trial(old: Any) -> Any:
    def commit(self: Coordinator) -> Any:
        self.on_trial = False
        return old(self)

    return commit
