"""Tables of layout 1, which earlier releases have made, stay what they are: read, written, swept and followed where they are.

What an earlier release does in such a table is what the commit protocol does with the table's own folder as folder of data.
"""

from __future__ import annotations

import io
import threading
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from squall.stores.local import LocalFiles
from squall_io.spark import CommittedRows, committed_files
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.manifest.claims import Superseded, take_over
from squall_io.spark.manifest.commit import BatchCommit
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.sweep import sweep
from squall_io.spark.manifest.tables import TableRecord, read_table
from squall_io.spark.reading.summary import table_summary, verify
from squall_io.spark.spouts.committed_rows import BatchUnits
from tests.frozen.frozen_data import load
from tests.frozen.table_folders import fill
from tests.spark.batches import SinkTask
from tests.squall_io.commit_world import writer_id
from tests.squall_io.test_spout_committed_rows import context

DDL = "n bigint, day string"
#: A batch that is being written in the frozen table.
UNDER_WAY = BatchName(writer_id(1), 3, 1)


def parquet(number: int) -> bytes:
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"n": pyarrow.array([number], pyarrow.int64())}), target)
    return target.getvalue()


def old_task(files: LocalFiles, incarnation: tuple[int, int] = (1, 0)) -> SinkTask:
    """A task of an earlier release: it makes tables of layout 1."""
    return SinkTask(files, DDL, partition_by=["day"], incarnation=incarnation, layout=1)


def new_task(files: LocalFiles, incarnation: tuple[int, int] = (2, 0)) -> SinkTask:
    return SinkTask(files, DDL, partition_by=["day"], incarnation=incarnation)


def test_a_frozen_table_is_written_and_swept_where_it_is(tmp_path: Path) -> None:
    fill(tmp_path, load("tables")["stream"])
    files = LocalFiles(str(tmp_path))
    before = {entry.batch for entry in read_state(files).entries}
    # Its owner has moved a file, and was killed; another file is in its staging folder still.
    files.put_if_absent(f"day=1/{UNDER_WAY.data_file(1, 1, '.parquet')}", b"moved")
    assert files.exists(UNDER_WAY.staging)
    epoch = take_over(files, UNDER_WAY.writer_id, (9, 0), "host", 0.0)
    assert sweep(files, UNDER_WAY.writer_id, epoch) == 1
    assert not files.exists(UNDER_WAY.staging)
    assert not [each for each in files.list("day=1") if each.name.startswith(UNDER_WAY.data_prefix)]
    task = SinkTask(files, "directory string, batch string", partition_by=["day"])
    assert task.table == read_table(files) == TableRecord("rows", "parquet", ("day",), layout=1)
    entry = task.put({"day=9/a.parquet": b"new"})
    assert [file.path.rpartition("/")[0] for file in entry.files] == ["day=9"]
    assert {each.batch for each in read_state(files).entries} == before | {entry.batch}
    assert "day=9" in {each.path for each in table_summary(files).partitions}
    assert not files.exists("data")


def test_a_table_of_layout_1_is_followed_read_and_replayed(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    old_task(files).put({"day=a%3Ab/a.parquet": parquet(1)}, 1, 1.0)
    assert enable(files, lambda: 1.0)
    new_task(files).put({"day=x/a.parquet": parquet(2)}, 1, 2.0)
    catch_up(files, lambda: 3.0)
    rows = [{"n": 1, "day": "a:b"}, {"n": 2, "day": "x"}]
    delta = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert sorted(delta, key=lambda row: row["n"]) == rows
    listed = duckdb.read_parquet(committed_files(tmp_path), hive_partitioning=True)
    assert sorted(listed.project("n, day").fetchall()) == [(1, "a:b"), (2, "x")]
    assert not (tmp_path / "data").exists() and not verify(files).strays


@pytest.mark.parametrize("first", ["old", "new"])
def test_the_first_of_two_releases_decides_the_layout_and_the_other_agrees_or_is_refused(
    tmp_path: Path, first: str
) -> None:
    files = LocalFiles(str(tmp_path))
    (old_task if first == "old" else new_task)(files)
    assert new_task(files, (3, 0)).table.layout == read_table(files).layout == (1 if first == "old" else 2)


@pytest.mark.parametrize("step", ["list", "check", "move", "publish", "look", "clear"])
def test_a_frozen_task_of_an_earlier_release_and_its_successor_agree_on_every_path(
    tmp_path: Path, step: str
) -> None:
    files = LocalFiles(str(tmp_path))
    old = old_task(files)
    name = old.next_name()
    for day in ("x", "y"):
        files.put_if_absent(f"{name.attempt(1)}/day={day}/a.parquet", parquet(1))
    frozen, thawed = threading.Event(), threading.Event()
    commit = BatchCommit(files, old.owner, name, 2, 1, data="", wall=lambda: 1.0)

    def at(now: str) -> None:
        if now == step:
            frozen.set()
            assert thawed.wait(60)

    def zombie() -> None:
        with suppress(Superseded):
            commit.run()
            commit.clear()

    commit.at = at
    thread = threading.Thread(target=zombie)
    thread.start()
    assert frozen.wait(60)
    new = new_task(files)
    assert new.owner.epoch == 2 and new.table.layout == 1
    sweep(files, new.owner.writer_id, 2)
    counted = read_state(files).counted
    entry = new.put({"day=x/a.parquet": parquet(2)}, 1, 2.0)
    thawed.set()
    thread.join()
    sweep(files, new.owner.writer_id, 2)
    assert {*counted, entry.batch} == read_state(files).counted.keys()
    assert (name in counted) == (step in ("look", "clear"))
    found = verify(files)
    assert not found.problems and not found.strays and found.files == len(counted) * 2 + 1
    assert not (tmp_path / "data").exists() and not files.list("_squall/staging")


@pytest.mark.parametrize("layout", [1, 2])
def test_rows_of_both_layouts_are_streamed_alike(tmp_path: Path, layout: int) -> None:
    files = LocalFiles(str(tmp_path))
    task = SinkTask(files, DDL, partition_by=["day"], layout=layout)
    task.put({"day=x/a.parquet": parquet(1), "day=a%3Ab/a.parquet": parquet(2)}, 2, 1.0)
    units = BatchUnits(CommittedRows(files.root, ["n", "day"]))
    units.open(context())
    [unit] = units.units(units.snapshot())
    rows = [row for _, _, row in units.items(unit, 0) if isinstance(row, tuple)]
    units.close()
    assert sorted(rows, key=repr) == [(1, "x"), (2, "a:b")]
