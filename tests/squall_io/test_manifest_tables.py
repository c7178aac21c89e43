"""A table is made once, and its schemas only grow; an error names both the existing table and the wanted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from squall_io.spark.manifest.envelopes import UnreadableRecord, seal
from squall_io.spark.manifest.layout import SCHEMAS, TABLE, numbered
from squall_io.spark.manifest.tables import (
    RESULTS,
    ROWS,
    FolderTaken,
    NoTable,
    TableMismatch,
    TableRecord,
    agree_on_schema,
    latest_schema,
    new_rows,
    open_table,
    read_schema,
    read_table,
)
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.memory_files import ROOT, MemoryFiles, MemoryStore, Step

T = TypeVar("T")

BY_DAY = new_rows("parquet", ("day",))


def test_a_table_is_made_by_the_first_task_and_found_by_the_others() -> None:
    files = MemoryFiles()
    with pytest.raises(NoTable, match=f"no Squall table at {ROOT}: {ROOT}/{TABLE} is missing"):
        read_table(files)
    assert open_table(files, BY_DAY) == open_table(files, BY_DAY) == read_table(files) == BY_DAY


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (TableRecord(ROWS, "orc", ("day",)), "batches of a stream, orc, partitioned by day"),
        (TableRecord(ROWS, "parquet", ()), "batches of a stream, parquet, not partitioned"),
        (
            TableRecord(RESULTS, "parquet", ("day",)),
            "versions of a result, parquet, partitioned by day",
        ),
    ],
)
def test_another_table_at_the_path_is_refused_and_both_are_named(wanted: TableRecord, text: str) -> None:
    files = MemoryFiles()
    open_table(files, BY_DAY)
    existing = "existing: batches of a stream, parquet, partitioned by day"
    with pytest.raises(TableMismatch, match=rf"(?s){existing}\n  wanted:   {text}\n"):
        open_table(files, wanted)
    assert read_table(files) == BY_DAY


def test_of_two_tasks_that_make_a_table_at_once_one_makes_it() -> None:
    store = MemoryStore()

    def slow(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("put_if_absent: rename", TABLE, writes=True):
            open_table(MemoryFiles(store), BY_DAY)
        return effect()

    assert open_table(MemoryFiles(store, slow), BY_DAY) == BY_DAY
    store = MemoryStore()
    with pytest.raises(TableMismatch):
        open_table(MemoryFiles(store, slow), TableRecord(ROWS, "csv", ()))


@pytest.mark.parametrize("first", [1, 2])
def test_the_first_record_decides_the_layout_also_if_two_are_put_at_once(first: int) -> None:
    store = MemoryStore()
    there, wanted = replace(BY_DAY, layout=first), replace(BY_DAY, layout=3 - first)

    def slow(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("put_if_absent: rename", TABLE, writes=True):
            open_table(MemoryFiles(store), there)
        return effect()

    assert open_table(MemoryFiles(store, slow), wanted) == there
    assert open_table(MemoryFiles(store), wanted) == read_table(MemoryFiles(store)) == there


@pytest.mark.parametrize(
    ("number", "fields", "why"),
    [
        (1, {"layout": 2}, "is damaged: it has format 1 and layout 2"),
        (2, {}, "is damaged: it has format 2 and layout 1"),
        (2, {"layout": 2, "holds": RESULTS}, "is of a table that this Squall does not know"),
        (3, {"layout": 3}, "has format 3; this Squall reads formats up to 2: read it with a newer Squall"),
    ],
)
def test_a_record_of_another_layout_than_its_format_is_refused(
    number: int, fields: dict[str, Any], why: str
) -> None:
    files = MemoryFiles()
    record = {"holds": ROWS, "file_format": "parquet", "partition_by": [], **fields}
    files.put_if_absent(TABLE, seal("table", record, number))
    with pytest.raises(UnreadableRecord, match=why):
        read_table(files)


def test_who_gives_the_folder_of_the_rows_is_shown_the_table() -> None:
    folder = MemoryFiles()
    folder.root = f"{ROOT}/data"
    with pytest.raises(NoTable, match=f"if this is the folder of a table's rows, give {ROOT}$"):
        read_table(folder)


@pytest.mark.parametrize(
    ("there", "named"),
    [
        (["part-0.parquet"], "part-0.parquet"),
        (["day=1/hour=2/part-0.parquet", "_SUCCESS"], "day=1/hour=2/part-0.parquet"),
        (["_day=1/a.parquet"], "_day=1/a.parquet"),
        (["_squall/tmp/x", "squall-words-1.store.0.1.1-1-00000.parquet"], "squall-words-1.store"),
        (["d", "b", "a", "c"], "a, b, c, and more"),
        (["a", "b", "c"], "a, b, c)"),
    ],
)
def test_no_table_is_made_among_foreign_files_and_they_are_named(there: list[str], named: str) -> None:
    files = MemoryFiles()
    for path in there:
        files.put_if_absent(path, b"theirs")
    before = dict(files.store.files)
    with pytest.raises(FolderTaken) as raised:
        open_table(files, BY_DAY)
    assert str(raised.value).startswith(f"{ROOT} is not a Squall table and already has files (")
    assert named in str(raised.value) and "give another path, or move them away" in str(raised.value)
    assert files.store.files == before


def test_a_folder_with_only_files_that_readers_ignore_becomes_a_table() -> None:
    files = MemoryFiles()
    for path in ("_SUCCESS", ".hidden/a.parquet", "_temporary/0/a.parquet", "day=1/_b", "day=1/.c"):
        files.put_if_absent(path, b"")
    assert open_table(files, BY_DAY) == read_table(files) == BY_DAY


def test_files_of_another_sink_that_made_the_table_meanwhile_do_not_count_as_foreign() -> None:
    store = MemoryStore()

    def slow(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("list: first page", ""):
            faster = MemoryFiles(store)
            open_table(faster, BY_DAY)
            faster.put_if_absent("day=1/squall-words-1.store.0.1.1-1-00000.parquet", b"committed")
        return effect()

    assert open_table(MemoryFiles(store, slow), BY_DAY) == BY_DAY
    store = MemoryStore()
    with pytest.raises(TableMismatch):
        open_table(MemoryFiles(store, slow), TableRecord(ROWS, "csv", ()))


def test_foreign_files_that_come_into_a_table_later_stop_no_sink() -> None:
    files = MemoryFiles()
    open_table(files, BY_DAY)
    files.put_if_absent("notes.txt", b"a person's")
    assert open_table(files, BY_DAY) == BY_DAY


def test_columns_are_added_and_the_newest_schema_has_all() -> None:
    files = MemoryFiles()
    assert latest_schema(files) is None
    first = agree_on_schema(files, parse_schema("word string, count bigint"))
    assert (first.number, agree_on_schema(files, first.schema)) == (1, first)
    second = agree_on_schema(files, parse_schema("word string, count bigint, at timestamp"))
    assert (second.number, second.schema.names) == (2, ("word", "count", "at"))
    assert agree_on_schema(files, parse_schema("count bigint, word string")) == second
    assert latest_schema(files) == second
    assert read_schema(files, 1) == first
    assert len(files.list(SCHEMAS)) == 2


def test_two_tasks_that_add_columns_at_once_agree_on_one_order() -> None:
    store = MemoryStore()
    agree_on_schema(MemoryFiles(store), parse_schema("a int"))
    others = []

    def slow(step: Step, effect: Callable[[], T]) -> T:
        if step == Step("put_if_absent: rename", numbered(SCHEMAS, 2), writes=True):
            others.append(agree_on_schema(MemoryFiles(store), parse_schema("a int, b int")))
        return effect()

    mine = agree_on_schema(MemoryFiles(store, slow), parse_schema("a int, c int"))
    assert (mine.number, mine.schema.names) == (3, ("a", "b", "c"))
    assert [each.number for each in others] == [2]


def test_a_schema_that_does_not_fit_is_refused_and_both_are_named() -> None:
    files = MemoryFiles()
    agree_on_schema(files, parse_schema("word string, count bigint"))
    with pytest.raises(TableMismatch) as caught:
        agree_on_schema(files, parse_schema("word binary, count string"))
    text = str(caught.value)
    assert "'word'" in text and "'count'" in text
    assert "the table's: `word` STRING" in text or "the table's: word" in text.lower()
    assert "wanted:" in text and text.count("\n  - ") == 2
    assert len(files.list(SCHEMAS)) == 1


@pytest.mark.parametrize(
    ("path", "data", "read"),
    [
        (TABLE, b"{", read_table),
        (TABLE, seal("table", {"holds": ROWS}), read_table),
        (TABLE, seal("schema", {"ddl": "a int"}), read_table),
        (numbered(SCHEMAS, 1), seal("schema", {}), latest_schema),
        (numbered(SCHEMAS, 1), seal("schema", {"ddl": "a nonsense"}), latest_schema),
        (numbered(SCHEMAS, 1), seal("schema", {"ddl": "a int"})[:-9], latest_schema),
    ],
)
def test_unreadable_records_are_named(path: str, data: bytes, read: Callable[[MemoryFiles], object]) -> None:
    files = MemoryFiles()
    files.put_if_absent(path, data)
    with pytest.raises(UnreadableRecord, match=path):
        read(files)
