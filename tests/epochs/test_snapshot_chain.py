"""A task's snapshot may be several files: a whole one and changes. Each is needed, and none that is needed is removed."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from worker.epochs.records import CommitRecord, SnapshotFile, decode_record, encode_record
from worker.epochs.snapshot_chain import LONGEST, SnapshotChain
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SnapshotData,
    SnapshotLink,
    TaskSnapshot,
    decode_snapshot,
    link_to,
    read_chain,
    removable,
    sweep_of,
)
from worker.routing.key_groups import GroupRange


class Folder:
    """The files of one task, written as a participant does it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.chain = SnapshotChain()
        self.commits: list[CommitRecord] = []
        #: (file, offset, length) of each call.
        self.reads: list[tuple[str, int, int | None]] = []

    def write(self, epoch: int, whole: bool, *parts: object, shift: float = 0.0) -> SnapshotFile:
        self.chain.begin(whole)
        snapshot = TaskSnapshot("count/0", epoch, 1, 0, shift=shift, submission="s")
        snapshot.chain, snapshot.cells = list(self.chain.links), self.chain.cells
        data = SnapshotData()
        for part in parts:
            data.add(msgspec.msgpack.encode({"name": part}))
            data.cells += 1
        data.finish(snapshot)
        file = data.file()
        self.files[file.name] = bytes(data.data)
        self.chain.written(link_to(file, len(data.data)), data.cells)
        self.commits.append(CommitRecord(f"a:{epoch}", epoch, 1, {"count/0": file}))
        return file

    def read(self, name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        self.reads.append((name, offset, length))
        data = self.files[name]
        return data[offset:] if length is None else data[offset : offset + length]


def test_changes_are_read_behind_what_they_change() -> None:
    folder = Folder()
    folder.write(1, True, "a", "b")
    folder.write(2, False, "c", shift=1.0)
    folder.write(4, False)
    newest = folder.write(5, False, "d", "e", shift=3600.0)
    snapshot = read_chain(newest, folder.read)
    assert (newest.since, snapshot.epoch, snapshot.cells) == (1, 5, 2)
    assert [part["name"] for part in snapshot.parts] == ["a", "b", "c", "d", "e"]
    # By how much the wall clock was moved since each part was written.
    assert [part.get("shift", 0.0) for part in snapshot.parts] == [3601.0, 3601.0, 3600.0, 0.0, 0.0]
    assert [link.name for link in snapshot.chain] == list(folder.files)
    whole = folder.write(6, True, "f")
    assert (whole.since, [part["name"] for part in read_chain(whole, folder.read).parts]) == (0, ["f"])


@pytest.mark.parametrize("at", range(3))
def test_a_damaged_file_of_a_chain_is_named(at: int) -> None:
    folder = Folder()
    files = [folder.write(epoch, epoch == 1, f"part {epoch}") for epoch in (1, 2, 3)]
    damaged = folder.files[files[at].name][:-1]
    folder.files[files[at].name] = damaged
    with pytest.raises(BadSnapshot, match=f"snapshot {files[at].name} is damaged"):
        read_chain(files[-1], folder.read)


def test_a_file_whose_parts_are_cut_is_refused() -> None:
    folder = Folder()
    file = folder.write(1, True, "a", "b")
    data = folder.files[file.name]
    for length in (len(data) - 1, len(data) // 2, 9, 7):
        folder.files[file.name] = data[:length]
        with pytest.raises(BadSnapshot, match=f"snapshot {file.name} is damaged"):
            read_chain(file, folder.read)


def test_a_file_without_an_index_is_read() -> None:
    """As earlier versions have written it; later ones build upon it."""
    folder = Folder()
    pieces = [{"name": "a"}, {"name": "b"}, TaskSnapshot("count/0", 1, 1, 0)]
    data = b"SQEP02\n"
    for piece in map(msgspec.msgpack.encode, pieces):
        data += len(piece).to_bytes(8, "big") + piece
    old = SnapshotFile("1-1-0-count.0", hashlib.sha256(data).hexdigest())
    folder.files[old.name] = data
    folder.chain.written(link_to(old, len(data)), 2)
    newest = folder.write(2, False, "c")
    found = read_chain(newest, folder.read, GroupRange(3, 4, 8), labelled=True)
    assert [part["name"] for part in found.parts] == ["a", "b", "c"], "the keys of any group may be in it"
    for length in (len(data) - 1, len(data) // 2, 9, 7):
        cut = data[:length]
        with pytest.raises(BadSnapshot, match=r"snapshot 1-1-0-count\.0 cannot be read"):
            decode_snapshot(SnapshotFile(old.name, hashlib.sha256(cut).hexdigest()), cut)


def test_what_a_kept_commit_builds_upon_is_not_swept() -> None:
    folder = Folder()
    for epoch in range(1, 9):
        folder.write(epoch, epoch in (1, 4, 8), f"part {epoch}")
    names = dict(enumerate(folder.files, 1))
    other = "2-1-0-count.1"  # of another task
    swept = removable(sweep_of(folder.commits[-3:], 1, 8), [*folder.files, other])
    assert swept == [names[1], names[2], names[3], other]
    for commit in folder.commits[-3:]:
        read_chain(commit.files["count/0"], folder.read)
    newer = msgspec.structs.replace(
        sweep_of(folder.commits[-1:], 9, 8)
    )  # a rewind came, and only the whole one is kept
    assert removable(newer, folder.files) == [names[epoch] for epoch in range(1, 8)]


def test_a_record_says_since_when_a_chain_goes() -> None:
    file = SnapshotFile("9-1-0-count.0", "d", 4)
    record = CommitRecord("a:1", 9, 1, {"count/0": file})
    assert decode_record(1, encode_record(record)) == record
    old = msgspec.msgpack.encode(
        {
            "type": "commit",
            "token": "a:1",
            "epoch": 9,
            "rewind": 1,
            "files": {"x/0": {"name": "n", "digest": "d"}},
        }
    )
    read = decode_record(1, old)
    assert isinstance(read, CommitRecord)
    assert read.files["x/0"].since == 0


def chain_of(cells: int, *sizes: int) -> SnapshotChain:
    chain = SnapshotChain()
    for at, size in enumerate(sizes):
        chain.written(SnapshotLink(f"{at}-1-0-x.0", "d", size), cells)
    return chain


def test_a_snapshot_is_whole_when_changes_do_not_pay() -> None:
    assert SnapshotChain().wants_whole(0)
    assert not chain_of(100, 1000).wants_whole(49)
    assert chain_of(100, 1000).wants_whole(50)  # half of everything has changed
    assert not chain_of(100, 1000, 500, 499).wants_whole(1)
    assert chain_of(100, 1000, 500, 500).wants_whole(1)  # the changes are as large as what they change
    assert not chain_of(100, 1000, *[1] * (LONGEST - 2)).wants_whole(1)
    assert chain_of(100, 1000, *[1] * (LONGEST - 1)).wants_whole(1)


def test_a_chain_goes_on_only_in_the_same_submission() -> None:
    links = [SnapshotLink("1-1-0-x.0", "d", 9)]
    snapshot = TaskSnapshot("x/0", 1, 1, 0, chain=links, cells=100, submission="s")
    chain = SnapshotChain()
    chain.restore(snapshot, "s")
    assert (chain.links, chain.wants_whole(1)) == (links, False)
    for given in (("t", snapshot), ("s", None), ("s", TaskSnapshot("x/0", 1, 1, 0, submission="s"))):
        chain.restore(given[1], given[0])
        assert chain.wants_whole(1)
