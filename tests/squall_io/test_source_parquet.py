"""Ranges of rows are read from Parquet files exactly, whatever the groups of rows, at once or by pieces."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall_io.lines.errors import UnreadableFile
from squall_io.spark.rows.arrow import arrow_schema
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.source import parquet_rows
from squall_io.spark.source.parquet_rows import in_tasks, read_ranges
from squall_io.spark.source.row_ranges import FileRange
from tests.squall_io.memory_files import MemoryFiles

SCHEMA = parse_schema("N bigint, word string, day date, added array<int>")
PATH = "day=2026-11-29/squall-t-1.store.0.1.1-1-00000.parquet"


def stored(rows: int, group: int) -> tuple[MemoryFiles, int]:
    """A file with numbered rows, and its size."""
    made = io.BytesIO()
    pq.write_table(pa.table({"n": range(rows), "word": map(str, range(rows))}), made, row_group_size=group)
    files = MemoryFiles()
    files.put_if_absent(PATH, made.getvalue())
    return files, len(made.getvalue())


def numbers(files: MemoryFiles, *ranges: FileRange) -> list[int]:
    """The numbers of the rows that are read."""
    batches = list(read_ranges(files, ranges, SCHEMA, arrow_schema(SCHEMA)))
    return [number for batch in batches for number in batch.column("N").to_pylist()]


@pytest.mark.parametrize("at_once", [0, 2**20])
def test_ranges_are_read_whatever_the_groups_of_rows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_AT_ONCE", at_once)
    monkeypatch.setattr(parquet_rows, "_ROWS", 5)
    chance = random.Random(1)
    for group in (1, 7, 40, 100):
        files, size = stored(60, group)
        assert numbers(files, FileRange(PATH, size)) == list(range(60))
        for _ in range(20):
            first, end = sorted(chance.sample(range(61), 2))
            assert numbers(files, FileRange(PATH, size, first, end - first)) == list(range(first, end))
        assert numbers(files, FileRange(PATH, size, 50, 10), FileRange(PATH, size, 3, 2)) == [
            *range(50, 60),
            3,
            4,
        ]


def test_columns_of_folders_and_those_that_a_file_lacks_are_there() -> None:
    files, size = stored(2, 2)
    [batch] = read_ranges(files, [FileRange(PATH, size)], SCHEMA, arrow_schema(SCHEMA))
    [first, _] = batch.to_pylist()
    assert (first["N"], first["word"], str(first["day"]), first["added"]) == (0, "0", "2026-11-29", None)


def test_a_task_opens_each_of_its_files_once() -> None:
    large = 40 * 2**20
    ranges = [FileRange(path, large, first, 10) for first in (0, 10, 25) for path in ("a", "b")]
    assert in_tasks(ranges) == [
        [FileRange("a", large, 0, 20), FileRange("a", large, 25, 10)],
        [FileRange("b", large, 0, 20), FileRange("b", large, 25, 10)],
    ]
    small = [FileRange(str(number), 1_000) for number in range(62)]
    assert [len(task) for task in in_tasks(small)] == [31, 31]
    assert in_tasks([]) == []


def test_a_file_that_is_gone_or_has_changed_is_named() -> None:
    files, size = stored(5, 5)
    with pytest.raises(UnreadableFile, match=rf"{PATH} has {size} bytes, but {size + 1} were committed"):
        numbers(files, FileRange(PATH, size + 1))
    with pytest.raises(
        UnreadableFile, match=rf"{PATH} has 5 rows, but the rows up to number 7 were committed"
    ):
        numbers(files, FileRange(PATH, size, 0, 7))
    files.replace(PATH, b"PAR1" + bytes(size - 4))
    with pytest.raises(UnreadableFile, match=f"{PATH} cannot be read as Parquet"):
        numbers(files, FileRange(PATH, size))
    files.delete(PATH)
    with pytest.raises(
        UnreadableFile, match=rf"{PATH} of a committed batch is gone: `squall table .* --verify`"
    ):
        numbers(files, FileRange(PATH, size))
