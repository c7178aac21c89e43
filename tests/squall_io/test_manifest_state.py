"""The content of a table, also when a part of its manifest is unreadable: that part is named, and all else is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from squall.stores.files import AbsentFile, FilesRefused
from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.entries import BatchEntry, decode_entry, encode_entry
from squall_io.spark.manifest.envelopes import FORMAT, seal
from squall_io.spark.manifest.layout import COMMITS, BatchName, WriterId, claim_path, fence_path
from squall_io.spark.manifest.state import TableState, UnreadableManifest, read_state, require_readable
from squall_io.spark.manifest.sweep import sweep
from tests.squall_io.commit_world import World, writer_id
from tests.squall_io.memory_files import MemoryFiles, Step

T = TypeVar("T")


def table(batches: int, world: World | None = None) -> World:
    """A table with batches 1, 2, ... of epoch 1."""
    world = world or World()
    files = world.files()
    epoch = take_over(files, writer_id(), (1, 0), "host:1", 0.0)
    for number in range(1, batches + 1):
        world.commit(files, 0, epoch, number)
    return world


def numbers(state: TableState) -> list[int]:
    """The numbers of the batches that count."""
    return [entry.batch.number for entry in state.entries]


def named(state: TableState) -> list[str]:
    """The unreadable records."""
    return [problem.path for problem in state.unreadable]


def newer(data: bytes) -> bytes:
    """The same record, of a newer format."""
    return json.dumps({**json.loads(data), "format": FORMAT + 1}).encode()


def test_committed_batches_are_there_the_oldest_first() -> None:
    world = table(3)
    state = read_state(world.files())
    assert numbers(state) == [1, 2, 3]
    assert state.entries == tuple(world.acked.values()) == state.uncovered
    assert require_readable(world.files(), state) is state


def test_a_table_without_batches_is_empty() -> None:
    state = read_state(MemoryFiles())
    assert (state.entries, state.abandoned, state.unreadable, state.checkpoint.number) == ((), (), (), 0)


@pytest.mark.parametrize("damage", [lambda data: data[:40], newer], ids=["truncated", "newer"])
def test_an_unreadable_entry_is_named_and_the_others_are_there(
    damage: Callable[[bytes], bytes],
) -> None:
    world = table(3)
    files, path = world.files(), BatchName(writer_id(), 1, 2).commit
    files.replace(path, damage(files.read(path)))
    state = read_state(files)
    assert (numbers(state), named(state)) == ([1, 3], [path])
    with pytest.raises(UnreadableManifest, match=rf"has 1 record that cannot be read:\n  - {path} "):
        require_readable(files, state)
    assert len(state.uncovered) == 2  # and no checkpoint includes it


def test_an_unreadable_fence_is_named_and_other_epochs_are_there() -> None:
    world = table(2)
    files = world.files()
    epoch = take_over(files, writer_id(), (2, 0), "host:2", 0.0)
    world.commit(files, 0, epoch, 1)
    files.replace(fence_path(writer_id(), 2), b"")
    state = read_state(files)
    assert [(entry.batch.epoch, entry.batch.number) for entry in state.entries] == [(2, 1)]
    assert named(state) == [fence_path(writer_id(), 2)]
    assert state.abandoned == ()  # unknown
    files.delete(fence_path(writer_id(), 2))  # then it is made again from the existing entries
    assert len(read_state(files).entries) == 3


def test_nothing_is_swept_while_a_record_is_unreadable() -> None:
    world = table(2)
    files = world.files()
    world.spark(files, BatchName(writer_id(), 1, 3), 1, "good")
    path = BatchName(writer_id(), 1, 2).commit
    whole = files.read(path)
    files.replace(path, whole[:-30])
    epoch = take_over(files, writer_id(), (2, 0), "host:2", 0.0)
    before = dict(world.store.files)
    assert sweep(files, writer_id(), epoch) == 0
    assert world.store.files == before
    files.replace(path, whole)
    sweep(files, writer_id(), epoch)
    assert not files.exists(BatchName(writer_id(), 1, 3).staging)
    assert numbers(world.checked_look()) == [1, 2]


def with_checkpoints(monkeypatch: pytest.MonkeyPatch, batches: int = 6, each: int = 3) -> World:
    """A table whose batches are all in checkpoints, in parts of two."""
    monkeypatch.setattr(checkpoints, "PART", 2)
    world = World()
    files = world.files()
    epoch = take_over(files, writer_id(), (1, 0), "host:1", 0.0)
    for number in range(1, batches + 1):
        world.commit(files, 0, epoch, number)
        if number % each == 0:
            state = read_state(files)
            assert write_next(files, state.checkpoint, state.uncovered)
    assert read_state(files).uncovered == ()
    return world


def test_a_damaged_part_of_a_checkpoint_is_named_and_the_other_parts_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_checkpoints(monkeypatch)
    files = world.files()
    part = read_state(files).checkpoint.parts[0].path
    files.replace(part, files.read(part)[:-4])
    state = read_state(files)
    assert (numbers(state), named(state)) == ([3, 4, 5, 6], [part])


def test_a_missing_part_of_a_checkpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_checkpoints(monkeypatch)
    files = world.files()
    part = read_state(files).checkpoint.parts[1].path
    files.delete(part)
    state = read_state(files)
    assert (numbers(state), named(state)) == ([1, 2, 5, 6], [part])
    assert "2 entries were in it" in str(state.unreadable[0])


@pytest.mark.parametrize("damage", [lambda data: data[:40], newer], ids=["truncated", "newer"])
def test_an_unreadable_checkpoint_is_named_and_the_one_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    world = with_checkpoints(monkeypatch)
    files = world.files()
    path = "_squall/checkpoints/2.json"
    files.replace(path, damage(files.read(path)))
    state = read_state(files)
    assert (numbers(state), named(state)) == ([1, 2, 3], [path])
    world.commit(files, 0, 1, 7)
    state = read_state(files)
    assert numbers(state) == [1, 2, 3, 7]
    before = dict(world.store.files)
    assert not write_next(files, state.checkpoint, state.uncovered)
    assert world.store.files == before


def test_peoples_files_in_the_folders_of_the_manifest_are_ignored() -> None:
    world = table(1)
    files = world.files()
    for path in (
        f"{COMMITS}/README.txt",
        f"{COMMITS}/a.b.00.1.1.json",
        f"{COMMITS}/a.b.0.1.1",
        f"{COMMITS}/squall-a.b.0.1.1-1-00000.json",
        "_squall/checkpoints/01.json",
        "_squall/claims/a.b.0.01.claim.json",
    ):
        files.replace(path, b"?")
    state = read_state(files)
    assert (numbers(state), named(state), state.abandoned) == ([1], [], ())


def test_batches_of_a_topology_called_squall_something_are_found() -> None:
    files = MemoryFiles()
    entry = next(iter(table(1).acked.values()))
    of_another_name = BatchEntry(
        **{**entry.__dict__, "batch": BatchName(WriterId.of("squall-counts-1-1700000000", "sink", 0), 1, 1)}
    )
    files.put_if_absent(of_another_name.batch.commit, encode_entry(of_another_name))
    assert read_state(files).entries == (of_another_name,)


def test_batches_merged_into_another_one_are_separate() -> None:
    world = table(3)
    files = world.files()
    path = BatchName(writer_id(), 1, 3).commit
    third = decode_entry(files.read(path), path)
    taken_in = tuple(str(BatchName(writer_id(), 1, number)) for number in (1, 2))
    files.replace(path, encode_entry(BatchEntry(**{**third.__dict__, "replaces": taken_in})))
    state = read_state(files)
    assert numbers(state) == [3]
    assert [entry.batch.number for entry in state.replaced] == [1, 2]
    assert len(state.counted) == 3


def test_a_read_only_reader_counts_all_batches_and_reports_it() -> None:
    world = table(2)
    files = world.files()
    files.put_if_absent(
        claim_path(writer_id(), 2), seal("claim", {"incarnation": [2, 0], "owner": "h", "since": 0})
    )

    def refusing(step: Step, effect: Callable[[], T]) -> T:
        if step.writes:
            raise FilesRefused(f"{step.call}: permission denied")
        return effect()

    state = read_state(world.files(refusing))
    assert numbers(state) == [1, 2]
    assert [batch.number for batch in state.uncertain] == [1, 2]
    assert state.uncovered == ()  # a checkpoint includes only what counts for certain
    assert read_state(files).uncertain == ()
    assert files.exists(fence_path(writer_id(), 2))  # the reader that may write has made it


def test_an_existing_fence_that_may_not_be_read_is_an_error_and_makes_nothing_count() -> None:
    world = table(1)
    files = world.files()
    take_over(files, writer_id(), (2, 0), "h", 0.0)
    late = replace(read_state(files).entries[0], batch=BatchName(writer_id(), 1, 9))
    files.put_if_absent(late.batch.commit, encode_entry(late))
    assert numbers(read_state(files)) == [1]

    def refusing(step: Step, effect: Callable[[], T]) -> T:
        if step.call == "read" and step.path == fence_path(writer_id(), 2):
            raise FilesRefused(f"{step.call}: the host's name is not known at the moment")
        return effect()

    with pytest.raises(FilesRefused, match="at the moment"):
        read_state(world.files(refusing))


def test_an_entry_that_repeatedly_disappears_is_an_error_in_the_end() -> None:
    world = table(1)

    def never_there(step: Step, effect: Callable[[], T]) -> T:
        if step.call == "read":
            raise AbsentFile(step.path)
        return effect()

    with pytest.raises(AbsentFile, match=COMMITS):
        read_state(world.files(never_there))
