"""What a compaction chooses to merge, who may replace batches, and what an earlier release makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from squall.stores.files import FilesRefused
from squall_io.spark.delta.moved_rows import missing_from
from squall_io.spark.manifest import rewriting
from squall_io.spark.manifest.checkpoints import Checkpoint, read_newest, write_next
from squall_io.spark.manifest.claims import Listing
from squall_io.spark.manifest.entries import BatchEntry, DataFile, decode_entry, encode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord, unseal
from squall_io.spark.manifest.layout import REWRITER, BatchName, WriterId, batch_of, safe
from squall_io.spark.manifest.originals import originals
from squall_io.spark.manifest.rewriting import Rewriter, RewriterBusy, Step, Wanted, plan, require_idle
from squall_io.spark.manifest.state import TableState, read_state
from tests.squall_io.memory_files import MemoryFiles
from tests.squall_io.memory_files import Step as StoreStep

T = TypeVar("T")

WRITER = WriterId("words-1", "store", 0)


def entry(
    number: int, *sizes: int, days: str = "a", writer: WriterId = WRITER, committed: float = 0.0
) -> BatchEntry:
    """A batch with a file of each size; the letters of `days` are their directories."""
    name = BatchName(writer, 1, number)
    files = tuple(
        DataFile(f"data/day={day}/{name.data_file(1, at, '.parquet')}", size, "sha256:00")
        for at, (size, day) in enumerate(zip(sizes, days * len(sizes)))
    )
    return BatchEntry(
        name, "words", "words-1", "store", (1, 0), 1, len(sizes), files, committed or float(number)
    )


def merged(number: int, size: int, *old: BatchEntry, kept: tuple[DataFile, ...] = ()) -> BatchEntry:
    """A batch with the rows of others in one file."""
    name = BatchName(REWRITER, 1, number)
    parts = tuple(
        part
        for each in old
        for file in each.files
        if file not in kept
        for part in file.parts or ((file.name, 1),)
    )
    file = DataFile(f"data/day=a/{name.data_file(1, 0, '.parquet')}", size, "sha256:00", parts)
    rows = sum(each.rows for each in old)
    made = entry(number, committed=100.0 + number)
    names = tuple(str(each.batch) for each in old)
    return replace(made, batch=name, rows=rows, files=(file, *kept), replaces=names)


def state(*entries: BatchEntry, uncertain: tuple[BatchName, ...] = ()) -> TableState:
    """A table that holds these entries."""
    gone = {name for each in entries for name in each.replaces}
    there = tuple(each for each in entries if str(each.batch) not in gone)
    away = tuple(each for each in entries if str(each.batch) in gone)
    nothing = Listing(frozenset(), frozenset())
    return TableState(there, away, (), (), Checkpoint(), (), (), uncertain, nothing)


def sizes(steps: list[Step]) -> list[list[list[int]]]:
    """The sizes of the files that are merged, by step."""
    return [[[file.size for file in merge.sources] for merge in step.merges] for step in steps]


def planned(*entries: BatchEntry, target: int = 100, partition: str = "") -> list[Step]:
    return plan(state(*entries), Wanted(target, partition, "data"))


def test_small_files_of_a_directory_become_files_of_about_the_target_size() -> None:
    assert sizes(planned(*(entry(number, 25) for number in range(1, 8)))) == [[[25, 25, 25]], [[25, 25, 25]]]
    assert sizes(planned(entry(1, 10), entry(2, 74), entry(3, 75), entry(4, 10))) == [[[10, 74]]]
    assert planned(entry(1, 10)) == planned(entry(1, 80), entry(2, 90)) == planned(entry(1)) == []


def test_a_file_that_is_much_larger_than_all_others_stays_until_they_have_grown() -> None:
    assert sizes(planned(entry(1, 50), entry(2, 5), entry(3, 5))) == [[[5, 5]]]
    assert sizes(planned(entry(1, 50), entry(2, 5), entry(3, 8))) == [[[50, 5, 8]]]
    assert planned(entry(1, 50), entry(2, 5)) == []


def test_files_of_different_directories_are_not_merged_and_those_that_stay_are_taken_over() -> None:
    old = [entry(1, 10, 10, 90, days="abc"), entry(2, 10, 90, days="ab")]
    [step] = planned(*old)
    assert [merge.directory for merge in step.merges] == ["data/day=a"]
    assert step.kept == (*old[0].files[1:], old[1].files[1])
    assert planned(entry(1, 10), entry(2, 10, days="b")) == []


def test_a_partition_can_be_chosen() -> None:
    old = [entry(1, 10, 10, days="ab"), entry(2, 10, 10, days="ab")]
    [step] = planned(*old, partition="day=b")
    assert [merge.directory for merge in step.merges] == ["data/day=b"] and len(step.kept) == 2
    assert planned(*old, partition="day=") == []


def test_uncertain_batches_and_those_that_were_replaced_are_left_alone() -> None:
    old = [entry(number, 10) for number in (1, 2, 3)]
    [step] = plan(state(*old, uncertain=(old[1].batch,)), Wanted(100, data="data"))
    assert step.replaced == (old[0], old[2])
    assert plan(state(*old[:2], merged(1, 20, *old[:2])), Wanted(100, data="data")) == []


def test_the_rows_of_a_merged_file_stay_in_the_order_of_the_commits() -> None:
    old = [entry(number, 10) for number in (1, 3)]
    between = entry(2, 10)
    [step] = planned(*old, between, merged(1, 15, *old))
    assert [(piece.name, piece.first, piece.rows) for merge in step.merges for piece in merge.pieces] == [
        (old[0].files[0].name, 0, 1),
        (between.files[0].name, 0, None),
        (old[1].files[0].name, 1, 1),
    ]


def test_an_entry_names_not_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "MOST_PARTS", 3)
    assert sizes(planned(*(entry(number, 1) for number in range(1, 8)))) == [[[1, 1, 1]], [[1, 1, 1]]]


def test_the_rows_of_each_batch_are_found_also_after_several_compactions() -> None:
    old = [entry(1, 10, 90, days="ab"), entry(2, 10), entry(3, 10)]
    once = merged(1, 20, old[0], old[2], kept=old[0].files[1:])
    twice = merged(2, 30, once, old[1], kept=once.files[1:])
    for found, where in ((state(*old, once), once), (state(*old, once, twice), twice)):
        where_now = {
            original.entry.batch.number: [(each.file.path, each.first, each.rows) for each in original.ranges]
            for original in originals(found)
        }
        assert where_now[1] == [(where.files[0].path, 0, 1), (old[0].files[1].path, 0, None)]
        assert where_now[3] == [(where.files[0].path, 1, 1)]
        assert [each.is_whole for each in originals(found)] == [True] * 3
    assert where_now[2] == [(twice.files[0].path, 2, 1)]


def test_a_log_that_knows_no_replaced_batch_gets_none_and_takes_moved_rows_for_new() -> None:
    old = [entry(1, 10), entry(2, 10), entry(3, 10)]
    once = merged(1, 20, *old[:2])
    twice = merged(2, 30, once, old[2])
    found = missing_from(set(), [twice], state(*old, once, twice))
    assert found.plain == [] and [each.is_new for each in found.moving] == [True]
    assert set(found.moving[0].replaces) == {str(each.batch) for each in (*old, once)}
    found = missing_from(old[0].paths, [twice], state(*old, once, twice))
    assert found.plain == [old[1], old[2]]
    assert [(each.entry, each.is_new) for each in found.moving] == [(once, False), (twice, False)]
    assert [file.path for file in found.moving[0].removes] == sorted(old[0].paths | old[1].paths)


def test_an_earlier_release_refuses_what_it_would_misread() -> None:
    old = [entry(1, 10), entry(2, 10)]
    made = merged(1, 20, *old)
    data, path = encode_entry(made), made.batch.commit
    assert decode_entry(data, path) == made
    with pytest.raises(UnreadableRecord, match="has format 2; this Squall reads formats up to 1"):
        unseal("commit", data, path)  # as an earlier release reads it
    unseal("commit", encode_entry(old[0]), old[0].batch.commit)
    files = MemoryFiles()
    assert write_next(files, Checkpoint(), old)
    unseal("checkpoint", files.read("_squall/checkpoints/1.json"), "")
    assert write_next(files, read_newest(files), [made])
    with pytest.raises(UnreadableRecord, match="has format 2"):
        unseal("checkpoint", files.read("_squall/checkpoints/2.json"), "")
    assert set(read_newest(files).entries) == {*old, made}


def test_the_writer_id_of_rewriters_is_that_of_no_task() -> None:
    assert batch_of(str(BatchName(REWRITER, 3, 4))) == BatchName(REWRITER, 3, 4)
    assert safe("rewrite~~") != REWRITER.topology_id


def test_a_rewriter_is_busy_until_it_ends_or_has_been_quiet_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    require_idle(files)
    clock = [0.0]
    rewriter = Rewriter(files, "host a, process 7", lambda: clock[0])
    rewriter.begin()
    with pytest.raises(RewriterBusy, match="that of host a, process 7; its last sign of life was 1 s ago"):
        require_idle(files)
    files.store.clock += rewriting.QUIET + 10
    require_idle(files)
    rewriter.sign()  # too early to write again
    require_idle(files)
    clock[0] += 31.0
    rewriter.sign()
    with pytest.raises(RewriterBusy):
        require_idle(files)
    rewriter.end()
    require_idle(files)


def test_a_reader_that_may_not_write_reads_the_replaced_batches_while_it_is_undecided_what_counts() -> None:
    files = MemoryFiles()
    old = [entry(1, 10), entry(2, 10)]
    made = merged(1, 20, *old)
    for each in (*old, made):
        files.put_if_absent(each.batch.commit, encode_entry(each))
    for epoch in (1, 2):
        files.put_if_absent(f"_squall/claims/{REWRITER}.{epoch}.claim.json", b"")

    def read_only(step: StoreStep, effect: Callable[[], T]) -> T:
        if step.writes:
            raise FilesRefused(f"{step.call} {step.path}: permission denied")
        return effect()

    found = read_state(MemoryFiles(files.store, read_only))
    assert (found.entries, found.replaced, found.uncertain) == (tuple(old), (), ())
    assert read_state(files).replaced == tuple(old)
