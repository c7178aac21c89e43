"""What a Spark sink stages for an epoch and shows after its commit: steps, errors, leftovers, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from squall.stores.files import FilesRefused, FilesUnavailable
from squall_io.files import FileSpout
from squall_io.spark import SparkSink
from squall_io.spark.manifest import state as table_state
from squall_io.spark.manifest.commit import BatchConflict, BatchLost
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.manifest.entries import BatchEntry, encode_entry
from squall_io.spark.manifest.epochs import (
    Shower,
    drop_part,
    list_part,
    new_part,
    put_part,
    show_epoch,
    sweep_parts,
    sweep_temporary,
)
from squall_io.spark.manifest.layout import (
    DATA,
    REWRITER,
    STAGING,
    TMP,
    BatchName,
    batch_of,
    epoch_batch,
    safe,
)
from squall_io.spark.manifest.state import checkpoint_if_due, read_state
from squall_io.spark.manifest.sweep import TMP_AGE
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, oldest_schema_for, open_table
from squall_io.spark.retention.vacuum import vacuum
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.sink.epoch_writer import EpochWriter
from squall_io.spark.sink.errors import NotCommitted
from squall_io.spark.spouts.positions import Unit
from tests.squall_io.memory_files import MemoryFiles, Step
from tests.squall_io.sink_world import SinkWorld, gated
from topology_api import TopologyBuilder
from topology_api.epoch_rules import epoch_secs
from topology_api.guarantees import guarantees

LINEAGE = "0123456789abcdef"
BY = Shower("words", "words-1", "store", (1, 0))


def batch(epoch: int, component: str = "store") -> BatchName:
    return epoch_batch(LINEAGE, component, epoch)


def staged(files: MemoryFiles, epoch: int, index: int = 0, topology_id: str = "words-1") -> str:
    """Stage a part of two files."""
    name = new_part(index)
    for day in (1, 2):
        files.replace(
            f"{batch(epoch).attempt(name)}/day={day}/part-0.snappy.parquet", f"{name} {day}".encode()
        )
    put_part(files, batch(epoch), list_part(files, batch(epoch), name, topology_id, 1, 2, data=DATA))
    return name


def shown(files: MemoryFiles, epoch: int, name: str) -> bool:
    return show_epoch(files, batch(epoch), name, BY, wall=lambda: 1_700_000_000.0).made


def entries(files: MemoryFiles) -> list[BatchEntry]:
    return list(read_state(files).entries)


def staging(files: MemoryFiles) -> list[str]:
    return sorted(path for path in files.store.files if path.startswith(f"{STAGING}/"))


def test_the_rows_of_all_tasks_are_one_batch_which_the_first_task_shows() -> None:
    files = MemoryFiles()
    parts = [staged(files, 7, index) for index in (0, 1, 5)]
    assert entries(files) == []
    assert [shown(files, 7, part) for part in reversed(parts)] == [True, False, False]
    [entry] = entries(files)
    assert (entry.batch, entry.rows, entry.topology, entry.component) == (batch(7), 6, "words", "store")
    assert {files.read(file.path).decode() for file in entry.files} == {
        f"{part} {day}" for part in parts for day in (1, 2)
    }
    assert {file.path.rpartition("/")[0] for file in entry.files} == {"data/day=1", "data/day=2"}
    assert staging(files) == []


def test_an_epoch_that_a_checkpoint_has_taken_over_is_not_shown_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_state, "DUE", 1)
    files = MemoryFiles()
    parts = [staged(files, 7, index) for index in (0, 1)]
    assert shown(files, 7, parts[0])
    before = entries(files)
    assert checkpoint_if_due(files) and not files.exists(batch(7).commit)
    assert not shown(files, 7, parts[1])
    assert not shown(files, 7, parts[0])
    assert entries(files) == before


def test_a_task_that_was_frozen_finds_rows_that_a_vacuum_has_deleted_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_state, "DUE", 1)
    files = MemoryFiles()
    open_table(files, TableRecord(ROWS, "parquet", ("day",)))
    files.store.clock = 2e9
    name = staged(files, 7)

    def meanwhile(step: str) -> None:
        """Another process shows the epoch, its rows are moved, and a vacuum deletes its files."""
        if step != "move":
            return
        assert shown(files, 7, name)
        [entry] = entries(files)
        moved = replace(entry, batch=BatchName(REWRITER, 1, 1), files=(), replaces=(str(entry.batch),))
        assert files.put_if_absent(moved.batch.commit, encode_entry(moved)) and checkpoint_if_due(files)
        assert vacuum(files, 0.0, "a test", lambda: 2e9).files == 2

    show_epoch(files, batch(7), name, BY, lambda: 1_700_000_000.0, at=meanwhile)
    state = read_state(files)
    assert batch(7) in state.counted and [entry.batch for entry in state.replaced] == [batch(7)]


def test_rows_that_were_removed_are_an_error_that_names_them() -> None:
    files = MemoryFiles()
    first, second = staged(files, 7), staged(files, 8)
    files.delete(batch(7).staging)
    with pytest.raises(
        BatchLost, match=r"state~~0123456789abcdef\.store\.0\.1\.7/0\.json is gone, and the batch is not in"
    ):
        shown(files, 7, first)
    files.delete(f"{batch(8).attempt(second)}/day=1")
    with pytest.raises(
        BatchLost,
        match=r"day=1/part-0\.snappy\.parquet is gone, and there is no .*committed rows were removed",
    ):
        shown(files, 8, second)
    assert entries(files) == []


def test_other_rows_of_the_epoch_are_an_error_that_says_what_to_do() -> None:
    files = MemoryFiles()
    assert shown(files, 7, staged(files, 7))
    again = staged(files, 7)
    with pytest.raises(BatchConflict, match=r"its folder is an older copy\. Give the sink another table"):
        shown(files, 7, again)
    assert len(entries(files)) == 1


def test_parts_of_another_submission_are_not_shown() -> None:
    """An older copy of the state may stage an epoch that was void before."""
    files = MemoryFiles()
    staged(files, 7, 1, topology_id="words-0")
    part = staged(files, 7)
    assert shown(files, 7, part)
    assert [entry.rows for entry in entries(files)] == [2]


@pytest.mark.parametrize("path", ["../outside", "_squall/staging/other"])
def test_a_forged_record_moves_nothing(path: str) -> None:
    files = MemoryFiles()
    name = staged(files, 7)
    record = list_part(files, batch(7), name, "words-1", 1, 2, data=DATA)
    forged = type(record.files[0])(path, record.files[0].path, 1, "sha256:0")
    put_part(files, batch(7), type(record)(name, "words-1", 1, 2, (forged,)))
    with pytest.raises(Exception, match="is forged"):
        shown(files, 7, name)


def test_a_void_part_is_deleted_and_the_others_stay() -> None:
    files = MemoryFiles()
    void, other = staged(files, 7), staged(files, 7, 1)
    for _ in range(2):
        drop_part(files, batch(7), void)
    assert len(staging(files)) == 3 and all(
        f"/{other}/" in path or path.endswith("/1.json") for path in staging(files)
    )


def test_a_part_that_was_staged_again_stays_when_the_first_one_is_dropped() -> None:
    files = MemoryFiles()
    void, good = staged(files, 7), staged(files, 7)
    drop_part(files, batch(7), void)
    assert shown(files, 7, good)
    assert entries(files)[0].rows == 2


def test_leftovers_of_earlier_epochs_are_deleted_by_the_tasks_that_may_know() -> None:
    files = MemoryFiles()
    parts = {(epoch, index): staged(files, epoch, index) for epoch in (5, 6, 8, 9) for index in (0, 1, 2, 3)}
    others = [
        batch_of_other.attempt("0~1")
        for batch_of_other in (batch(5, "store2"), epoch_batch("f" * 16, "store", 5))
    ]
    for other in others:
        files.replace(f"{other}/part-0.parquet", b"theirs")
    assert shown(files, 8, parts[8, 0])
    sweep_parts(files, batch(8), 0, 2)
    left = {path for path in staging(files) if path.startswith(f"{batch(5).staging}/")}
    assert {path.split("/")[3].partition("~")[0].partition(".")[0] for path in left} == {"1", "3"}
    sweep_parts(files, batch(8), 1, 2)
    assert {path.split("/")[2] for path in staging(files)} == {
        str(batch(9)),
        *(other.split("/")[2] for other in others),
    }
    assert batch(6).staging not in files.store.folders


def test_who_sees_only_the_table_deletes_no_part(world: SinkWorld) -> None:
    """It may be committed, and its topology may be started again next year."""
    files = MemoryFiles(world.store)
    part = staged(files, 7)
    life = world.life()
    life.open()
    life.tidy(life.commit(world.rows(3)))
    before = staging(files)
    files.store.clock += 10 * TMP_AGE
    sweep_ended(files, find_leftovers(files, 0.0), "squall table --sweep", 0.0)
    world.life(incarnation=(2, 0)).open()
    assert staging(files) == before
    assert shown(files, 7, part)
    assert sorted(entry.rows for entry in entries(files)) == [2, 3]


def test_old_temporary_files_are_deleted_and_new_ones_stay() -> None:
    files = MemoryFiles()
    files.replace(f"{TMP}/0.json.0123", b"old")
    files.store.clock += 2 * TMP_AGE
    files.replace(f"{TMP}/{batch(7)}.json.0123", b"new")
    sweep_temporary(files)
    assert [path for path in files.store.files if path.startswith(TMP)] == [f"{TMP}/{batch(7)}.json.0123"]


def test_names_of_epochs_are_those_of_no_topology() -> None:
    assert batch_of(f"{batch(7)}.json") == batch(7)
    assert batch_of(batch(7).data_file(new_part(3), 0, ".snappy.parquet")) == batch(7)
    for name in ("state~~" + LINEAGE, "state", "state" + "x" * 80, "state~"):
        assert safe(name) != batch(7).writer_id.topology_id
    assert Unit(f"{batch(7).writer_id}.1", 7) != Unit(f"{batch(8).writer_id}.1", 8)


def test_all_tasks_of_a_sink_write_with_one_schema_whatever_others_add() -> None:
    files = MemoryFiles()
    wanted = parse_schema("word string, count bigint")
    first = agree_on_schema(files, wanted)
    wider = agree_on_schema(files, parse_schema("word string, count bigint, at timestamp"))
    assert oldest_schema_for(files, wanted, agree_on_schema(files, wanted)) == first
    assert oldest_schema_for(files, wider.schema, wider) == wider


@pytest.mark.parametrize(
    ("conf", "level"), [({"topology.state.path": "file:///s"}, "exactly-once"), ({}, "at-least-once")]
)
def test_squall_explain_knows_that_each_row_is_there_once(conf: dict[str, str], level: str) -> None:
    builder = TopologyBuilder("lines")
    builder.set_spout("lines", FileSpout("/lines.txt"))
    sink = SparkSink("/table", "line string", batch_interval=60)
    builder.set_bolt("store", sink, parallelism=2).shuffle_grouping("lines")
    topology = builder.build()
    found = guarantees(topology, conf)
    assert ([pair.level for pair in found.pairs], found.refused) == ([level], ())
    assert epoch_secs(topology, {"topology.epoch.secs": None}) == 60


# A task of the sink.


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
    return SinkWorld(monkeypatch)


def opened(world: SinkWorld, index: int = 0, parallelism: int = 1) -> EpochWriter:
    writer = world.epoch_life(index=index, parallelism=parallelism)
    writer.open()
    world.steps.clear()
    return writer


STEPS = ["write", "list", "record", "parts", "move", "publish", "clear", "sweep"]


def test_an_epoch_goes_through_its_steps_and_leaves_nothing_else(world: SinkWorld) -> None:
    writer = opened(world)
    part = writer.stage(LINEAGE, 7, world.rows(3))
    assert world.state().entries == ()
    assert writer.show(LINEAGE, 7, part)
    assert world.steps == [*STEPS, "checkpoint"]
    [entry] = world.state().entries
    assert (entry.batch, entry.rows, entry.schema, entry.incarnation) == (batch(7), 3, 1, (1, 0))
    assert world.left() == set()
    assert world.state().claims.claims == frozenset()
    writer.close()


@pytest.mark.parametrize("done", [False, True], ids=["not done", "answer lost"])
def test_an_unavailable_store_at_any_call_is_waited_for(monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    after = 0
    while True:
        world = SinkWorld(monkeypatch)
        writer = opened(world)
        calls = 0

        def gate(step: Step, effect: Callable[[], Any], after: int = after) -> Any:
            nonlocal calls
            calls += 1
            if calls == after + 1:
                if done:
                    effect()
                raise FilesUnavailable(f"{step.call} {step.path}: away")
            return effect()

        with gated(world, gate):
            writer.show(LINEAGE, 7, writer.stage(LINEAGE, 7, world.rows(2)))
        assert [entry.rows for entry in world.state().entries] == [2], f"away after {after} calls"
        assert {path for path in world.left() if not path.startswith(f"{TMP}/")} == set()
        if calls <= after:
            break
        after += 1
    assert after > 12


@pytest.mark.parametrize("step", STEPS)
def test_a_task_killed_at_any_step_leaves_the_epoch_to_another(world: SinkWorld, step: str) -> None:
    class Killed(BaseException):
        pass

    def at(now: str) -> None:
        if now == step:
            world.at = lambda step: None
            raise Killed

    other = opened(world, 1, 2).stage(LINEAGE, 7, world.rows(1))
    writer = opened(world, 0, 2)
    world.at = at
    part = ""
    with pytest.raises(Killed):
        part = writer.stage(LINEAGE, 7, world.rows(2))
        writer.show(LINEAGE, 7, part)
    heir = opened(world)
    if not part:  # epoch 7 is void, and 8 has all rows
        rows = [("0", heir.stage(LINEAGE, 8, world.rows(3)))]
        assert heir.show(LINEAGE, 8, rows[0][1])
    else:
        heir.show(LINEAGE, 7, part)
        heir.show(LINEAGE, 7, other)
        heir.show(LINEAGE, 8, heir.stage(LINEAGE, 8, world.rows(1)))
    assert sum(entry.rows for entry in world.state().entries) == (3 if not part else 4)
    assert world.left() == set()


def test_a_call_that_is_refused_raises_and_goes_on_with_the_same_part(world: SinkWorld) -> None:
    writer = opened(world)

    def at(step: str) -> None:
        if step in ("record", "publish"):
            world.at = lambda step: None
            raise FilesRefused("cannot write it: no permission")

    world.at = at
    with pytest.raises(
        NotCommitted, match=r"2 rows of batch .*store\.0\.1\.7 are not staged in memory.*: no permission"
    ):
        writer.stage(LINEAGE, 7, world.rows(2))
    jobs = len(world.written)
    part = writer.stage(LINEAGE, 7, world.rows(2))
    assert len(world.written) == jobs
    world.at = at
    with pytest.raises(NotCommitted, match=r"batch .*store\.0\.1\.7 is not in memory.*: no permission"):
        writer.show(LINEAGE, 7, part)
    assert writer.show(LINEAGE, 7, part)
    assert [entry.rows for entry in world.state().entries] == [2]


def test_a_failed_job_is_repeated_elsewhere_and_a_dead_spark_is_replaced(world: SinkWorld) -> None:
    writer = opened(world)
    world.spark_trouble = [ConnectionError("an executor is gone")] * 2
    writer.show(LINEAGE, 7, writer.stage(LINEAGE, 7, world.rows(2)))
    assert len(set(world.written[-3:])) == 3
    for step in STEPS[:3]:

        def at(now: str, step: str = step) -> None:
            if now == step:
                world.at = lambda step: None
                world.dead.add(world.sessions[-1])

        world.at = at
        epoch = 8 + STEPS.index(step)
        writer.show(LINEAGE, epoch, writer.stage(LINEAGE, epoch, world.rows(2)))
    assert [entry.rows for entry in world.state().entries] == [2] * 4
    assert all(len(entry.files) == 1 for entry in world.state().entries)
    assert world.left() == set()


def test_a_task_that_returns_to_the_last_commit_stops_waiting(world: SinkWorld) -> None:
    writer = opened(world)

    def at(step: str) -> None:
        world.context.stopped = True
        raise FilesUnavailable("away")

    world.at = at
    with pytest.raises(NotCommitted, match=r"are not staged in .*: away; its worker ends"):
        writer.stage(LINEAGE, 7, world.rows(2))


def test_a_void_epoch_is_dropped(world: SinkWorld) -> None:
    writer = opened(world)
    part = writer.stage(LINEAGE, 7, world.rows(2))
    writer.drop(LINEAGE, 7, part)
    assert world.left() == set()


def test_a_failed_cleanup_is_logged_and_the_epoch_is_there(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    writer = opened(world)
    part = writer.stage(LINEAGE, 7, world.rows(2))

    def at(step: str) -> None:
        if step == "sweep":
            raise FilesUnavailable("away")

    world.at = at
    with caplog.at_level(logging.WARNING):
        writer.show(LINEAGE, 7, part)
    assert "is committed, but clearing up after it failed: away" in caplog.text
    assert [entry.rows for entry in world.state().entries] == [2]


def test_checkpoints_are_made_now_and_then(world: SinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "DUE", 10)
    writer = opened(world)
    for epoch in range(1, 42):
        writer.show(LINEAGE, epoch, writer.stage(LINEAGE, epoch, world.rows(1)))
    assert world.steps.count("checkpoint") == 3
    assert (len(world.state().entries), world.state().checkpoint.number) == (41, 2)
