"""Readers that know no Squall meet only rows below the table's folder of data files: DuckDB, Polars, PyArrow.

First, which names each reader skips: no name in the table's own folder would be skipped by all of them, which is why the files
have a folder of their own. `tests/spark/test_plain_spark.py` has the same for Spark.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from squall.stores.local import LocalFiles
from squall_io.spark import committed_files
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.manifest import commit as commit_steps
from tests.spark.batches import SinkTask
from tests.squall_io.test_delta_readers import ROWS, parquet

DAYS = ("day=2026-01-01", "day=a%3Ab", "day=__HIVE_DEFAULT_PARTITION__")


def by_duckdb(folder: Path) -> list[int]:
    """What DuckDB reads by the pattern that its documentation has for a folder of partitions."""
    query = f"SELECT number FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = true)"
    return [row[0] for row in duckdb.connect().execute(query).fetchall()]


READERS: dict[str, Callable[[Path], list[int]]] = {
    "duckdb": by_duckdb,
    "polars": lambda folder: polars.scan_parquet(folder).select("number").collect()["number"].to_list(),
    "polars by pattern": lambda folder: polars.read_parquet(f"{folder}/**/*.parquet")["number"].to_list(),
    "pyarrow": lambda folder: (
        pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
        .to_table(["number"])["number"]
        .to_pylist()
    ),
}
#: What each reader does about a file of rows, and about one of JSON, at a path beside a file of rows: r reads its rows, - skips
#: it, E is an error. By reader, in the order of `READERS`.
MET = {
    "_x.parquet": ("rrr-", "EEE-"),
    ".x.parquet": ("rrr-", "EEE-"),
    "_folder/x.parquet": ("rrr-", "EEE-"),
    ".folder/x.parquet": ("rrr-", "EEE-"),
    "folder/x.parquet": ("rrrr", "EEEE"),
    "x": ("-E-r", "-E-E"),
    "x.tmp": ("-E-r", "-E-E"),
    "x.parquet.tmp": ("-E-r", "-E-E"),
    "x.json": ("-E-r", "-E-E"),
    "_folder/x.json": ("-E--", "-E--"),
    "_delta_log/x.json": ("-E--", "-E--"),
}


@pytest.mark.parametrize("name", MET)
def test_no_name_in_a_folder_is_skipped_by_all_readers(tmp_path: Path, name: str) -> None:
    found = []
    for content in (parquet(2), b'{"kind": "table"}'):
        (tmp_path / "beside.parquet").write_bytes(parquet(1))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        found.append("".join(_met(read, tmp_path) for read in READERS.values()))
    assert tuple(found) == MET[name]
    assert "-" * len(READERS) not in found


def _met(read: Callable[[Path], list[int]], folder: Path) -> str:
    try:
        return {ROWS: "-", 2 * ROWS: "r"}[len(read(folder))]
    except (duckdb.Error, polars.exceptions.PolarsError, pyarrow.ArrowException):
        return "E"


class WatchedFiles(LocalFiles):
    """A local table with a call after each file that was moved."""

    moved: Callable[[], None] = staticmethod(lambda: None)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Look after the move."""
        done = super().move_if_absent(source, target)
        self.moved()
        return done


#: Called at each step with the batches that are committed, and the one whose files are being moved, if any.
Look = Callable[[set[int], int | None], None]


def commit_batches(folder: Path, look: Look) -> None:
    """Commit two batches with a look at every step, and stage a third one."""
    files = WatchedFiles(str(folder))
    task = SinkTask(files, "number bigint, day string", partition_by=["day"])
    enable(files, time.time)
    committed: set[int] = set()
    for number in (1, 2, 3):
        name = task.next_name()
        for day in DAYS:
            assert files.put_if_absent(f"{name.attempt(1)}/{day}/part-0.snappy.parquet", parquet(number))
            assert files.put_if_absent(f"{name.attempt(1)}/_temporary/{day}/part-1.parquet", b"unfinished")
        look(committed, None)
        if number == 3:
            break
        commit = task.commit_of(name, len(DAYS) * ROWS, time.time())
        moving = {"publish": number, "look": None}

        def at(step: str) -> None:
            look(committed | ({number} if step == "look" else set()), moving.get(step))  # noqa: B023

        files.moved = lambda: look(committed, number)  # noqa: B023
        commit.at = at
        commit.run()
        committed.add(number)
        look(committed, None)
        commit.clear()
        catch_up(files, time.time)
        look(committed, None)


