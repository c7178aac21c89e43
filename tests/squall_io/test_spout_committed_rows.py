"""Which batches CommittedRows reads, in which task and in which order, from the manifest alone: no Spark, no rows."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from squall.stores.files import FilesUnavailable, OpenStore
from squall_io.spark import CommittedRows
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.entries import encode_entry
from squall_io.spark.manifest.envelopes import seal
from squall_io.spark.manifest.layout import COMMITS, BatchName, claim_path
from squall_io.spark.manifest.state import UnreadableManifest, read_state
from squall_io.spark.manifest.tables import RESULTS, NoTable, TableRecord, open_table
from squall_io.spark.rows.partitions import partition_of
from squall_io.spark.spouts import committed_rows
from squall_io.spark.spouts.committed_rows import BatchUnits, CannotStream
from squall_io.spark.spouts.positions import owner_of
from squall_io.spark.spouts.reading_spout import ReadingTask
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from topology_api import Context, InvalidConfig

DDL = "word string, count bigint"


@pytest.fixture(autouse=True)
def packages_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests read no rows, so they need no reader."""
    monkeypatch.setattr(committed_rows, "require_packages", lambda: None)


@pytest.fixture
def files(tmp_path: Path) -> OpenStore:
    return open_files(str(tmp_path / "table"))


def context(index: int = 0, parallelism: int = 1, submission: str = "reader-1") -> Context:
    nothing = cast(Any, None)
    return Context(
        topology="reader", topology_id=submission, component="rows", task=1, index=index, parallelism=parallelism,
        conf={}, tasks=lambda component: [], log=logging.getLogger("task"), metrics=nothing, resources={},
        directory=lambda: "", now=lambda: 0.0, random=random.Random(0), wake=lambda: None,
    )  # fmt: skip


def units_of(files: OpenStore, index: int = 0, parallelism: int = 1, **arguments: Any) -> BatchUnits:
    units = BatchUnits(CommittedRows(files.root, ["word", "count"], **arguments))
    units.open(context(index, parallelism))
    return units


def put(task: SinkTask, committed: float) -> str:
    return str(task.put({"part.parquet": f"{committed}".encode()}, committed=committed).batch)


def test_batches_come_in_the_order_of_their_commits_from_every_committer(files: OpenStore) -> None:
    one, other = SinkTask(files, DDL, index=0), SinkTask(files, DDL, index=1)
    names = [put(one, 10), put(other, 5), put(one, 20), put(other, 15)]
    units = units_of(files)
    read = [units.name(unit) for unit in units.units(units.snapshot())]
    assert read == [names[1], names[0], names[3], names[2]]


def test_later_commits_than_the_snapshot_are_not_read_unless_the_table_is_followed(
    files: OpenStore,
) -> None:
    task = SinkTask(files, DDL)
    first = put(task, 1)
    units = units_of(files)
    snapshot = units.snapshot()
    second = put(task, 2)
    later = units_of(files)
    assert [later.name(unit) for unit in later.units(snapshot)] == [first]
    assert later.more() is None
    follower = units_of(files, follow=True, poll_interval=0.3)
    assert [follower.name(unit) for unit in follower.units(follower.snapshot())] == [first, second]
    assert follower.more() == ([], 0.3)
    third = put(task, 3)
    found = follower.more()
    assert found is not None and third in {follower.name(unit) for unit in found[0]}


def test_a_resubmitted_topology_also_reads_the_batches_that_have_come_since(
    files: OpenStore, tmp_path: Path
) -> None:
    def begun(submission: str) -> set[object]:
        units = BatchUnits(CommittedRows(files.root, ["word"]))
        ReadingTask(units, context(submission=submission), str(tmp_path / "positions")).start()
        return {units.name(unit) for unit in units._entries}

    task = SinkTask(files, DDL)
    first = put(task, 1)
    assert begun("reader-1") == {first}
    second = put(task, 2)
    assert begun("reader-1") == {first}, "its worker was started again"
    assert begun("reader-2") == {first, second}


def test_a_batch_that_went_into_a_checkpoint_before_the_first_look_is_still_read(
    files: OpenStore,
) -> None:
    task = SinkTask(files, DDL)
    follower = units_of(files, follow=True)
    assert list(follower.units(follower.snapshot())) == []
    name = put(task, 1)
    state = read_state(files)
    assert write_next(files, state.checkpoint, state.uncovered)
    for status in files.list(COMMITS):
        files.delete(status.path)
    found = follower.more()
    assert found is not None and [follower.name(unit) for unit in found[0]] == [name]
    assert found[1] == committed_rows.POLL_SECONDS


