"""The thread of a sink that compacts its table: its rounds, played without the thread; and sinks that have one."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow
import pytest
from deltalake import DeltaTable

from local_cluster import LocalCluster
from squall.stores.files import Files, FilesUnavailable
from squall.stores.local import LocalFiles
from squall_io.spark import SparkSink
from squall_io.spark.compaction.compacting import compact
from squall_io.spark.compaction.parquet_merges import merge_parquet
from squall_io.spark.delta.comparing import compare_log
from squall_io.spark.delta.following import enable
from squall_io.spark.manifest import rewriting
from squall_io.spark.manifest.claims import list_claims
from squall_io.spark.manifest.holders import Holder, Myself
from squall_io.spark.manifest.layout import COMMITS, REWRITER, STAGING
from squall_io.spark.manifest.rewriting import Wanted
from squall_io.spark.manifest.state import read_state
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.sink import compactor
from squall_io.spark.sink.compactor import LONGEST, LOOK, SinkCompactor
from squall_io.spark.sink.settings import SinkSettings
from squall_io.spark.sink.sink_writer import SinkWriter
from tests.local_cluster.words_with_state import Count, Words, words_to_rows
from tests.spark.batches import SinkTask
from tests.squall_io.baton import Killed
from tests.squall_io.compacted_tables import DDL, data_files, drop_replaced, put, rows_by_batch
from tests.squall_io.sink_without_spark import without_spark
from topology_api import Context

STEPS = ("claim", "sweep", "write", "list", "check", "move", "publish", "look", "end", "checkpoint", "delta")


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine does not fail in these tests."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def a_table(root: Path, batches: int = 6) -> tuple[LocalFiles, SinkTask]:
    """A table with a file of each batch in each of two directories, and a Delta log."""
    files = LocalFiles(str(root))
    task = SinkTask(files, DDL, partition_by=["day"])
    enable(files, lambda: 0.0)
    for number in range(batches):
        put(task, 10.0 + number)
    return files, task


def compactor_of(
    files: Files,
    limit: int = 5,
    at: Callable[[str], None] = lambda step: None,
    whose: str = "a sink",
    me: Myself = Myself(),  # noqa: B008 - it is frozen
) -> tuple[SinkCompactor, list[int]]:
    """A compactor without its thread, and what it counts."""
    counted: list[int] = []
    made = SinkCompactor(
        lambda: files, "data", limit, whose, logging.getLogger("test"), counted.append, me=me, at=at
    )
    return made, counted


def small(files: Files) -> dict[str, int]:
    """How many files each directory has in the manifest."""
    found: dict[str, int] = {}
    for entry in read_state(files).entries:
        for file in entry.files:
            found[file.directory] = found.get(file.directory, 0) + 1
    return found


def is_followed(files: Files) -> bool:
    """Whether the Delta log has what the manifest has."""
    log = compare_log(files)
    return log is not None and not log.lacks


def test_the_files_of_a_crowded_directory_become_one_and_readers_see_no_difference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files, task = a_table(tmp_path, batches=5)
    kept, counted = compactor_of(files)
    assert kept.round() == LOOK and counted == [] and small(files) == {"data/day=a": 5, "data/day=b": 5}
    assert not list_claims(files).newest(REWRITER)  # a look alone leaves nothing in the table
    put(task, 20.0, days=("a",))
    before = rows_by_batch(files)
    assert kept.round() == LOOK
    # The other directory is not crowded: its files stay.
    assert counted == [6] and small(files) == {"data/day=a": 1, "data/day=b": 5}
    assert "compacted 6 files of 6 batches into 1, " in caplog.text
    drop_replaced(files)
    assert rows_by_batch(files) == before and is_followed(files)
    rows = sorted(row[0] for found in before.values() for _, _, row in found)
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist()) == rows


def test_all_compactions_of_a_task_have_one_claim(tmp_path: Path) -> None:
    files, task = a_table(tmp_path)
    kept, counted = compactor_of(files)
    kept.round()
    for number in range(12):
        put(task, 20.0 + number)
        before = rows_by_batch(files)
        kept.round()
        assert rows_by_batch(files) == before
    assert len(counted) > 2 and max(small(files).values()) <= 5
    assert list_claims(files).newest(REWRITER) == 1 and not files.list(STAGING)
    drop_replaced(files)
    assert rows_by_batch(files) == before and data_files(tmp_path) == {
        path for entry in read_state(files).entries for path in entry.paths
    }


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_is_killed_at_any_step_loses_nothing_and_the_next_one_goes_on(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, task = a_table(tmp_path)
    before = rows_by_batch(files)

    def die(at: str) -> None:
        if at == step:
            raise Killed

    with pytest.raises(Killed):
        compactor_of(files, at=die)[0].round()
    assert rows_by_batch(files) == before
    following, counted = compactor_of(files)
    if step in ("sweep", "write", "list", "check", "move", "publish"):
        assert following.round() == LOOK and not counted  # the other one may be alive
    monkeypatch.setattr(rewriting, "QUIET", -1.0)
    for number in range(6):
        put(task, 30.0 + number)
    before = rows_by_batch(files)
    following.round()
    assert small(files) == {"data/day=a": 1, "data/day=b": 1} and is_followed(files)
    drop_replaced(files)
    assert rows_by_batch(files) == before
    assert data_files(tmp_path) == read_state(files).entries[0].paths


DEAD = Myself(Holder("another/machine/1/2", "words-1.store.0", (1, 0)))


@pytest.mark.parametrize(
    ("follows", "waits"),
    [
        (Holder("this/machine/1/2", "words-1.store.0", (1, 1)), False),
        (Holder("this/machine/1/2", "words-1.store.0", (1, 0)), True),
        (Holder("this/machine/1/2", "words-2.store.0", (1, 1)), True),
        (Holder(), True),
    ],
)
def test_a_task_does_not_wait_for_an_earlier_run_of_itself(
    tmp_path: Path, follows: Holder, waits: bool
) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)

    def die(at: str) -> None:
        if at == "publish":
            raise Killed

    with pytest.raises(Killed):
        compactor_of(files, at=die, me=DEAD)[0].round()
    following, counted = compactor_of(files, me=Myself(follows))
    following.round()
    assert counted == ([] if waits else [12]) and rows_by_batch(files) == before


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_ends_gives_a_compaction_up_and_leaves_no_work_to_others(
    tmp_path: Path, step: str
) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)

    def end(at: str) -> None:
        if at == step:
            kept.close()

    kept, counted = compactor_of(files, at=end)
    kept.round()
    assert rows_by_batch(files) == before and not files.list(STAGING)
    assert counted == (
        [12] if step in ("check", "move", "publish", "look", "end", "checkpoint", "delta") else []
    )
    following, rest = compactor_of(files)  # it need not wait
    following.round()
    assert counted + rest == [12] and rows_by_batch(files) == before
    drop_replaced(files)
    assert rows_by_batch(files) == before and len(data_files(tmp_path)) == 2


def test_a_long_merge_is_given_up_between_two_files(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    read: list[str] = []

    class Watched(LocalFiles):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            if path.endswith(".parquet"):
                read.append(path)
                kept.close()
            return super().read(path, offset, length)

    kept, counted = compactor_of(Watched(str(tmp_path)))
    assert kept.round() == 0.0
    assert len(read) == 1 and not counted and not files.list(STAGING)


@pytest.mark.parametrize("step", ["claim", "write", "check", "move", "publish", "look"])
def test_a_compaction_that_another_one_takes_over_is_tried_again_later(
    tmp_path: Path, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files, task = a_table(tmp_path)
    done: list[Any] = []

    def other(at: str) -> None:
        if at == step and not done:
            done.append(None)
            compact(files, Wanted(data="data"), merge_parquet, "a command", take_over=True)

    before = rows_by_batch(files)
    kept, counted = compactor_of(files, at=other)
    assert kept.round() == LOOK and rows_by_batch(files) == before
    if step not in ("claim", "publish", "look"):
        assert "compacts the table later: rewrite~~.table.0 was taken over by a command" in caplog.text
    for number in range(6):
        put(task, 30.0 + number)
    before = rows_by_batch(files)
    kept.round()
    assert counted and small(files) == {"data/day=a": 1, "data/day=b": 1}
    drop_replaced(files)
    assert rows_by_batch(files) == before
    assert data_files(tmp_path) == read_state(files).entries[0].paths


def test_sinks_of_two_topologies_on_one_table_do_not_disturb_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files, task = a_table(tmp_path)
    before = rows_by_batch(files)

    def meanwhile(at: str) -> None:
        if at == "write":
            assert second.round() == second.round() == LOOK

    first, one = compactor_of(files, at=meanwhile, whose="the first sink")
    second, two = compactor_of(LocalFiles(files.root), whose="the second sink")
    first.round()
    assert (one, two) == ([12], []) and rows_by_batch(files) == before
    assert caplog.text.count("this sink compacts the table later: another compaction is at work on") == 1
    assert "that of the first sink" in caplog.text
    for turn in range(1, 5):
        for number in range(7):
            put(task, 100.0 * turn + number)
        before = rows_by_batch(files)
        for each in (second, first) if turn % 2 else (first, second):
            each.round()
        assert rows_by_batch(files) == before
    assert len(one) == len(two) + 1 == 3
    drop_replaced(files)
    assert rows_by_batch(files) == before


def test_after_a_lost_answer_the_batch_counts_or_never_will(tmp_path: Path) -> None:
    files, _ = a_table(tmp_path)
    before = rows_by_batch(files)
    late: list[Callable[[], bool]] = []

    class Away(LocalFiles):
        """Its first entry of a rewriter is put by a server that has frozen, after all else."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(f"{COMMITS}/rewrite") and not late:
                late.append(lambda: super(Away, self).put_if_absent(path, data))
                raise FilesUnavailable("no answer")
            return super().put_if_absent(path, data)

    kept, counted = compactor_of(Away(str(tmp_path)))
    assert kept.round() == 2 * LOOK and not counted
    assert kept.round() == LOOK and counted == [12]
    assert list_claims(files).newest(REWRITER) == 2
    late[0]()
    assert rows_by_batch(files) == before and len(read_state(files).entries) == 1


