"""The log of epochs promises: one leader at a time, no record but its own after its lead, and nothing decided while an
answer is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

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
from worker.epochs.records import (
    BadLog,
    CommitRecord,
    EndRecord,
    LeadRecord,
    LogRecord,
    RewindRecord,
    SnapshotFile,
    StartPoint,
    decode_record,
    encode_record,
)
from worker.epochs.starting import FetchStart, NoSuchEpoch, start_of


def view_of(records: Sequence[LogRecord], keep: int = 10) -> LogView:
    """What records say together."""
    view = LogView(keep)
    for record in records:
        view.add(record)
    return view


def leading(records: Sequence[LogRecord] = ()) -> LogWriter:
    """A writer that leads, after other records."""
    writer = LogWriter(view_of(records), "me")
    writer.write(LeadRecord("me:lead", "me", 1))
    writer.put_answered(PutAnswer.STORED)
    return writer


OTHERS_LEAD = LeadRecord("other:1", "other", 2)


def test_a_record_whose_answer_was_lost_is_found_by_its_token() -> None:
    writer = leading()
    commit = CommitRecord("me:1", 1, 1, {})
    assert writer.write(commit) == [PutRecord(2, commit)]
    assert writer.put_answered(PutAnswer.UNKNOWN) == [ReadLog(1)]
    assert writer.busy and writer.view.epoch == 0
    assert writer.records_read([commit]) == [RecordStands(commit)]
    assert not writer.busy and writer.view.epoch == 1


def test_a_record_that_is_not_there_yet_is_put_again_at_its_number_and_nothing_else_is() -> None:
    writer = leading()
    commit = CommitRecord("me:1", 1, 1, {})
    writer.write(commit)
    writer.put_answered(PutAnswer.UNKNOWN)
    assert writer.records_read([]) == [PutRecord(2, commit)]
    assert writer.put_answered(PutAnswer.TAKEN) == [ReadLog(1)], (
        "the first put has arrived meanwhile, or another's"
    )
    with pytest.raises(RuntimeError):
        writer.write(RewindRecord("me:2", 1))
    assert writer.records_read([commit]) == [RecordStands(commit)]


def test_a_log_that_cannot_be_read_is_read_again() -> None:
    writer = leading()
    writer.write(RewindRecord("me:1", 1))
    writer.put_answered(PutAnswer.UNKNOWN)
    assert writer.records_read(None) == [ReadLog(1)]
    assert writer.busy


def test_who_finds_another_lead_at_its_number_leads_no_longer() -> None:
    writer = leading()
    writer.write(CommitRecord("me:1", 1, 1, {}))
    writer.put_answered(PutAnswer.TAKEN)
    assert writer.records_read([OTHERS_LEAD]) == [LeadLost()]
    assert not writer.busy and not writer.leads and writer.view.epoch == 0


def test_who_led_for_a_moment_leads_no_longer() -> None:
    writer = LogWriter(LogView(), "me")
    lead = LeadRecord("me:1", "me", 2)
    writer.write(lead)
    writer.put_answered(PutAnswer.UNKNOWN)
    assert writer.records_read([lead, OTHERS_LEAD]) == [LeadLost()]


def test_who_is_to_lead_takes_the_next_number_after_what_the_earlier_leader_wrote() -> None:
    writer = LogWriter(view_of([OTHERS_LEAD]), "me")
    lead = LeadRecord("me:1", "me", 2)
    assert writer.write(lead) == [PutRecord(2, lead)]
    writer.put_answered(PutAnswer.TAKEN)
    effects: list[LogEffect] = writer.records_read([CommitRecord("other:2", 1, 1, {})])
    assert effects == [PutRecord(3, lead)]


def test_a_coordinator_of_an_older_assignment_does_not_take_the_lead() -> None:
    writer = LogWriter(LogView(), "me")
    writer.write(LeadRecord("me:1", "me", 1))
    writer.put_answered(PutAnswer.TAKEN)
    assert writer.records_read([OTHERS_LEAD]) == [LeadLost()]
    assert writer.read() == [ReadLog(1)] and writer.records_read([]) == [LogRead()]


def test_an_epoch_number_is_never_used_twice() -> None:
    view = view_of([LeadRecord("a:1", "a", 1), CommitRecord("a:2", 1, 1, {}), RewindRecord("a:3", 1)])
    assert view.next_epoch == 3, "epoch 2 may have been begun"
    assert (view.rewind, view.epoch) == (3, 1)


def test_the_newest_commits_are_kept() -> None:
    records: list[LogRecord] = [LeadRecord("a:1", "a", 1)]
    records += [CommitRecord(f"a:{n}", n, 1, {}) for n in range(1, 6)]
    assert [commit.epoch for commit in view_of(records, keep=2).commits] == [4, 5]


def test_a_log_can_go_on_in_another_submission() -> None:
    ended = view_of([LeadRecord("a:1", "a", 1), EndRecord("a:2", 0, "killed")])
    assert ended.end is not None
    ended.add(LeadRecord("b:1", "b", 1))
    assert ended.end is None


@pytest.mark.parametrize(
    "records",
    [
        [CommitRecord("a:1", 1, 1, {})],
        [LeadRecord("a:1", "a", 1), CommitRecord("a:2", 2, 1, {})],
        [LeadRecord("a:1", "a", 1), OTHERS_LEAD, CommitRecord("a:2", 1, 1, {})],
        [LeadRecord("a:1", "a", 1), EndRecord("a:2", 0, "killed"), CommitRecord("a:3", 1, 1, {})],
    ],
)
def test_a_log_that_no_coordinator_can_have_written_is_refused(records: list[LogRecord]) -> None:
    with pytest.raises(BadLog):
        view_of(records)


def test_a_damaged_record_is_refused_by_its_number() -> None:
    assert decode_record(7, encode_record(OTHERS_LEAD)) == OTHERS_LEAD
    with pytest.raises(BadLog, match="record 7"):
        decode_record(7, encode_record(OTHERS_LEAD)[:-3])


def test_a_version_that_returns_leads_after_the_one_that_was_rolled_back() -> None:
    """Versions of assignments go on within a cluster; each tenure gets its own base in the log."""
    view = view_of([LeadRecord("a:1", "a", 5, "one"), LeadRecord("b:1", "b", 5 + 6, "two")])
    assert view.base_of("one") + 7 < view.assignment
    assert view.base_of("one+1") + 7 > view.assignment
    view.add(LeadRecord("c:1", "c", view.base_of("one+1") + 7, "one+1"))
    assert (
        view.base_of("two") + 8 < view.assignment
    )  # a worker of the version that was rolled back does not lead again


def committed(epoch: int, rewind: int) -> CommitRecord:
    return CommitRecord(f"{rewind}:{epoch}", epoch, rewind, {"a/0": SnapshotFile(f"file {epoch}", "d")})


def some_commits() -> LogView:
    """Epochs 1 to 5 of one submission."""
    return view_of([LeadRecord("a:1", "a", 1, "one"), *(committed(epoch, 1) for epoch in range(1, 6))])


def test_a_submission_may_begin_with_an_earlier_epoch_and_numbers_go_on() -> None:
    view = some_commits()
    start = start_of(view, "", 3)
    assert isinstance(start, StartPoint)
    assert start_of(view, "", 9) == NoSuchEpoch(9, (1, 2, 3, 4, 5))
    assert start_of(view, "/other", 9) == FetchStart("/other", 9)
    view.add(LeadRecord("b:1", "b", 2, "two", start))
    assert (view.epoch, view.newest) == (3, committed(3, 1))
    view.add(RewindRecord("b:2", 2))
    view.add(LeadRecord("b:3", "b", 3, "two"))  # another worker of the same submission
    assert view.epoch == 3
    view.add(committed(view.next_epoch, view.rewind))
    assert view.epoch > 5 and view.start is None
    assert view.lineage == "a:1"


def test_a_start_that_was_never_committed_is_forgotten_when_another_version_leads() -> None:
    view = some_commits()
    view.add(LeadRecord("b:1", "b", 2, "two", StartPoint(committed(3, 1))))
    view.add(LeadRecord("c:1", "c", 3, "one+1"))
    assert view.epoch == 5
    assert view.has_led("two") and view.has_led("one") and not view.has_led("three")


def test_an_epoch_of_another_log_begins_a_lineage_with_its_first_commit() -> None:
    view = some_commits()
    foreign = CommitRecord("x", 90, 4, {"a/0": SnapshotFile("copy", "d")})
    view.add(LeadRecord("b:1", "b", 2, "two", StartPoint(foreign, foreign=True)))
    assert (view.lineage, view.present_lineage, view.epoch) == ("a:1", "b:1", 90)
    assert view.next_epoch > 90
    assert foreign in view.kept
    view.add(committed(view.next_epoch, view.rewind))
    assert (view.lineage, view.present_lineage) == ("b:1", "b:1")


def test_the_last_commit_of_an_earlier_version_is_kept() -> None:
    view = some_commits()
    view.keep = 2
    view.add(LeadRecord("b:1", "b", 2, "two"))
    for _ in range(4):
        view.add(committed(view.next_epoch, view.rewind))
    assert [each.epoch for each in view.switches] == [5]
    assert len(view.kept) == 3
