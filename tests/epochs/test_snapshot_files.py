"""Snapshot files promise: one that is damaged, or that another version wrote, is refused by name; one that a commit may still
name is not swept.
"""

from __future__ import annotations

import hashlib

import pytest

from worker.epochs.after_commit import HANDLE, EpochOutcome
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SweepFiles,
    TaskSnapshot,
    decode_snapshot,
    encode_snapshot,
    leftovers,
    removable,
)

SNAPSHOT = TaskSnapshot(
    "count/1", 7, 3, 2, state={"a": 1}, outcomes=[EpochOutcome(6, 1, HANDLE, "h")], finished=True
)


def test_a_snapshot_comes_back_as_it_was_written() -> None:
    file, data = encode_snapshot(SNAPSHOT)
    assert file.name == "7-3-2-count.1"
    assert decode_snapshot(file, data) == SNAPSHOT


def test_a_damaged_snapshot_is_refused_by_name() -> None:
    file, data = encode_snapshot(SNAPSHOT)
    for damaged in (data[:-1], b"", data[:20] + b"\x00" + data[21:]):
        with pytest.raises(BadSnapshot, match=r"7-3-2-count\.1"):
            decode_snapshot(file, damaged)


def test_a_snapshot_of_another_version_is_refused_by_name() -> None:
    data = b"SQEP99\nsomething else"
    file = SnapshotFile("7-3-2-count.1", hashlib.sha256(data).hexdigest())
    with pytest.raises(BadSnapshot, match=r"7-3-2-count\.1 begins with b'SQEP99.n'.*another version"):
        decode_snapshot(file, data)


def test_only_what_no_commit_can_name_is_swept() -> None:
    sweep = SweepFiles(frozenset({"5-2-1-a.0"}), rewind=4, epoch=8)
    names = [
        "5-2-1-a.0",  # kept
        "7-2-1-a.0",  # of an older rewind number
        "8-4-1-a.0",  # of this one, and its epoch is over
        "9-4-1-a.0",  # being written
        "9-6-1-a.0",  # of a leader that this one does not know yet
    ]
    assert removable(sweep, names) == ["7-2-1-a.0", "8-4-1-a.0"]


def test_unfinished_files_are_removed_once_no_attempt_can_need_them() -> None:
    sweep = SweepFiles(frozenset({"7-4-1-a.0"}), 4, 7)
    gone = ["7-4-1-a.0.0f0f", "9-3-1-a.0.0f0f", "000000000004.0f0f"]
    kept = ["8-4-1-a.0.0f0f", "1-5-1-a.0.0f0f", "000000000005.0f0f", "notes", "notes.0f0f", "7-4"]
    assert leftovers(sweep, [*gone, *kept]) == gone
