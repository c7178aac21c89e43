"""A log that is trimmed promises: no two coordinators ever write a record at one number, though they are killed and frozen at
any step; who reads it knows what all its records have said; and few files are left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.epochs.epoch_mutants import LOG_MUTANTS
from tests.epochs.log_simulation import find_in_log, play
from worker.epochs.log import LeadLost, LogView, LogWriter, PutAnswer, PutRecord
from worker.epochs.records import (
    BadLog,
    CommitRecord,
    EndRecord,
    FloorRecord,
    LeadRecord,
    LogRecord,
    RewindRecord,
    SnapshotFile,
)
from worker.loop.epoch_store import EpochFiles

#: Runs of the simulation, and the seeds among which a mutant must be found.
RUNS, FEW, MANY = 30, 40, 300
#: Guards that few runs miss.
RARE = frozenset({"a reader does not look at the floors again"})


def test_a_number_that_was_trimmed_is_never_used_again() -> None:
    problems = [problem for seed in range(RUNS) if (problem := play(seed)) is not None]
    assert problems == []


@pytest.mark.parametrize("name", sorted(LOG_MUTANTS.keys() - RARE))
def test_a_guard_of_trimming_is_missed(name: str) -> None:
    assert find_in_log(name, FEW) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_guard_of_trimming_is_missed_in_rare_runs(name: str) -> None:
    assert find_in_log(name, MANY) is not None


@pytest.mark.soak
def test_a_number_that_was_trimmed_is_never_used_again_in_many_runs() -> None:
    problems = [problem for seed in range(RUNS, 20 * RUNS) if (problem := play(seed)) is not None]
    assert problems == []


def committed(epoch: int, rewind: int = 1) -> CommitRecord:
    return CommitRecord(f"a:{epoch}", epoch, rewind, {"a/0": SnapshotFile(f"{epoch}-{rewind}-0-a.0", "d")})


def log_of(files: EpochFiles, epochs: int) -> LogView:
    """Write a lead and commits, and what they say together."""
    view = LogView(keep=3)
    records: list[LogRecord] = [LeadRecord("a:0", "a", 1, "one"), *map(committed, range(1, epochs + 1))]
    for number, record in enumerate(records, 1):
        assert files.put_record(number, record) is PutAnswer.STORED
        view.add(record)
    return view


@pytest.fixture
def files(tmp_path: Path) -> EpochFiles:
    return EpochFiles(f"file://{tmp_path}", "words")


def names_in(tmp_path: Path, folder: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / "words" / folder).iterdir())


def test_a_start_reads_the_floor_and_what_follows(files: EpochFiles, tmp_path: Path) -> None:
    view = log_of(files, 9)
    files.trim(view.floor_here())
    files.put_record(11, committed(10))
    assert names_in(tmp_path, "log") == ["000000000001", "000000000011"]
    assert names_in(tmp_path, "floors") == ["000000000010"]
    floor, *records = files.records_after(0)
    assert isinstance(floor, FloorRecord) and records == [committed(10)]
    read = LogView(keep=3)
    for record in (floor, *records):
        read.add(record)
    assert [each.epoch for each in read.commits] == [8, 9, 10]
    assert (read.last, read.next_epoch, read.leader, read.lineage) == (11, 11, "a", "a:0")
    assert files.records_after(10) == [committed(10)], "who is beyond the floor needs none"
    written = (tmp_path / "words" / "log" / "000000000011").stat().st_mtime
    assert files.commit_read == pytest.approx(written)


def test_a_put_at_a_number_that_was_trimmed_finds_it_taken(files: EpochFiles, tmp_path: Path) -> None:
    files.trim(log_of(files, 9).floor_here())
    assert files.put_record(5, RewindRecord("zombie", 1)) is PutAnswer.TAKEN
    assert "000000000005" not in names_in(tmp_path, "log")


def test_the_log_is_trimmed_again_and_floors_go_too(files: EpochFiles, tmp_path: Path) -> None:
    view = log_of(files, 9)
    files.trim(view.floor_here())
    for epoch in range(10, 13):
        files.put_record(epoch + 1, committed(epoch))
        view.add(committed(epoch))
    files.trim(view.floor_here())
    files.trim(view.floor_here())  # a call whose answer was lost
    assert names_in(tmp_path, "log") == ["000000000001"]
    assert names_in(tmp_path, "floors") == ["000000000013"]


def test_a_damaged_floor_is_named(files: EpochFiles, tmp_path: Path) -> None:
    files.trim(log_of(files, 3).floor_here())
    (tmp_path / "words" / "floors" / "000000000004").write_bytes(b"?")
    with pytest.raises(BadLog, match="floor 4 of the log of epochs cannot be read"):
        files.records_after(0)


def test_a_task_that_returns_to_a_trimmed_rewind_is_in_the_right_folder(files: EpochFiles) -> None:
    files.trim(log_of(files, 3).floor_here())
    assert files.restore_point({}, 1) == []


def test_a_floor_remembers_what_ended_and_where_a_submission_began() -> None:
    view = LogView(keep=2)
    for record in (LeadRecord("a:0", "a", 1, "one"), committed(1), EndRecord("a:e", 1, "killed")):
        view.add(record)
    view.add(LeadRecord("b:0", "b", 1, "two"))
    read = LogView(keep=2)
    read.add(view.floor_here())
    assert read.facts[1].end == "killed" and read.facts[1].submission == "one"
    assert read.has_led("one") and read.has_led("two") and read.base_of("one") == 0


def test_a_leader_that_is_passed_by_a_floor_has_lost() -> None:
    writer = LogWriter(LogView(), "me")
    writer.write(LeadRecord("me:0", "me", 1))
    writer.put_answered(PutAnswer.STORED)
    assert writer.write(RewindRecord("me:1", 1)) == [PutRecord(2, RewindRecord("me:1", 1))]
    writer.put_answered(PutAnswer.TAKEN)
    other = LogView()
    for record in (LeadRecord("me:0", "me", 1), LeadRecord("you:0", "you", 2), committed(2, 2)):
        other.add(record)
    assert writer.records_read([other.floor_here()]) == [LeadLost()]


def test_a_claim_that_is_passed_by_a_floor_goes_on() -> None:
    writer = LogWriter(LogView(), "me")
    lead = LeadRecord("me:0", "me", 3)
    writer.write(lead)
    writer.put_answered(PutAnswer.UNKNOWN)
    other = LogView()
    for record in (LeadRecord("you:0", "you", 2), committed(1)):
        other.add(record)
    assert writer.records_read([other.floor_here()]) == [PutRecord(3, lead)]


def test_the_log_is_trimmed_every_100_records_or_twice_as_many_as_commits_are_kept() -> None:
    for keep, most in ((10, 100), (80, 160)):
        view = LogView(keep)
        view.add(LeadRecord("a:0", "a", 1))
        while not view.is_long:
            view.add(committed(view.next_epoch))
        assert view.last == most
