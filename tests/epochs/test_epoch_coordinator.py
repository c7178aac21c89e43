"""The coordinator promises: tasks hear only what stands in the log, and nothing is decided while a record may or may not
stand.
"""

from __future__ import annotations

from typing import Any

import pytest

from worker.epochs.coordinator import (
    Coordinator,
    CoordinatorEffect,
    EpochPhase,
    EpochsEnded,
    IllegalPhase,
    ReadyForChange,
    SendToTask,
)
from worker.epochs.log import LeadLost, PutAnswer, PutRecord, ReadLog
from worker.epochs.messages import (
    BeginEpochEnd,
    CommitApplied,
    EpochCommitted,
    EpochWanted,
    RestoreTask,
    ResumeTask,
    RewindWanted,
    SnapshotWritten,
    TaskRestored,
)
from worker.epochs.records import CommitRecord, EndRecord, LeadRecord, LogRecord, RewindRecord, SnapshotFile
from worker.epochs.snapshot_files import SweepFiles

TASKS = {"in/0": 1, "out/0": 1}


def sent(effects: list[CoordinatorEffect], kind: type) -> list[Any]:
    """The messages of a kind."""
    return [
        each.message for each in effects if isinstance(each, SendToTask) and isinstance(each.message, kind)
    ]


def written(effects: list[CoordinatorEffect]) -> LogRecord:
    """The one record that is put."""
    (put,) = [each for each in effects if isinstance(each, PutRecord)]
    return put.record


def running(records: tuple[LogRecord, ...] = ()) -> Coordinator:
    """A coordinator whose tasks run."""
    found = Coordinator("me", 1, TASKS, interval=1.0)
    assert found.start() == [ReadLog(0)]
    found.records_read(records, 0.0)
    if records:
        found.records_read((), 0.0)
    found.put_answered(PutAnswer.STORED, 0.0)
    for task in TASKS:
        effects = found.message(task, TaskRestored(found.view.rewind), 0.0)
    assert len(sent(effects, ResumeTask)) == 2
    return found


def snapshots(of: Coordinator, finished: bool = False) -> list[CoordinatorEffect]:
    """Every task reports its snapshot."""
    effects: list[CoordinatorEffect] = []
    for task in TASKS:
        message = SnapshotWritten(of.view.rewind, of.view.next_epoch, SnapshotFile(task, "d"), finished)
        effects = of.message(task, message, 1.0)
    return effects


def test_an_epoch_that_a_task_needs_begins_before_its_time_and_never_beside_another() -> None:
    coordinator = running()
    wanted = EpochWanted(coordinator.view.rewind)
    assert coordinator.message("in/0", EpochWanted(wanted.rewind + 1), 0.2) == []
    assert coordinator.tick(0.2) == []  # that was not of this rewind
    assert coordinator.message("in/0", wanted, 0.2) == []
    assert len(sent(coordinator.tick(0.2), BeginEpochEnd)) == 2
    assert coordinator.message("in/0", wanted, 0.3) == []  # the one that ends will do
    record = written(snapshots(coordinator))
    assert coordinator.message("in/0", wanted, 0.4) == []
    effects = coordinator.put_answered(PutAnswer.STORED, 0.5)
    assert isinstance(record, CommitRecord) and len(sent(effects, EpochCommitted)) == 2
    assert sent(effects, BeginEpochEnd) == [] and coordinator.tick(1.4) == []
    assert len(sent(coordinator.tick(1.5), BeginEpochEnd)) == 2


def test_an_epoch_is_committed_when_every_snapshot_is_written_and_tasks_hear_of_it_when_the_record_stands() -> (
    None
):
    coordinator = running()
    assert coordinator.tick(0.5) == []
    assert len(sent(coordinator.tick(1.0), BeginEpochEnd)) == 2
    record = written(snapshots(coordinator))
    assert isinstance(record, CommitRecord) and set(record.files) == set(TASKS)
    assert [type(each) for each in coordinator.put_answered(PutAnswer.UNKNOWN, 1.0)] == [ReadLog]
    assert len(sent(coordinator.records_read((record,), 1.0), EpochCommitted)) == 2