def test_only_batches_of_the_span_are_read(files: OpenStore) -> None:
    task = SinkTask(files, DDL)
    names = [put(task, at) for at in (10, 20, 30, 40)]
    units = units_of(files, since=20, until=40)
    assert [units.name(unit) for unit in units.units(units.snapshot())] == names[1:3]
    assert units.reads == f"{files.root} since 20.0 until 40.0"


def test_a_batch_whose_rows_were_merged_into_another_is_read_unchanged_and_not_again(
    files: OpenStore,
) -> None:
    task = SinkTask(files, DDL)
    names = [put(task, 1), put(task, 2)]
    moved = replace(
        read_state(files).entries[0],
        batch=BatchName(task.owner.writer_id, 1, 3),
        committed=3.0,
        replaces=(names[0],),
    )
    assert files.put_if_absent(moved.batch.commit, encode_entry(moved))
    units = units_of(files)
    assert [units.name(unit) for unit in units.units(units.snapshot())] == names


def test_a_task_keeps_the_batches_that_it_reads_and_no_others(files: OpenStore) -> None:
    task = SinkTask(files, DDL)
    for at in range(9):
        put(task, at)
    kept = []
    for index in range(2):
        units = units_of(files, index, 2)
        units.units(units.snapshot())
        kept.append(set(units._entries))
        assert all(owner_of(unit, 2) == index for unit in kept[-1])
    assert len(kept[0] | kept[1]) == 9 and not kept[0] & kept[1]


def test_the_reader_waits_where_it_is_not_decided_yet_which_batches_count(
    files: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = SinkTask(files, DDL)
    put(task, 1)
    claim = seal("claim", {"incarnation": [2, 0], "owner": "another", "since": 1.0})
    assert files.put_if_absent(claim_path(task.owner.writer_id, 2), claim)
    units = units_of(files)

    def undecided(files: OpenStore) -> Any:
        state = read_state(files)
        return state.__class__(**{**vars(state), "uncertain": (state.entries[0].batch,)})

    monkeypatch.setattr(committed_rows, "read_state", undecided)
    with pytest.raises(FilesUnavailable, match="is not decided"):
        units.snapshot()
    monkeypatch.undo()
    assert units.snapshot() == {"batches": {f"{task.owner.writer_id}.1": [[1, 1]]}}


def test_a_partly_unreadable_manifest_is_refused_and_named(files: OpenStore) -> None:
    task = SinkTask(files, DDL)
    put(task, 1)
    name = put(task, 2)
    files.replace(f"{COMMITS}/{name}.json", b"{")
    with pytest.raises(UnreadableManifest, match=f"{name}.json is truncated"):
        units_of(files).snapshot()


def test_a_table_that_has_lost_batches_of_the_snapshot_is_reported(files: OpenStore) -> None:
    task = SinkTask(files, DDL)
    put(task, 1)
    name = put(task, 2)
    snapshot = units_of(files).snapshot()
    files.delete(f"{COMMITS}/{name}.json")
    with pytest.raises(CannotStream, match="has lost 1 of the batches"):
        units_of(files).units(snapshot)


def test_a_path_without_a_table_and_an_unknown_column_are_reported_at_the_start(
    files: OpenStore,
) -> None:
    spout = CommittedRows(files.root, ["word", "cuont"])
    with pytest.raises(NoTable):
        BatchUnits(spout).open(context())
    SinkTask(files, DDL)
    with pytest.raises(
        CannotStream, match=r"no column 'cuont' \(it has word string.*\); did you mean 'count'\?$"
    ):
        BatchUnits(spout).open(context())


def test_a_reprocessed_result_is_no_stream(files: OpenStore) -> None:
    open_table(files, TableRecord(RESULTS, "parquet", ()))
    with pytest.raises(CannotStream, match="versions of a result"):
        BatchUnits(CommittedRows(files.root, ["word"])).open(context())


def test_all_mistakes_in_the_arguments_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        CommittedRows(
            "table",
            ["word", "word", ""],
            since="yesterday",
            follow="yes",  # type: ignore[arg-type]
            poll_interval=float("nan"),
            positions="here",
            replay=3,  # type: ignore[arg-type]
        )
    assert len(caught.value.problems) == 8
    for part in (
        "'table'",
        "is empty",
        "only once",
        "'yesterday'",
        "'yes'",
        "nan (float)",
        "'here'",
        "3 (int)",
    ):
        assert part in str(caught.value)


def test_the_values_of_partitions_come_from_the_names_of_folders() -> None:
    path = "Day=2026-11-21/who%3D%2Fwhat=a%20b%25/squall-x-00000.parquet"
    assert partition_of(path) == {"day": "2026-11-21", "who=/what": "a b%"}
    assert partition_of("squall-x=y-00000.parquet") == {}
