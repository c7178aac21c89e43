"""Checkpoints change nothing in the content of a table; they only make it faster to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest import state as table_state
from squall_io.spark.manifest.checkpoints import KEPT, Checkpoint, read_newest, write_next
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.entries import BatchEntry, encode_entry
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS, BatchName, numbered
from squall_io.spark.manifest.state import checkpoint_if_due, read_state
from tests.squall_io.commit_world import World, writer_id
from tests.squall_io.memory_files import MemoryFiles, Step

T = TypeVar("T")


@pytest.fixture(autouse=True)
def parts_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are full early."""
    monkeypatch.setattr(checkpoints, "PART", 2)


def entry(number: int, committed: float | None = None) -> BatchEntry:
    """A batch without files."""
    when = float(number) if committed is None else committed
    return BatchEntry(BatchName(writer_id(), 1, number), "counts", "counts-1", "sink", (1, 0), 1, 0, (), when)


def put(files: Files, *batches: int) -> None:
    """Commit batches without files."""
    for number in batches:
        files.put_if_absent(entry(number).batch.commit, encode_entry(entry(number)))


def take_in(files: Files) -> bool:
    """Make a checkpoint of everything."""
    state = read_state(files)
    return write_next(files, state.checkpoint, state.uncovered)


def test_after_any_number_of_checkpoints_everything_is_there_in_few_files() -> None:
    files = MemoryFiles()
    for number in range(1, 30):
        put(files, number)
        if number % 3 == 0:
            assert take_in(files)
            assert files.list(COMMITS) == []
        state = read_state(files)
        assert state.entries == tuple(entry(each) for each in range(1, number + 1))
        assert state.needless == ()
    index = [status for status in files.list(CHECKPOINTS) if status.name[0].isdecimal()]
    assert [status.name for status in index] == ["7.json", "8.json", "9.json"]
    assert len(index) == KEPT
    assert (
        len(files.list(CHECKPOINTS)) < KEPT + 14 + 2 * KEPT
    )  # 27 entries in parts of two, and some old ones


def test_full_parts_are_written_once() -> None:
    files = MemoryFiles()
    put(files, 1, 2, 3)
    take_in(files)
    full = read_newest(files).parts[0]
    put(files, 4, 5)
    take_in(files)
    parts = read_newest(files).parts
    assert parts[0] == full
    assert [part.entries for part in parts] == [2, 2, 1]


def test_a_checkpoint_that_comes_second_changes_nothing() -> None:
    files = MemoryFiles()
    put(files, 1)
    late = read_state(files)
    take_in(files)
    put(files, 2)
    assert not write_next(files, late.checkpoint, (*late.uncovered, entry(2)))
    assert [each.batch.number for each in read_state(files).entries] == [1, 2]
    assert files.exists(entry(2).batch.commit)


def test_a_checkpoint_whose_number_was_taken_and_deleted_meanwhile_does_not_count() -> None:
    files = MemoryFiles()
    frozen = [entry(1)]  # one task has seen it; the others listed before it existed
    put(files, 1)
    newest = Checkpoint()
    for _ in range(KEPT + 1):
        assert write_next(files, newest, ())
        newest = read_newest(files)
    assert not files.exists(numbered(CHECKPOINTS, 1))
    assert not write_next(files, Checkpoint(), frozen)
    assert read_state(files).entries == (entry(1),)
    take_in(files)
    assert not files.exists(numbered(CHECKPOINTS, 1))
    assert read_state(files).entries == (entry(1),)


def test_a_checkpoint_whose_put_was_refused_though_it_was_ours_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    put(files, 1, 2, 3)
    monkeypatch.setattr(files, "put_if_absent", lying(files.put_if_absent))
    assert take_in(files)
    assert read_state(files).entries == (entry(1), entry(2), entry(3))
    assert files.list(COMMITS) == []


def lying(real: Callable[[str, bytes], bool]) -> Callable[[str, bytes], bool]:
    """A store that repeats a request by itself when an answer is lost, and returns the second answer."""

    def put_if_absent(path: str, data: bytes) -> bool:
        real(path, data)
        return real(path, data)

    return put_if_absent