def test_nothing_is_decided_while_a_commit_may_or_may_not_stand() -> None:
    coordinator = running()
    coordinator.tick(1.0)
    record = written(snapshots(coordinator))
    coordinator.put_answered(PutAnswer.UNKNOWN, 1.0)
    assert coordinator.message("in/0", RewindWanted(1, "a frame is lost"), 1.0) == []
    assert coordinator.assign(2, {"in/0": 2, "out/0": 1}, 1.0) == []
    coordinator.kill(deadline=1.5)
    assert coordinator.tick(2.0) == []
    effects = coordinator.records_read((record,), 2.0)
    assert isinstance(written(effects), RewindRecord), (
        "the rewind follows, to the epoch that turned out to count"
    )
    assert sent(effects, RestoreTask) == []
    (message, _) = sent(coordinator.put_answered(PutAnswer.STORED, 2.0), RestoreTask)
    assert (message.rewind, message.epoch) == (3, 1)


def test_messages_of_another_rewind_number_are_refused() -> None:
    coordinator = running()
    coordinator.message("in/0", RewindWanted(1, "a frame is lost"), 0.0)
    coordinator.put_answered(PutAnswer.STORED, 0.0)
    assert coordinator.phase is EpochPhase.RESTORING
    for task in TASKS:
        assert coordinator.message(task, TaskRestored(1), 0.0) == []
    assert coordinator.phase is EpochPhase.RESTORING


def test_who_lost_the_lead_does_nothing_more() -> None:
    coordinator = running()
    coordinator.tick(1.0)
    snapshots(coordinator)
    coordinator.put_answered(PutAnswer.TAKEN, 1.0)
    assert coordinator.records_read((LeadRecord("other:1", "other", 2),), 1.0) == [LeadLost()]
    coordinator.kill(deadline=1.0)
    assert coordinator.tick(9.0) == [] and coordinator.assign(3, TASKS, 9.0) == []


def test_a_coordinator_of_an_older_assignment_does_not_lead() -> None:
    coordinator = Coordinator("me", 1, TASKS, interval=1.0)
    coordinator.start()
    coordinator.records_read((LeadRecord("other:1", "other", 2),), 0.0)
    assert coordinator.phase is EpochPhase.DEPOSED


def test_a_planned_change_begins_with_a_last_epoch_and_the_new_assignment_with_a_rewind_to_it() -> None:
    coordinator = running()
    coordinator.plan_change()
    assert {message.last for message in sent(coordinator.tick(0.1), BeginEpochEnd)} == {True}
    snapshots(coordinator)
    assert ReadyForChange(1) in coordinator.put_answered(PutAnswer.STORED, 0.2)
    assert coordinator.plan_change() == [ReadyForChange(1)], "a Nimbus that was restarted asks again"
    assert coordinator.tick(9.0) == [], "spouts have stopped: there is nothing to commit"
    assert isinstance(written(coordinator.assign(2, {"in/0": 1, "out/0": 2}, 9.0)), RewindRecord)
    messages = sent(coordinator.put_answered(PutAnswer.STORED, 9.0), RestoreTask)
    assert {(message.epoch, message.assignment) for message in messages} == {(1, 2)}


def test_a_planned_change_can_be_called_off() -> None:
    coordinator = running()
    coordinator.plan_change()
    assert coordinator.call_off(0.0) == []
    coordinator.plan_change()
    coordinator.tick(0.1)
    snapshots(coordinator)
    coordinator.put_answered(PutAnswer.STORED, 0.2)
    assert isinstance(written(coordinator.call_off(0.3)), RewindRecord), "the spouts have to go on"