@pytest.fixture
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are moved one by one."""
    monkeypatch.setattr(
        commit_steps, "map_concurrently", lambda call, things: [call(each) for each in things]
    )


def test_at_each_step_of_a_commit_plain_readers_meet_rows_and_nothing_else(
    tmp_path: Path, one_after_the_other: None
) -> None:
    """Of the batch that is being moved they see some files; those who read the list of files or the Delta log see none."""
    parts: set[int] = set()

    def look(committed: set[int], moving: int | None) -> None:
        whole = sorted(number for number in committed for _ in range(len(DAYS) * ROWS))
        if (tmp_path / "data").exists():
            for name, read in READERS.items():
                found = read(tmp_path / "data")
                rest = [number for number in found if number not in committed]
                assert sorted(set(found) - set(rest)) == sorted(committed), name
                assert set(rest) <= {moving} and sorted(found)[: len(whole)] == whole, name
                parts.add(len(rest))
        listed = committed_files(tmp_path)
        assert (sorted(_of_files(listed)) if listed else []) == whole
        assert set(DeltaTable(tmp_path).to_pyarrow_table()["number"].to_pylist()) <= committed

    commit_batches(tmp_path, look)
    assert parts == {0, ROWS, 2 * ROWS, 3 * ROWS}
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["number"].to_pylist()) == [1] * 9 + [2] * 9


def _of_files(paths: list[str]) -> list[int]:
    """What DuckDB and PyArrow read of a list of files."""
    rows = duckdb.read_parquet(paths, hive_partitioning=True).fetchall()
    assert {day for _, day in rows} == {"2026-01-01", "a:b", None}
    read = pyarrow.dataset.dataset(paths, format="parquet").to_table()["number"].to_pylist()
    numbers = [number for number, _ in rows]
    assert sorted(read) == sorted(numbers)
    return numbers


def test_plain_readers_know_the_partitions(tmp_path: Path) -> None:
    task = SinkTask(LocalFiles(str(tmp_path)), "number bigint, day string", partition_by=["day"])
    task.put({f"{day}/a.parquet": parquet(1) for day in DAYS}, 9)
    days = {"2026-01-01", "a:b", None}
    found = duckdb.read_parquet(f"{tmp_path}/data/**/*.parquet", hive_partitioning=True)
    assert {row[0] for row in found.project("day").fetchall()} == days
    assert set(polars.read_parquet(tmp_path / "data", hive_partitioning=True)["day"].to_list()) == days
    flavor = pyarrow.dataset.partitioning(flavor="hive")
    table = pyarrow.dataset.dataset(tmp_path / "data", partitioning=flavor).to_table()
    assert set(table["day"].to_pylist()) == days


def test_a_table_that_is_being_written_is_never_an_error_for_plain_readers(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    task = SinkTask(files, "number bigint, day string", partition_by=["day"])
    enable(files, time.time)
    committed: list[int] = []
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            number = task.batches + 1
            task.put({f"{day}/a.parquet": parquet(number) for day in DAYS}, len(DAYS) * ROWS, time.time())
            committed.append(number)
            if number % 5 == 0:
                catch_up(files, time.time)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not committed:
            assert writer.is_alive()
        for _ in range(8):
            for name, read in READERS.items():
                before = len(committed)
                found = read(tmp_path / "data")
                counts = {number: found.count(number) for number in set(found)}
                assert all(counts.get(number) == len(DAYS) * ROWS for number in range(1, before + 1)), name
                assert set(counts.values()) <= {ROWS, 2 * ROWS, 3 * ROWS}, name
    finally:
        over.set()
        writer.join()


def test_readers_find_added_columns_if_their_caller_names_them(tmp_path: Path) -> None:
    """The ways that docs/spark-sink.md names."""
    files = LocalFiles(str(tmp_path))
    SinkTask(files, "number bigint").put({"a.parquet": parquet(1)}, ROWS, 1.0)
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"number": [2], "more": ["x"]}), target)
    SinkTask(files, "number bigint, more string", index=1).put({"a.parquet": target.getvalue()}, 1, 2.0)
    rows = [(1, None)] * ROWS + [(2, "x")]
    listed = committed_files(tmp_path)
    assert sorted(duckdb.read_parquet(listed, union_by_name=True).fetchall()) == rows
    columns = {"number": polars.Int64, "more": polars.String}
    read = polars.scan_parquet(tmp_path / "data", schema=columns, missing_columns="insert").collect()
    assert sorted(read.rows()) == rows
    schema = pyarrow.schema({"number": pyarrow.int64(), "more": pyarrow.string()})
    table = pyarrow.dataset.dataset(tmp_path / "data", schema=schema).to_table()
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == rows