def test_the_remains_of_a_checkpoint_whose_answer_was_lost_are_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_state, "DUE", 2)
    world = World()
    put(world.files(), 1, 2, 3)

    def deaf(step: Step, effect: Callable[[], T]) -> T:
        done = effect()
        if step.path == numbered(CHECKPOINTS, 1) and step.writes:
            raise FilesUnavailable("no answer")
        return done

    with pytest.raises(FilesUnavailable):
        checkpoint_if_due(world.files(deaf))
    files = world.files()
    assert len(files.list(COMMITS)) == 3
    assert len(read_state(files).needless) == 3
    assert not checkpoint_if_due(files)  # there is nothing for another one
    assert files.list(COMMITS) == []
    assert len(read_state(files).entries) == 3


def test_parts_of_dead_tasks_are_deleted_with_the_old_checkpoints_and_no_others() -> None:
    files = MemoryFiles()
    files.put_if_absent(f"{CHECKPOINTS}/part-1-0123456789abcdef.json.gz", b"of no owner")
    files.put_if_absent(f"{CHECKPOINTS}/notes.txt", b"a person's")
    for number in range(1, 2 * KEPT + 3):
        put(files, number)
        assert take_in(files)
    assert not files.exists(f"{CHECKPOINTS}/part-1-0123456789abcdef.json.gz")
    assert files.exists(f"{CHECKPOINTS}/notes.txt")
    parts = {part.path for part in read_newest(files).parts}
    assert parts <= {status.path for status in files.list(CHECKPOINTS)}
    assert len(read_state(files).entries) == 2 * KEPT + 2


def test_nothing_old_is_deleted_while_a_remaining_checkpoint_is_unreadable() -> None:
    files = MemoryFiles()
    for number in range(1, KEPT + 1):
        put(files, number)
        take_in(files)
    files.replace(numbered(CHECKPOINTS, KEPT - 1), b"")
    put(files, 99)
    assert take_in(files)  # the newest one is complete
    assert files.exists(numbered(CHECKPOINTS, 1))
    assert len(read_state(files).entries) == KEPT + 1


def test_a_checkpoint_is_made_when_there_are_enough_open_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "DUE", 4)
    files = MemoryFiles()
    put(files, 1, 2, 3)
    assert not checkpoint_if_due(files)
    put(files, 4)
    assert len(read_state(files).uncovered) >= table_state.DUE
    assert checkpoint_if_due(files)
    assert (files.list(COMMITS), read_state(files).checkpoint.number) == ([], 1)


def test_entries_that_do_not_count_are_in_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "DUE", 2)
    files = MemoryFiles()
    take_over(files, writer_id(), (1, 0), "host:1", 0.0)
    put(files, 1)
    take_over(files, writer_id(), (2, 0), "host:2", 0.0)
    put(files, 2, 3)
    assert not checkpoint_if_due(files)  # one counts
    assert take_in(files)
    assert [status.name for status in files.list(COMMITS)] == [f"{entry(n).batch}.json" for n in (2, 3)]
    assert [each.batch.number for each in read_newest(files).entries] == [1]


def test_entries_are_in_the_order_of_their_commits_whatever_part_they_are_in() -> None:
    files = MemoryFiles()
    for number, committed in ((1, 30.0), (2, 10.0), (3, 40.0), (4, 20.0)):
        late = entry(number, committed)
        files.put_if_absent(late.batch.commit, encode_entry(late))
        if number % 2 == 0:
            take_in(files)
    assert [each.committed for each in read_state(files).entries] == [10.0, 20.0, 30.0, 40.0]


def test_no_checkpoint_is_made_of_a_damaged_one() -> None:
    files = MemoryFiles()
    put(files, 1)
    damaged = dataclasses.replace(Checkpoint(3), unreadable=(ValueError(),))  # type: ignore[arg-type]
    assert not write_next(files, damaged, [entry(1)])
    assert files.list(CHECKPOINTS) == []
