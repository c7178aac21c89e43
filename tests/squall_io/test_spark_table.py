"""`table_summary` reports the content of the manifest, and `verify` finds each file that is not as committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from squall.stores.files import FilesError, FilesRefused, FilesUnavailable, OpenStore
from squall.stores.local import LocalFiles
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.entries import encode_entry
from squall_io.spark.manifest.layout import TABLE
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import RESULTS, NoTable, TableRecord, open_table
from squall_io.spark.reading.summary import (
    FileProblem,
    PartitionSummary,
    Verification,
    WriterSummary,
    table_summary,
    verify,
)
from squall_io.spark.results.versions import Attempt, Run, RunInput, Version, begin, publish
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask

SCHEMA = "word string, count bigint"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "table")) as opened:
        yield opened


def below(files: OpenStore, path: str) -> Path:
    return Path(files.root.removeprefix("file://")) / path


def under_way(files: OpenStore) -> tuple[int, int]:
    """Unfinished batches, and remaining folders."""
    stream = table_summary(files).stream
    assert stream is not None
    return stream.writing, stream.leftover


def test_a_summary_adds_up_the_commits_of_each_component(files: OpenStore) -> None:
    words = SinkTask(files, SCHEMA)
    words.put({"a.txt": b"12345", "b.txt": b"1"}, rows=7, committed=200.0)
    words.put({"a.txt": b"123"}, rows=1, committed=100.0)
    SinkTask(files, SCHEMA, topology="letters", index=3).put({"a.txt": b"1"}, rows=2, committed=150.0)
    found = table_summary(files)
    assert found.root == files.root
    assert found.table == TableRecord("rows", "parquet", (), layout=2)
    assert str(found.schema) == SCHEMA
    assert (found.rows, found.files, found.size) == (10, 4, 10)
    assert (found.first_commit, found.last_commit) == (100.0, 200.0)
    assert found.stream is not None and found.stream.batches == 3
    assert found.stream.writers == (
        WriterSummary("letters", "store", 1, 2, 1, 150.0),
        WriterSummary("words", "store", 2, 8, 9, 200.0),
    )
    assert found.partitions == (PartitionSummary("", 4, 10),)
    assert (found.stream.schemas, found.stream.checkpoint, found.stream.loose) == (1, 0, 3)
    assert (found.stream.writing, found.stream.leftover) == (0, 0)


def test_a_summary_shows_the_size_of_each_partition(files: OpenStore) -> None:
    task = SinkTask(files, f"{SCHEMA}, day string", partition_by=["day"])
    task.put({"day=1/a.txt": b"12345", "day=2/a.txt": b"1"})
    task.put({"day=2/a.txt": b"123"})
    assert table_summary(files).partitions == (
        PartitionSummary("day=1", 1, 5),
        PartitionSummary("day=2", 2, 4),
    )


def test_a_table_without_a_batch_is_reported_too(files: OpenStore) -> None:
    SinkTask(files, SCHEMA)
    found = table_summary(files)
    assert (found.rows, found.first_commit, found.last_commit, found.partitions) == (0, None, None, ())
    assert found.stream is not None and (found.stream.batches, found.stream.writers) == (0, ())


def test_batches_in_a_checkpoint_count_like_the_others(files: OpenStore) -> None:
    task = SinkTask(files, SCHEMA)
    task.put({"a.txt": b"1"}, rows=5)
    state = read_state(files)
    assert write_next(files, state.checkpoint, state.uncovered)
    task.put({"a.txt": b"1"}, rows=6)
    found = table_summary(files)
    assert found.stream is not None
    assert (found.rows, found.stream.checkpoint, found.stream.loose) == (11, 1, 1)


def test_unfinished_batches_are_distinguished_from_remains_of_dead_owners(files: OpenStore) -> None:
    old = SinkTask(files, SCHEMA)
    files.put_if_absent(f"{old.next_name().attempt(1)}/part-0.parquet", b"never committed")
    assert under_way(files) == (1, 0)
    new = SinkTask(files, SCHEMA, incarnation=(2, 0))
    assert under_way(files) == (0, 1)
    files.put_if_absent(f"{new.next_name().attempt(1)}/part-0.parquet", b"on its way")
    assert under_way(files) == (1, 1)
    committed = new.next_name()
    files.put_if_absent(f"{committed.attempt(1)}/part-0.parquet", b"to be cleared")
    new.commit_of(committed, rows=1).run()
    assert under_way(files) == (1, 2)


def test_a_summary_names_unreadable_records_and_counts_the_rest(files: OpenStore) -> None:
    task = SinkTask(files, SCHEMA)
    broken = task.put({"a.txt": b"1"}, rows=5)
    task.put({"a.txt": b"1"}, rows=6)
    below(files, broken.batch.commit).write_bytes(b'{"kind": "comm')
    found = table_summary(files)
    assert found.rows == 6
    assert [problem.path for problem in found.unreadable] == [broken.batch.commit]
    assert [problem.path for problem in verify(files).unreadable] == [broken.batch.commit]


def test_batches_whose_rows_are_in_the_files_of_another_one_are_not_counted_twice(files: OpenStore) -> None:
    """As a compaction will write them."""
    task = SinkTask(files, SCHEMA)
    old = [task.put({"a.txt": b"1"}, rows=rows) for rows in (1, 2)]
    new = replace(task.put({"a.txt": b"12"}, rows=3), replaces=tuple(str(entry.batch) for entry in old))
    files.replace(new.batch.commit, encode_entry(new))
    found = table_summary(files)
    assert found.stream is not None
    assert (found.rows, found.files, found.stream.batches, found.stream.replaced) == (3, 1, 1, 2)
    assert verify(files) == Verification(1, 2)


def test_both_report_a_missing_table(files: OpenStore) -> None:
    with pytest.raises(NoTable, match="there is no Squall table at file://"):
        table_summary(files)
    with pytest.raises(NoTable):
        verify(files)


def test_files_as_committed_are_valid_and_counted_in_progress(files: OpenStore) -> None:
    task = SinkTask(files, f"{SCHEMA}, day string", partition_by=["day"])
    task.put({"day=1/a.txt": b"12345", "day=2/a.txt": b"1"})
    task.put({"day=2/a.txt": b"123"})
    said: list[tuple[int, int, int]] = []
    assert verify(files, lambda *numbers: said.append(numbers)) == Verification(3, 9)
    assert [done for done, _, _ in said] == [1, 2, 3]
    assert {total for _, total, _ in said} == {3} and said[-1] == (3, 3, 9)


def test_a_missing_truncated_changed_or_unreadable_file_is_named_with_its_batch(files: OpenStore) -> None:
    task = SinkTask(files, SCHEMA)
    entry = task.put({f"{name}.txt": b"0123456789" for name in "abcd"})
    gone, cut, changed, _ = (file.path for file in entry.files)
    below(files, gone).unlink()
    below(files, cut).write_bytes(b"01234")
    below(files, changed).write_bytes(b"0123456780")
    batch = f"batch {entry.batch}"
    found = verify(files)
    assert found.problems == (
        FileProblem(gone, batch, "is missing"),
        FileProblem(cut, batch, "has 5 bytes instead of 10"),
        FileProblem(changed, batch, "has other content: its digest does not fit"),
    )
    assert str(found.problems[0]) == f"{gone} is missing ({batch})"
    assert found.files == 4


class Flaky(LocalFiles):
    """Local files of which one cannot be read, or none can be reached any more."""

    def __init__(self, path: str, lost: str, error: FilesError, away: bool = False) -> None:
        super().__init__(path)
        self.lost = lost
        self.error = error
        self.away = away

    def digest(self, path: str) -> str:
        if path == self.lost:
            raise self.error
        return super().digest(path)

    def exists(self, path: str) -> bool:
        if self.away and path == TABLE:
            raise FilesUnavailable("cannot look: the NameNode is away")
        return super().exists(path)


@pytest.mark.parametrize(
    "error",
    [
        FilesRefused("cannot read a.txt: permission denied"),
        FilesUnavailable("cannot read a.txt: no DataNode has its block"),
    ],
    ids=["refused", "no DataNode"],
)
def test_an_unreadable_file_is_a_problem_and_the_others_are_checked(
    files: OpenStore, error: FilesError
) -> None:
    lost, changed = (file.path for file in SinkTask(files, SCHEMA).put({"a.txt": b"1", "b.txt": b"2"}).files)
    below(files, changed).write_bytes(b"3")
    problems = verify(Flaky(files.root, lost, error)).problems
    assert [problem.path for problem in problems] == [lost, changed]
    assert problems[0].why == f"cannot be read: {error}"


def test_an_unavailable_file_system_is_an_error_and_no_problem_of_a_file(files: OpenStore) -> None:
    [file] = SinkTask(files, SCHEMA).put({"a.txt": b"1"}).files
    flaky = Flaky(files.root, file.path, FilesUnavailable("cannot read"), away=True)
    with pytest.raises(FilesUnavailable, match="the NameNode is away"):
        verify(flaky)


def test_data_files_without_a_batch_are_strays_unless_they_are_being_published(files: OpenStore) -> None:
    old = SinkTask(files, SCHEMA)
    old.put({"a.txt": b"1"})
    moved = old.next_name().data_file(1, 0, ".parquet")
    files.put_if_absent(moved, b"moved, and not committed yet")
    files.put_if_absent("squall-notes.txt", b"begins as data files do")
    files.put_if_absent("another's.txt", b"none of ours")
    files.put_if_absent("squall-folder/another's.txt", b"none of ours")
    assert verify(files).strays == ("squall-notes.txt",)
    SinkTask(files, SCHEMA, incarnation=(2, 0))
    assert verify(files).strays == ("squall-notes.txt", moved)


def result(files: OpenStore, number: int) -> Version:
    """Publish a version that holds two partitions."""
    by_day = TableRecord(RESULTS, "parquet", ("day",))
    run = Run(
        "reprocess", f"job{number}.py", f"sha256:{number}", (RunInput("/in", "sha256:0"),), table=by_day
    )
    attempt = begin(files, run)
    assert isinstance(attempt, Attempt)
    for path in ("day=1/part-0.parquet", "day=2/part-0.parquet"):
        files.put_if_absent(f"{attempt.rows}/{path}", b"123")
    return publish(files, attempt, run, rows=number, schema="n int, day string", wall=lambda: number).version


def test_of_a_reprocessed_table_the_newest_version_is_summarised_and_all_kept_ones_are_read(
    files: OpenStore,
) -> None:
    open_table(files, TableRecord(RESULTS, "parquet", ("day",)))
    empty = table_summary(files)
    assert (empty.schema, empty.rows, empty.versions, empty.stream) == (None, 0, (), None)
    versions = [result(files, 1), result(files, 2)]
    found = table_summary(files)
    assert (str(found.schema), found.rows, found.files, found.size) == ("n int, day string", 2, 2, 6)
    assert found.versions == tuple(reversed(versions))
    assert (found.first_commit, found.last_commit) == (1, 2)
    assert found.partitions == (PartitionSummary("day=1", 1, 3), PartitionSummary("day=2", 1, 3))
    assert verify(files) == Verification(4, 12)
    below(files, versions[0].files[0].path).write_bytes(b"12")
    [problem] = verify(files).problems
    assert (problem.of, problem.why) == ("version 1", "has 2 bytes instead of 3")