@pytest.mark.parametrize(
    ("finished", "kill", "reason"), [(True, False, "completed"), (False, True, "killed")]
)
def test_the_end_is_written_after_the_last_commit_is_visible(finished: bool, kill: bool, reason: str) -> None:
    coordinator = running()
    if kill:
        coordinator.kill(deadline=60.0)
    coordinator.tick(1.0)
    snapshots(coordinator, finished)
    coordinator.put_answered(PutAnswer.STORED, 1.0)
    assert coordinator.message("in/0", CommitApplied(1, 1), 1.0) == []
    record = written(coordinator.message("out/0", CommitApplied(1, 1), 1.0))
    assert isinstance(record, EndRecord) and (record.epoch, record.reason) == (1, reason)
    assert EpochsEnded(reason) in coordinator.put_answered(PutAnswer.STORED, 1.0)


def test_at_the_deadline_of_a_kill_what_is_not_committed_is_void() -> None:
    coordinator = running()
    coordinator.kill(deadline=5.0)
    coordinator.tick(1.0)
    record = written(coordinator.tick(5.0))
    assert isinstance(record, EndRecord) and record.epoch == 0


def test_a_phase_that_cannot_follow_changes_nothing() -> None:
    coordinator = running()
    with pytest.raises(IllegalPhase, match="HALTED cannot follow OPEN"):
        coordinator.enter(EpochPhase.HALTED)
    assert coordinator.phase is EpochPhase.OPEN


def on_trial(records: tuple[LogRecord, ...] = ()) -> Coordinator:
    """A coordinator of a version on trial, whose snapshots are written."""
    coordinator = running(records)
    coordinator.on_trial = True
    coordinator.tick(1.0)
    assert snapshots(coordinator) == []
    return coordinator


def test_a_version_on_trial_commits_nothing_until_its_trial_has_ended() -> None:
    coordinator = on_trial()
    assert coordinator.phase is EpochPhase.HELD
    assert coordinator.tick(100.0) == []  # nor does another epoch end
    coordinator.on_trial = False
    record = written(coordinator.tick(100.0))
    assert isinstance(record, CommitRecord) and set(record.files) == set(TASKS)
    assert len(sent(coordinator.put_answered(PutAnswer.STORED, 100.0), EpochCommitted)) == 2
    assert coordinator.view.epoch == record.epoch


def test_a_rewind_in_a_trial_goes_to_the_epoch_at_the_switch_and_what_was_held_back_is_void() -> None:
    before = running()
    before.tick(1.0)
    commit = written(snapshots(before))
    assert isinstance(commit, CommitRecord)
    log = (LeadRecord("old:1", "old", 1), commit)
    coordinator = on_trial(log)
    assert isinstance(written(coordinator.message("in/0", RewindWanted(3, "gone"), 2.0)), RewindRecord)
    (message, _) = sent(coordinator.put_answered(PutAnswer.STORED, 2.0), RestoreTask)
    assert message.epoch == commit.epoch
    coordinator.on_trial = False
    assert coordinator.tick(2.0) == []


def test_the_snapshots_of_components_that_are_gone_are_carried_from_commit_to_commit() -> None:
    gone = {"gone/0": SnapshotFile("gone", "d")}
    commit = CommitRecord(
        "old:2", 1, 1, {**gone, "in/0": SnapshotFile("in", "d"), "out/0": SnapshotFile("out", "d")}
    )
    coordinator = running((LeadRecord("old:1", "old", 1), commit))
    for time in (1.0, 2.0):
        coordinator.tick(time)
        record = written(snapshots(coordinator))
        assert isinstance(record, CommitRecord) and record.files.items() >= gone.items()
        effects = coordinator.put_answered(PutAnswer.STORED, time)
        [sweep] = [each for each in effects if isinstance(each, SweepFiles)]
        assert sweep.kept >= {"gone"}
        for task in TASKS:
            coordinator.message(task, CommitApplied(record.rewind, record.epoch), time)