def test_an_error_that_stays_is_logged_once_and_looked_for_less_and_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, _ = a_table(tmp_path)
    path = tmp_path / max(data_files(tmp_path))
    sound = path.read_bytes()
    path.write_bytes(sound[:-9] + b"x" + sound[-8:])
    kept, counted = compactor_of(files)
    pauses = [kept.round() for _ in range(8)]
    assert pauses == [120, 240, 480, 960, 1920, *[LONGEST] * 3]
    assert caplog.text.count("a compaction did not finish, and no row is lost: ") == 1
    assert f"{path.name} is damaged" in caplog.text
    assert list_claims(files).newest(REWRITER) == 1 and not files.list(STAGING)
    path.write_bytes(sound)
    assert kept.round() == LOOK and counted == [12]


def test_the_thread_compacts_and_ends_with_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = a_table(tmp_path)
    monkeypatch.setattr(compactor, "LOOK", 0.01)
    done = threading.Event()
    kept = SinkCompactor(
        lambda: files, "data", 5, "a sink", logging.getLogger("test"), lambda count: done.set()
    )
    kept.open()
    assert done.wait(60)
    kept.close()
    assert not kept._thread.is_alive() and small(files) == {"data/day=a": 1, "data/day=b": 1}


@pytest.mark.parametrize("with_epochs", [False, True])
def test_a_sink_compacts_its_table_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_epochs: bool
) -> None:
    without_spark(monkeypatch)
    made: list[SinkCompactor] = []
    monkeypatch.setattr(SinkCompactor, "open", lambda self: made.append(self))  # the test plays its rounds
    table = tmp_path / "table"
    sink = SparkSink(
        str(table), "word string, times bigint", batch_size=10, batch_interval=0.5, compact_after=3
    )
    conf = {"topology.state.path": f"file://{tmp_path}/state" if with_epochs else None}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words_to_rows(Words(120, 20), Count(), sink), conf)
        for _ in range(4):
            cluster.advance(15)
            made[0].round()
        cluster.advance(5)
        [metrics] = [
            each.metrics for each in cluster.status("words").components.values() if "batches" in each.metrics
        ]
        assert len(made) == 1  # of several tasks, the first one
    files = LocalFiles(str(table))
    state = read_state(files)
    originals = [entry for entry in state.counted.values() if not entry.replaces]
    assert sum(entry.rows for entry in state.entries) == metrics["rows"] == 120
    assert metrics["batches"] == len(originals) > 3
    assert metrics["files compacted"] >= sum(len(entry.files) for entry in originals) - 3
    assert small(files)["data"] <= 3 and is_followed(files)
    assert not files.list(STAGING)


def test_a_batch_that_is_compacted_before_its_turn_in_the_delta_log_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    monkeypatch.setattr(SinkCompactor, "open", lambda self: None)
    count = SimpleNamespace(add=lambda number: None)
    task = SimpleNamespace(
        topology="words", topology_id="words-1", component="store", index=0, parallelism=1, incarnation=(1, 0),
        log=logging.getLogger("test"), progress=lambda doing=None: None, stopped=False, counter=lambda name: count,
    )  # fmt: skip
    settings = SinkSettings(
        str(tmp_path), parse_schema("word string"), "parquet", (), None, None, {}, compact_after=2
    )
    writer = SinkWriter(settings, cast(Context, task), lambda step: None)
    writer.open()
    for word in "abcd":
        writer.tidy(writer.commit(pyarrow.table({"word": [word]})))
    assert writer._compactor is not None
    writer._compactor.round()
    writer.tidy(writer.commit(pyarrow.table({"word": ["e"]})))
    writer.close()  # which tells the log of all that waits
    files = LocalFiles(str(tmp_path))
    assert len(read_state(files).entries) == 2 and is_followed(files)
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["word"].to_pylist()) == list("abcde")
