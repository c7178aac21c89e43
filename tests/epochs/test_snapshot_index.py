"""A task that needs some key groups reads their parts of a file, and what it reads is checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.epochs.test_snapshot_chain import Folder
from worker.epochs import snapshot_files, snapshot_index
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import (
    BadSnapshot,
    SnapshotData,
    TaskSnapshot,
    encode_snapshot,
    link_to,
    read_chain,
)
from worker.routing.key_groups import GroupRange

GROUPS = 64
RANGES = st.tuples(st.integers(0, GROUPS - 1), st.integers(1, 20)).map(
    lambda pair: GroupRange(pair[0], min(GROUPS, pair[0] + pair[1]), GROUPS)
)
PARTS = st.lists(st.none() | RANGES, max_size=12)
WHOLE = GroupRange(0, GROUPS, GROUPS)


def written(
    folder: Folder, epoch: int, ranges: list[GroupRange | None], size: int = 10, whole: bool = True
) -> SnapshotFile:
    """A file with a part for each of these ranges."""
    folder.chain.begin(whole)
    data = SnapshotData(WHOLE)
    for at, groups in enumerate(ranges):
        data.add(msgspec.msgpack.encode({"at": (epoch, at), "filling": "x" * size}), groups)
    data.finish(TaskSnapshot("count/0", epoch, 1, 0, chain=list(folder.chain.links)))
    file = data.file()
    assert data.file() == file, "a store that fails asks again"
    folder.files[file.name] = bytes(data.data)
    folder.chain.written(link_to(file, len(data.data)), 1)
    return file


def places(snapshot: TaskSnapshot) -> list[tuple[int, int]]:
    return [tuple(part["at"]) for part in snapshot.parts]


@given(
    st.lists(PARTS, min_size=1, max_size=3), RANGES, st.sampled_from([0, 100, 10**6]), st.integers(0, 10**6)
)
@settings(deadline=None)
def test_exactly_the_parts_that_may_have_one_of_the_groups_are_read_in_their_order(
    files: list[list[GroupRange | None]], wanted: GroupRange, at_once: int, block: int
) -> None:
    folder = Folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_files, "_AT_ONCE", at_once)
        patch.setattr(snapshot_index, "BLOCK_BYTES", block % 200)
        for epoch, ranges in enumerate(files, 1):
            newest = written(folder, epoch, ranges, whole=epoch == 1)
        found = read_chain(newest, folder.read, wanted, labelled=True)
        everything = read_chain(newest, folder.read)
    assert places(found) == [
        (epoch, at)
        for epoch, ranges in enumerate(files, 1)
        for at, groups in enumerate(ranges)
        if groups is None or groups.meets(wanted)
    ]
    assert [part["groups"] for part in found.parts] == [files[e - 1][at] for e, at in places(found)]
    assert places(everything) == [(e, at) for e, ranges in enumerate(files, 1) for at in range(len(ranges))]
    assert not any("groups" in part for part in everything.parts)
    assert [link.name for link in found.chain] == list(folder.files)


def test_of_a_large_file_a_third_of_the_groups_costs_a_third_of_the_bytes() -> None:
    folder = Folder()
    ranges: list[GroupRange | None] = [GroupRange(at, at + 1, GROUPS) for at in range(GROUPS)]
    file = written(folder, 1, [*ranges, None, *ranges], 10_000)
    size = len(folder.files[file.name])
    found = read_chain(file, folder.read, GroupRange(0, GROUPS // 3, GROUPS))
    assert len(found.parts) == 2 * (GROUPS // 3) + 1
    read = sum(
        len(folder.files[name][offset:]) if length is None else length
        for name, offset, length in folder.reads
    )
    assert size / 4 < read < size / 2
    assert len(folder.reads) == 3, (
        "the tail, and the first third of each state; the part for all is between them"
    )


@pytest.mark.parametrize("wanted", [None, GroupRange(10, 20, GROUPS)])
def test_a_flipped_byte_anywhere_in_what_is_read_is_found(
    wanted: GroupRange | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_files, "_AT_ONCE", 0)
    monkeypatch.setattr(snapshot_index, "BLOCK_BYTES", 100)
    folder = Folder()
    file = written(folder, 1, [GroupRange(at, at + 5, GROUPS) for at in range(0, 60, 5)])
    data = folder.files[file.name]
    expected = read_chain(file, folder.read, wanted)
    for at in range(len(data)):
        folder.files[file.name] = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        folder.reads.clear()
        try:
            found: Any = read_chain(file, folder.read, wanted)
        except BadSnapshot as error:
            assert file.name in str(error)
            continue
        read = any(offset <= at < offset + (length or len(data)) for _, offset, length in folder.reads)
        assert not read
        assert found == expected


def test_a_copy_keeps_the_groups_of_its_parts() -> None:
    folder = Folder()
    written(folder, 1, [GroupRange(0, 8, GROUPS), None])
    newest = written(folder, 2, [GroupRange(8, 16, GROUPS)], whole=False)
    copy, data = encode_snapshot(read_chain(newest, folder.read, labelled=True), newest.groups)
    assert (copy.groups, copy.since) == (WHOLE, 0)
    folder.files[copy.name] = data
    found = read_chain(copy, folder.read, GroupRange(8, 9, GROUPS), labelled=True)
    assert [(part["at"], part["groups"]) for part in found.parts] == [
        ([1, 1], None),
        ([2, 0], (8, 16, GROUPS)),
    ]
