"""A compaction of a table of Parquet files: readers find the same rows, whatever happens to it, and no other file is left."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from squall.stores.files import AbsentFile, Files, FilesError
from squall.stores.local import LocalFiles
from squall_io.lines.errors import UnreadableFile
from squall_io.spark import CommittedRows
from squall_io.spark.compaction import compacting, parquet_merges
from squall_io.spark.compaction.compacting import CannotCompact, Compacted, compact
from squall_io.spark.compaction.parquet_merges import CannotMerge, groups_of, merge_parquet
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.layout import STAGING, TMP
from squall_io.spark.manifest.rewriting import RewriterBusy, Wanted
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import RESULTS, TableRecord, open_table
from squall_io.spark.reading.summary import table_summary, verify
from squall_io.spark.spouts.committed_rows import BatchUnits
from tests.spark.batches import SinkTask
from tests.squall_io.baton import Killed
from tests.squall_io.compacted_tables import (
    DDL,
    context,
    data_files,
    drop_replaced,
    parquet,
    put,
    rows_by_batch,
)

WANTED = Wanted(data="data")
STEPS = ("claim", "sweep", "write", "list", "check", "move", "publish", "look", "end", "checkpoint", "delta")


def run(files: Files, wanted: Wanted = WANTED, **how: Any) -> Compacted:
    """Compact, as the command does."""
    return compact(files, wanted, merge_parquet, "a test", **how)


def a_table(root: Path, batches: int = 6) -> tuple[LocalFiles, SinkTask]:
    """A table with batches of two tasks, in which the later batch is sometimes that with the earlier time."""
    files = LocalFiles(str(root))
    tasks = [SinkTask(files, DDL, partition_by=["day"], index=index) for index in range(2)]
    enable(files, lambda: 0.0)
    for number in range(batches):
        put(tasks[number % 2], 10.0 + (number ^ 1), days=("a", "b") if number % 3 else ("b",))
    return files, tasks[0]


def test_a_reader_of_batches_finds_all_rows_at_their_positions_also_without_the_old_files(
    tmp_path: Path,
) -> None:
    files, task = a_table(tmp_path)
    before, rest = rows_by_batch(files), rows_by_batch(files, 4)
    done = run(files)
    assert (done.replaced, done.made, done.files_before, done.files_after, done.rows) == (6, 1, 10, 2, 30)
    for _ in range(2):
        assert rows_by_batch(files) == before and list(rows_by_batch(files)) == list(before)
        assert rows_by_batch(files, 4) == rest
        assert rows_by_batch(files, since=11.0, until=14.0) == dict(list(before.items())[1:4])
        drop_replaced(files)
    assert len(data_files(tmp_path)) == 2
    # A batch between those that were merged: the next compaction takes its rows from the middle of a file.
    put(task, 12.5)
    before = rows_by_batch(files)
    run(files)
    assert rows_by_batch(files) == before
    assert drop_replaced(files) == 4 and rows_by_batch(files) == before
    assert run(files) == Compacted()


def test_row_groups_of_any_size_are_read_and_merged_in_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_merges, "GROUP", 200)  # a few rows
    files, task = a_table(tmp_path)
    run(files)
    assert pq.read_metadata(tmp_path / min(data_files(tmp_path))).num_row_groups >= 1
    before = rows_by_batch(files)
    put(task, 11.5)
    before = rows_by_batch(files)
    run(files)
    [entry] = read_state(files).entries
    assert pq.read_metadata(tmp_path / entry.files[0].path).num_row_groups > 1
    drop_replaced(files)
    assert rows_by_batch(files) == before


def test_groups_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(parquet(list(range(10)), row_group_size=4))
    metadata = pq.read_metadata(tmp_path / "a")
    assert list(groups_of(metadata, 0, None)) == [(0, 0, 4), (1, 0, 4), (2, 0, 2)]
    assert list(groups_of(metadata, 3, 2)) == [(0, 3, 1), (1, 0, 1)]
    assert list(groups_of(metadata, 5, 0)) == [] and list(groups_of(metadata, 9, 1)) == [(2, 1, 1)]


def test_readers_of_the_delta_log_and_the_summary_see_what_they_saw(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    catch_up(files, lambda: 1.0)
    version, before = DeltaTable(tmp_path).version(), table_summary(files)
    rows = sorted(DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist())
    run(files)
    drop_replaced(files)
    found = DeltaTable(tmp_path)
    assert found.version() > version and sorted(found.to_pyarrow_table()["n"].to_pylist()) == rows
    assert sorted(polars.scan_delta(str(tmp_path)).collect()["n"].to_list()) == rows
    assert sorted(polars.scan_parquet(tmp_path / "data").collect()["n"].to_list()) == rows
    after = table_summary(files)
    assert before.stream and after.stream
    assert (after.rows, after.stream.batches, after.files) == (before.rows, before.stream.batches, 2)
    assert [each.rows for each in after.stream.writers] == [each.rows for each in before.stream.writers]
    assert (after.first_commit, after.last_commit) == (before.first_commit, before.last_commit)
    assert after.stream.delta is not None and not after.stream.delta.lacks
    assert verify(files).problems == () == verify(files).strays


def test_large_files_stay_and_small_ones_beside_them_are_merged(tmp_path: Path) -> None:
    files, task = a_table(tmp_path)
    large = [parquet(list(range(5000)), compression="none"), parquet([1])]
    task.put({"day=a/part-0.parquet": large[0], "day=b/part-1.parquet": large[1]}, 5001, 9.0)
    before = rows_by_batch(files)
    kept = {path for path in data_files(tmp_path) if (tmp_path / path).stat().st_size > 20_000}
    assert run(files, Wanted(20_000, data="data")).files_before == 11
    [entry] = read_state(files).entries
    assert kept < entry.paths and len(entry.files) == 3
    drop_replaced(files)
    assert rows_by_batch(files) == before


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_it_loses_nothing_and_the_next_one_finishes_and_clears_up(
    tmp_path: Path, step: str
) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)

    def die(at: str) -> None:
        if at == step:
            raise Killed

    with pytest.raises(Killed):
        run(files, at=die)
    assert rows_by_batch(files) == before
    if step in ("sweep", "write", "list", "check", "move", "publish"):
        with pytest.raises(
            RewriterBusy, match=r"another compaction is at work on .*: that of a test; its last sign"
        ):
            run(files)
    run(files, take_over=True)
    catch_up(files, lambda: 2.0)
    state = read_state(files)
    assert len(state.entries) == 1 and not state.abandoned
    assert rows_by_batch(files) == before
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist()) == sorted(
        row[0] for found in before.values() for _, _, row in found
    )
    drop_replaced(files)
    assert data_files(tmp_path) == state.entries[0].paths
    assert step in ("look", "end") or not [*files.list(STAGING), *files.list(TMP)]


def test_a_compaction_that_was_taken_over_stops_and_what_it_writes_late_does_not_count(
    tmp_path: Path,
) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)
    for step in ("claim", "write", "move", "publish"):
        late: list[Compacted] = []

        def other(at: str, step: str = step, late: list[Compacted] = late) -> None:
            if at == step and not late:
                late.append(run(files, take_over=True))

        put(SinkTask(files, DDL, partition_by=["day"], index=3, incarnation=(len(before), 0)), 40.0)
        before = rows_by_batch(files)
        if step == "claim":  # the other one has finished: nothing is left to do
            assert run(files, at=other) == Compacted()
        else:
            with pytest.raises(Superseded):
                run(files, at=other)
        assert rows_by_batch(files) == before
        assert len(read_state(files).entries) == 1
    run(files, take_over=True)
    drop_replaced(files)
    assert rows_by_batch(files) == before and data_files(tmp_path) == read_state(files).entries[0].paths


def test_beside_another_one_and_a_vacuum_it_says_who_has_taken_over(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)

    def others(at: str) -> None:
        if at == "write":
            run(files, take_over=True)
            assert drop_replaced(files)

    with pytest.raises(Superseded, match="was taken over by a test"):
        run(files, at=others)
    assert rows_by_batch(files) == before


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    lost = max(data_files(tmp_path))
    (tmp_path / lost).unlink()
    with pytest.raises(CannotMerge, match=f"a file of a committed batch is gone: .*{lost}.*--verify"):
        run(files)


def test_writers_go_on_meanwhile_and_a_reader_follows_to_the_moved_rows(tmp_path: Path) -> None:
    files, task = a_table(tmp_path)
    units = BatchUnits(CommittedRows(files.root, ["n"]))
    units.open(context())
    found = list(units.units(units.snapshot()))
    first = units.items(found[0], 0)
    assert next(first)[0] == 0
    run(files, at=lambda step: step == "move" and put(task, 50.0) and None)
    drop_replaced(files)
    later = [row for unit in found[1:] for _, _, row in units.items(unit, 0)]
    assert later == [(row[0],) for each in list(rows_by_batch(files).values())[1:-1] for _, _, row in each]
    assert len(rows_by_batch(files)) == 7


def test_a_damaged_file_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    path = tmp_path / max(data_files(tmp_path))
    sound = path.read_bytes()
    path.write_bytes(sound[:-9] + b"x" + sound[-8:])
    with pytest.raises(
        CannotMerge, match=rf"{path.name} is damaged: its \d+ bytes are not those that were committed"
    ):
        run(files)
    assert not read_state(files).replaced
    path.write_bytes(sound)
    task = SinkTask(files, DDL, partition_by=["day"], index=2)
    task.put({"day=a/a.parquet": parquet([1])}, rows=2)
    with pytest.raises(CannotMerge, match="has 1 rows in its files, and 2 were committed"):
        run(files, take_over=True)


def test_a_damaged_merged_file_is_not_read(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    run(files)
    [entry] = read_state(files).entries
    path = tmp_path / entry.files[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UnreadableFile, match="is damaged: its bytes are not those that were committed"):
        rows_by_batch(files)


def test_new_columns_are_null_in_older_rows_and_compression_stays(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    old = SinkTask(files, "n bigint, text string")
    old.put({"a.zstd.parquet": parquet([1], compression="zstd")})
    new = SinkTask(files, "n bigint, text string, more int", index=1)
    added = pq.read_table(tmp_path / min(data_files(tmp_path)))
    pq.write_table(added.append_column("more", [[7]]), tmp_path / "x", compression="zstd")
    new.put({"b.zstd.parquet": (tmp_path / "x").read_bytes()}, committed=1.0)
    run(files)
    [entry] = read_state(files).entries
    [file] = entry.files
    assert entry.schema == 2 and file.name.endswith("-00000.zstd.parquet")
    assert pq.read_table(tmp_path / file.path).to_pylist() == [
        {"n": 1, "text": "text 1", "more": None}, {"n": 1, "text": "text 1", "more": 7}
    ]  # fmt: skip
    metadata = pq.read_metadata(tmp_path / file.path)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert b"ARROW:schema" not in (metadata.metadata or {})


def test_a_table_of_results_is_refused(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    open_table(files, TableRecord(RESULTS, "parquet", ()))
    with pytest.raises(CannotCompact, match="each run writes all files anew"):
        compacting.require_compactable(files)


def test_a_new_file_is_uploaded_and_not_held_in_memory(tmp_path: Path) -> None:
    class Sparing(LocalFiles):
        def replace(self, path: str, data: bytes) -> None:
            assert len(data) < 1_000, f"{path} is in memory"
            super().replace(path, data)

    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)
    assert run(Sparing(files.root)).made and rows_by_batch(files) == before


def test_one_whose_files_a_later_one_has_swept_is_superseded(tmp_path: Path) -> None:
    class Swept(LocalFiles):
        def replace(self, path: str, data: bytes) -> None:
            if path.endswith("/alive"):
                run(files, Wanted(4_000, data="data"), take_over=True)
                raise AbsentFile(f"{path}: no such file")
            super().replace(path, data)

    files, _ = a_table(tmp_path, batches=20)
    before = rows_by_batch(files)
    with pytest.raises(Superseded):
        run(Swept(files.root), Wanted(4_000, data="data"), take_over=True)
    assert rows_by_batch(files) == before


def test_two_compactions_at_once_give_the_same_rows(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path, batches=20)
    before = rows_by_batch(files)
    outcomes: list[object] = []

    def once() -> None:
        try:
            outcomes.append(run(LocalFiles(files.root), Wanted(4_000, data="data"), take_over=True))
        except (
            Superseded,
            FilesError,
        ) as error:  # a later one may have swept what this one was about to claim
            outcomes.append(error)

    threads = [threading.Thread(target=once) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(isinstance(outcome, Compacted) for outcome in outcomes)
    run(files, take_over=True)
    assert rows_by_batch(files) == before
    drop_replaced(files)
    assert rows_by_batch(files) == before
