"""Log and snapshots of a topology in a store that is away, loses answers, or holds something else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from squall.stores.files import FilesUnavailable
from squall.stores.local import LocalFiles
from worker.epochs.log import PutAnswer
from worker.epochs.records import BadLog, LeadRecord, RewindRecord
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SweepFiles,
    TaskSnapshot,
    encode_snapshot,
)
from worker.loop.epoch_store import EpochFiles, ThreadCalls

LEAD = LeadRecord("a:1", "a", 1)


@pytest.fixture
def files(tmp_path: Path) -> EpochFiles:
    return EpochFiles(LocalFiles(str(tmp_path)))


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
    [path] = (tmp_path / "log").iterdir()
    path.write_bytes(b"?")
    with pytest.raises(BadLog, match="record 1 of the log of epochs cannot be read"):
        files.records_after(0)


def test_a_sweep_leaves_what_a_commit_names(files: EpochFiles, tmp_path: Path) -> None:
    snapshots = [encode_snapshot(TaskSnapshot("count/0", epoch, 1, 0)) for epoch in (1, 2, 3)]
    for file, data in snapshots:
        files.write_snapshot(file, data)
    kept, epoch_3 = snapshots[1][0], snapshots[2][0]
    files.sweep(SweepFiles(frozenset({kept.name}), 1, 2))
    assert {path.name for path in (tmp_path / "snapshots").iterdir()} == {kept.name, epoch_3.name}
    [found] = files.read_snapshots({"count/0": kept})
    assert found.epoch == 2
    (tmp_path / "snapshots" / kept.name).write_bytes(b"?")
    with pytest.raises(BadSnapshot, match=f"snapshot {kept.name} is damaged"):
        files.read_snapshots({"count/0": kept})


def test_a_call_is_made_until_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.loop.epoch_store.FIRST_PAUSE", 0.001)
    answered, tries = threading.Event(), 0
    calls = ThreadCalls("words", answered.set)
    reasons = []

    def job() -> int:
        nonlocal tries
        tries += 1
        reasons.append(calls.waits_for)
        if tries < 4:
            raise FilesUnavailable(f"no route to host, try {tries}")
        return tries

    got: list[object] = []
    calls.call(job, got.append)
    assert answered.wait(60)
    [(done, result, error)] = calls.answers
    assert (result, error, calls.waits_for) == (4, None, "")
    assert reasons[1:] == [f"no route to host, try {number}" for number in (1, 2, 3)]
    done(result)
    assert got == [4]
    calls.stop()


def test_a_put_whose_answer_is_lost_is_not_made_again_by_itself(tmp_path: Path) -> None:
    class Lost(LocalFiles):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            super().put_if_absent(path, data)
            raise FilesUnavailable("the answer is lost")

    files = EpochFiles(Lost(str(tmp_path)))
    assert files.put_record(1, LEAD) is PutAnswer.UNKNOWN
    assert files.records_after(0) == [LEAD]
