"""Log and snapshots of a topology in a store that is away, loses answers, or holds something else."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from squall.stores.files import FilesUnavailable
from worker.epochs.log import PutAnswer
from worker.epochs.records import BadLog, CommitRecord, LeadRecord, RewindRecord
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SweepFiles,
    TaskSnapshot,
    encode_snapshot,
)
from worker.loop.epoch_store import EpochFiles
from worker.loop.store_calls import Attempts, ThreadCalls

LEAD = LeadRecord("a:1", "a", 1)


@pytest.fixture
def files(tmp_path: Path) -> EpochFiles:
    return EpochFiles(f"file://{tmp_path}", "words")


def test_a_record_is_put_once_and_records_are_read_in_order(files: EpochFiles) -> None:
    assert files.records_after(0) == []
    assert files.put_record(1, LEAD) is PutAnswer.STORED
    assert files.put_record(1, RewindRecord("b:1", 1)) is PutAnswer.TAKEN
    assert files.put_record(2, RewindRecord("a:2", 1)) is PutAnswer.STORED
    assert files.records_after(0) == [LEAD, RewindRecord("a:2", 1)]
    assert files.records_after(1) == [RewindRecord("a:2", 1)]


def test_a_gap_ends_what_is_read(files: EpochFiles) -> None:
    files.put_record(1, LEAD)
    files.put_record(3, RewindRecord("a:3", 1))
    assert files.records_after(0) == [LEAD]


def test_a_record_that_cannot_be_read_is_named(files: EpochFiles, tmp_path: Path) -> None:
    files.put_record(1, LEAD)
    [path] = (tmp_path / "words" / "log").iterdir()
    path.write_bytes(b"?")
    with pytest.raises(BadLog, match="record 1 of the log of epochs cannot be read"):
        files.records_after(0)


def test_a_sweep_leaves_what_a_commit_names(files: EpochFiles, tmp_path: Path) -> None:
    snapshots = [encode_snapshot(TaskSnapshot("count/0", epoch, 1, 0)) for epoch in (1, 2, 3)]
    for file, data in snapshots:
        files.write_snapshot(file, data)
    kept, epoch_3 = snapshots[1][0], snapshots[2][0]
    files.sweep(SweepFiles(frozenset({kept.name}), 1, 2))
    assert {path.name for path in (tmp_path / "words" / "snapshots").iterdir()} == {kept.name, epoch_3.name}
    [found] = files.read_snapshots({"count/0": kept})
    assert found.epoch == 2
    (tmp_path / "words" / "snapshots" / kept.name).write_bytes(b"?")
    with pytest.raises(BadSnapshot, match=f"snapshot {kept.name} is damaged"):
        files.read_snapshots({"count/0": kept})


def test_a_call_is_made_until_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.loop.store_calls.FIRST_PAUSE", 0.001)
    answered, tries = threading.Event(), 0
    times: list[tuple[float | None, float]] = []
    clock = iter(range(1_000))
    calls = ThreadCalls("words", answered.set, lambda: float(next(clock)))
    reasons = []

    def job() -> int:
        nonlocal tries
        tries += 1
        times.append((calls.call_since, calls.waits_since))
        reasons.append(calls.waits_for)
        if tries < 4:
            raise FilesUnavailable(f"no route to host, try {tries}")
        return tries

    got: list[object] = []
    calls.call(job, got.append)
    assert answered.wait(60)
    [(done, result, error)] = calls.answers
    assert (result, error, calls.waits_for) == (4, None, "")
    assert times == [(0.0, 0.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)], "it is away since the first error"
    assert calls.call_since is None
    assert reasons[1:] == [f"no route to host, try {number}" for number in (1, 2, 3)]
    done(result)
    assert got == [4]
    calls.stop()


def test_what_the_present_call_does_and_when_the_last_commit_was_written_is_known(
    files: EpochFiles, tmp_path: Path
) -> None:
    files.put_record(1, LEAD)
    assert files.doing == f"writing {tmp_path}/words/log/000000000001"
    files.put_record(2, CommitRecord("a:2", 1, 1, {}))
    files.put_record(3, RewindRecord("a:3", 1))
    os.utime(tmp_path / "words" / "log" / "000000000002", (1_000.0, 1_000.0))
    assert files.commit_read is None
    files.records_after(0)
    assert files.commit_read == 1_000.0


def test_a_put_whose_answer_is_lost_is_not_made_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer decides what comes next; but there is a pause, so that a full disk does not keep a processor busy."""
    monkeypatch.setattr("worker.loop.store_calls.FIRST_PAUSE", 0.001)
    answered = threading.Event()
    calls = ThreadCalls("words", answered.set)
    tries = 0

    def job() -> PutAnswer:
        nonlocal tries
        tries += 1
        raise FilesUnavailable("no space left on device")

    for pause in (0.002, 0.004, 0.008):
        answered.clear()
        calls.call(job, lambda answer: None, PutAnswer.UNKNOWN)
        assert answered.wait(60)
        assert calls.answers.pop()[1:] == (PutAnswer.UNKNOWN, None)
        assert calls.waits_for == "no space left on device"
        assert calls.pause == pytest.approx(pause)
    assert tries == 3
    calls.stop()


def test_files_of_others_among_the_snapshots_are_left_alone(files: EpochFiles, tmp_path: Path) -> None:
    file, data = encode_snapshot(TaskSnapshot("count/0", 1, 1, 0))
    files.write_snapshot(file, data)
    folder = tmp_path / "words" / "snapshots"
    for name in (".nfs0001", "notes", "1-x-0-count.0"):
        (folder / name).write_text("")
    files.sweep(SweepFiles(frozenset(), 2, 2))
    assert {path.name for path in folder.iterdir()} == {".nfs0001", "notes", "1-x-0-count.0"}


def test_a_folder_that_cannot_be_looked_at_now_is_waited_for(
    files: EpochFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(folder: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr("worker.loop.epoch_store.own_folder", stale)
        with pytest.raises(
            FilesUnavailable, match=r"cannot keep the state of the topology in .*: Stale file handle"
        ):
            files.records_after(0)
    assert files.records_after(0) == []


def test_pauses_double_up_to_ten_seconds() -> None:
    attempts = Attempts(lambda: 0.0)
    pauses = [attempts.next_pause() for _ in range(9)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_where_an_epoch_was_committed_no_topology_begins_at_its_first_tuple(
    tmp_path: Path, place: str
) -> None:
    """A file system that is not mounted leaves an empty folder, or none."""
    if place == "empty":
        (tmp_path / "words").mkdir(mode=0o700)
    knowing = EpochFiles(f"file://{tmp_path}", "words", committed=7)
    said = "the state of topology 'words' in .*words is gone, or not mounted on host .*: epoch 7 was committed there"
    for _ in range(2):
        with pytest.raises(FilesUnavailable, match=said):
            knowing.records_after(0)
    assert (tmp_path / "words").exists() == (place == "empty")
    EpochFiles(f"file://{tmp_path}", "words").put_record(1, LEAD)
    assert knowing.records_after(0) == [LEAD] and knowing.records_after(1) == []
