"""What a coordinator tells of its epochs is what happened: in simulated time, record by record."""

from __future__ import annotations

from tests.epochs.test_epoch_coordinator import TASKS, running, snapshots
from worker.epochs.coordinator import Coordinator, EpochPhase
from worker.epochs.epoch_facts import MOST_DURATIONS, EpochFacts
from worker.epochs.log import LogView, PutAnswer
from worker.epochs.messages import RewindWanted, SnapshotWritten, TaskRestored
from worker.epochs.records import CommitRecord, EndRecord, LeadRecord, LogRecord, RewindRecord, SnapshotFile


def snapshot(of: Coordinator, task: str, size: int, now: float) -> None:
    """A task reports its snapshot."""
    message = SnapshotWritten(
        of.view.rewind, of.view.next_epoch, SnapshotFile(task, "d"), finished=False, bytes=size
    )
    of.message(task, message, now)


def test_a_commit_has_its_time_its_duration_its_bytes_and_its_slowest_task() -> None:
    coordinator = running()
    facts = coordinator.facts
    assert (facts.committed_at, facts.bytes, facts.slowest, [*facts.durations]) == (None, None, None, [])
    coordinator.tick(1.0)
    assert facts.asked_at == 1.0
    snapshot(coordinator, "out/0", 70, 1.25)
    snapshot(coordinator, "in/0", 30, 1.5)
    before = facts.committed_at
    assert before is None, "the record may not stand"
    coordinator.put_answered(PutAnswer.STORED, 2.0)
    facts = coordinator.facts
    assert (facts.committed_at, facts.bytes, facts.asked_at) == (2.0, 100, None)
    assert (facts.slowest, [*facts.durations]) == (("in/0", 0.5), [1.0])


def test_an_epoch_that_a_rewind_makes_void_changes_no_fact_of_the_last_commit() -> None:
    coordinator = running()
    coordinator.tick(1.0)
    snapshots(coordinator)
    coordinator.put_answered(PutAnswer.STORED, 1.0)
    before = coordinator.facts.slowest
    coordinator.tick(2.0)
    snapshot(coordinator, "out/0", 70, 2.5)
    coordinator.message("in/0", RewindWanted(coordinator.view.rewind, "a frame of in/0 is lost"), 3.0)
    coordinator.message("out/0", RewindWanted(coordinator.view.rewind, "what follows from it"), 3.0)
    facts = coordinator.facts
    assert (facts.rewound_at, facts.rewind_reason) == (0.0, ""), "the record does not stand yet"
    coordinator.put_answered(PutAnswer.STORED, 3.5)
    assert (facts.rewound_at, facts.rewind_reason) == (3.5, "a frame of in/0 is lost")
    assert (facts.committed_at, facts.bytes, facts.slowest) == (1.0, 0, before)
    assert (coordinator.phase, facts.asked_at) == (EpochPhase.RESTORING, 3.5)
    for task in TASKS:
        coordinator.message(task, TaskRestored(coordinator.view.rewind), 4.0)
    assert facts.asked_at is None and coordinator.view.rewinds == 1


def test_the_time_of_a_trial_is_no_part_of_the_duration_of_an_epoch() -> None:
    coordinator = running()
    facts = coordinator.facts
    assert facts.began == 0, "nothing was committed before"
    coordinator.on_trial = True
    coordinator.tick(1.0)
    for task in TASKS:
        snapshot(coordinator, task, 10, 2.0)
    assert coordinator.phase is EpochPhase.HELD
    coordinator.tick(50.0)
    coordinator.on_trial = False
    coordinator.tick(100.0)
    coordinator.put_answered(PutAnswer.STORED, 100.25)
    assert (facts.committed_at, [*facts.durations], facts.held_at) == (100.25, [1.25], None)


def test_the_time_of_an_earlier_coordinators_commit_is_taken_from_its_record_and_only_until_the_next() -> (
    None
):
    facts = EpochFacts()
    facts.found_commit(-50.0)
    assert facts.committed_at == -50.0
    facts.end_begun(1.0)
    facts.committed(2.0)
    facts.found_commit(-50.0)
    assert facts.committed_at == 2.0


def test_as_many_durations_are_kept_as_the_longest_is_taken_of() -> None:
    facts = EpochFacts()
    for number in range(MOST_DURATIONS + 1):
        facts.end_begun(10.0 * number)
        facts.committed(10.0 * number + (5.0 if number == 0 else 0.5))
    assert max(facts.durations) == 0.5


def test_rewinds_are_counted_from_the_first_lead_of_a_submission() -> None:
    view = LogView()
    records: list[tuple[LogRecord, int]] = [
        (LeadRecord("1", "a", 1, "s-1"), 0),
        (CommitRecord("2", 1, 1, {}), 0),
        (RewindRecord("3", 1), 1),
        (LeadRecord("4", "b", 2, "s-1"), 2),  # another process, or another assignment
        (EndRecord("5", 1, "killed"), 2),
        (LeadRecord("6", "c", 1, "s-2"), 0),
        (RewindRecord("7", 1), 1),
    ]
    for record, wanted in records:
        view.add(record)
        assert view.rewinds == wanted, record
