"""SparkSink with a real Spark, on local files: acked rows are in the table, once, and are read unchanged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from local_cluster import LocalCluster, bolt_run
from local_cluster.testing import Pause, run_bolt
from squall_io.spark import SparkSink, read_committed
from squall_io.spark.manifest.claims import list_claims, take_over
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import read_state
from squall_io.spark.sink import bolt as sink
from squall_io.spark.sink.compactor import SinkCompactor
from squall_io.spark.stores import open_files
from topology_api import Bolt, Fields, Spout, TopologyBuilder, TopologyFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMA = "word string, count bigint NOT NULL"
FIELDS = ("word", "count")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is slow on a busy machine."""
    monkeypatch.setattr(bolt_run, "TIMEOUT", 250.0)


def rows_of(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, read_committed(spark, str(path)).collect()), key=repr)


def leftovers(path: Path) -> list[Path]:
    """Data files that no entry names, and staging folders."""
    with open_files(str(path)) as files:
        named = {file.path for entry in read_state(files).entries for file in entry.files}
    data = {str(each.relative_to(path)) for each in path.rglob("squall-*") if "_squall" not in each.parts}
    return sorted(Path(each) for each in data - named) + sorted((path / STAGING).glob("*"))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "json", "csv"])
def test_rows_of_a_batch_are_in_the_table_in_each_format(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    given = [("a", 1, "x/y"), (None, 2, None), ("", -3, "x/y"), ('q"u\no\\te', 4, "é")]
    bolt = SparkSink(
        str(tmp_path), "word string, count bigint, part string", file_format, partition_by="part"
    )
    run = run_bolt(bolt, given, source_fields=("word", "count", "part"))
    assert run.acked() == given and not run.errors
    assert rows_of(spark, tmp_path) == sorted(given, key=repr)
    assert leftovers(tmp_path) == []
    if file_format == "parquet":
        read = DeltaTable(tmp_path).to_pyarrow_table().select(["word", "count", "part"]).to_pylist()
        assert sorted(map(tuple, (row.values() for row in read)), key=repr) == sorted(given, key=repr)
    else:
        assert not (tmp_path / "_delta_log").exists()


def test_rows_that_do_not_fit_fail_individually_and_the_others_are_stored(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sink, "SLICE", 2
    )  # one with a good row and a bad one, one without a good one, one more
    good = [("a", 1), ("b", 2**63 - 1)]
    bad = [("c", None), ("d", "4"), (5, 5), ("e", 2**63)]
    run = run_bolt(SparkSink(str(tmp_path), SCHEMA), [good[0], *bad, good[1]], source_fields=FIELDS)
    assert run.acked() == good
    assert [(given, failure.error) for given, failure in run.failed()] == [
        (("c", None), "field 'count': None, where NOT NULL is declared"),
        (("d", "4"), "field 'count': '4' (str) is not a valid bigint"),
        ((5, 5), "field 'word': 5 (int) is not a valid string"),
        (("e", 2**63), run.failed()[3][1].error),
    ]
    assert "9223372036854775808" in str(run.failed()[3][1].error)
    assert not run.errors  # they are not reported one by one
    assert rows_of(spark, tmp_path) == good


def test_a_batch_without_a_good_row_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    run = run_bolt(SparkSink(str(tmp_path), SCHEMA), [("a", None), ("b", None)], source_fields=FIELDS)
    assert len(run.failed()) == 2
    with open_files(str(tmp_path)) as files:
        assert read_state(files).entries == ()


def test_batches_are_written_by_size_and_by_interval(spark: SparkSession, tmp_path: Path) -> None:
    given = [("a", number) for number in range(7)]
    bolt = SparkSink(str(tmp_path), SCHEMA, batch_size=3, batch_interval=2.0)
    run_bolt(bolt, [*given[:4], Pause(3), *given[4:]], source_fields=FIELDS)
    with open_files(str(tmp_path)) as files:
        assert [entry.rows for entry in read_state(files).entries] == [3, 1, 3]


def test_small_files_are_put_together_between_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SinkCompactor] = []
    monkeypatch.setattr(SinkCompactor, "open", lambda self: made.append(self))
    monkeypatch.setattr(sink, "at_step", lambda step: step == "ack" and made[0].round() and None)
    given = [(word, number) for number in range(6) for word in ("a", None)]
    bolt = SparkSink(str(tmp_path), SCHEMA, batch_size=2, partition_by="word", compact_after=3)
    run_bolt(bolt, given, source_fields=FIELDS)
    with open_files(str(tmp_path)) as files:
        entries = read_state(files).entries
    assert [len(entry.files) for entry in entries] == [2, 2, 2]
    assert [entry.rows for entry in entries] == [8, 2, 2]
    assert rows_of(spark, tmp_path) == sorted(given, key=repr)
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == len(given)


def test_columns_added_by_one_sink_are_null_in_the_rows_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_bolt(SparkSink(str(tmp_path), SCHEMA, "csv"), [("a", 1)], source_fields=FIELDS)
    more = SparkSink(str(tmp_path), f"{SCHEMA}, at timestamp", "csv")
    moment = datetime(2026, 11, 21, 12, 30, 0, 5, timezone.utc)
    run_bolt(more, [("b", 2, moment)], source_fields=(*FIELDS, "at"))
    run_bolt(SparkSink(str(tmp_path), SCHEMA, "csv"), [("c", 3)], source_fields=FIELDS)
    found = read_committed(spark, str(tmp_path)).orderBy("count").collect()
    assert [(row["word"], row["at"] is None) for row in found] == [("a", True), ("b", False), ("c", True)]


def test_a_table_of_another_schema_is_refused_at_the_start_with_both_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_bolt(SparkSink(str(tmp_path), SCHEMA), [("a", 1)], source_fields=FIELDS)
    with pytest.raises(TopologyFailed) as raised:
        run_bolt(SparkSink(str(tmp_path), "word string, count string"), [("a", "1")], source_fields=FIELDS)
    text = str(raised.value)
    assert "column 'count' is bigint, and string is wanted" in text
    assert "word string, count bigint NOT NULL" in text and "word string, count string" in text
    with pytest.raises(TopologyFailed, match="is already a different table"):
        run_bolt(SparkSink(str(tmp_path), SCHEMA, "orc"), [("a", 1)], source_fields=FIELDS)


def test_an_unwritable_path_is_reported_at_the_start(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TopologyFailed, match="a file lies where a folder must be"):
        run_bolt(SparkSink(str(tmp_path / "file" / "table"), SCHEMA), [("a", 1)], source_fields=FIELDS)


def test_a_session_of_another_master_is_refused_with_both_named(spark: SparkSession, tmp_path: Path) -> None:
    bolt = SparkSink(str(tmp_path), SCHEMA, master="local[1]")
    with pytest.raises(TopologyFailed, match=r"its master is local\[2\], but local\[1\] is requested"):
        run_bolt(bolt, [("a", 1)], source_fields=FIELDS)


def test_a_superseded_task_fails_its_batches_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(step: str) -> None:
        if step == "move":
            monkeypatch.setattr(sink, "at_step", lambda step: None)
            with open_files(str(tmp_path)) as files:
                [writer_id] = list_claims(files).writer_ids
                take_over(files, writer_id, (9, 0), "another", 0.0)

    monkeypatch.setattr(sink, "at_step", at)
    given = [("a", number) for number in range(4)]
    run = run_bolt(SparkSink(str(tmp_path), SCHEMA, batch_size=2), given, source_fields=FIELDS)
    taken = (
        ".bolt.0 was taken over by another, incarnation 9.0: what this task writes does not count any more"
    )
    assert run.acked() == [] and len(run.failed()) == len(given)
    assert all(taken in str(failure.error) for _, failure in run.failed())
    [error] = run.errors  # only of the first batch
    assert taken in error.text and "squall rebalance" in error.text
    assert rows_of(spark, tmp_path) == []


class Numbers(Spout):
    """Emits numbers, tracked."""

    outputs = Fields("word", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self.next = 0

    def next_tuple(self) -> None:
        if self.next == self.count:
            return self.finish()
        self.emit((f"word{self.next % 7}", self.next), message_id=self.next)
        self.next += 1
        return None


#: Set while a sink's batch is held up: in this process, so that the spout's instance finds it.
HELD = threading.Event()


class Others(Numbers):
    """Emits numbers once a batch is held up."""

    def next_tuple(self) -> None:
        if HELD.is_set():
            super().next_tuple()


class Passes(Bolt):
    """Passes its tuples on."""

    outputs = Fields("word", "count")

    def execute(self, tup: Any) -> None:
        self.emit(tup.values)


class Ends(Bolt):
    """Accepts its tuples."""

    def execute(self, tup: Any) -> None:
        pass


def numbers(path: Path, count: int, tasks: int) -> TopologyBuilder:
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", Numbers(count))
    builder.set_bolt("passes", Passes()).shuffle_grouping("numbers")
    stored = SparkSink(str(path), SCHEMA, partition_by="word", batch_size=200, batch_interval=0.5)
    builder.set_bolt("store", stored, parallelism=tasks).shuffle_grouping("passes")
    return builder


@pytest.mark.parametrize("simulated", [True, False])
def test_two_tasks_store_each_tuple_of_a_topology_once(
    spark: SparkSession, tmp_path: Path, simulated: bool
) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(numbers(tmp_path, 1500, 2).build())
        if simulated:
            cluster.advance(20)
        cluster.wait("numbers", timeout=100)
        status = cluster.status("numbers")
        assert (status.components["numbers"].acked, status.components["numbers"].failed) == (1500, 0)
    found = rows_of(spark, tmp_path)
    assert found == sorted(((number, f"word{number % 7}")[::-1] for number in range(1500)), key=repr)
    with open_files(str(tmp_path)) as files:
        by_task = Counter(entry.batch.writer_id.index for entry in read_state(files).entries)
    assert set(by_task) == {0, 1}
    assert leftovers(tmp_path) == []


def test_the_worker_goes_on_while_a_batch_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HELD.clear()
    leave = threading.Event()

    def at(step: str) -> None:
        if step == "publish":
            HELD.set()
            assert leave.wait(100)

    monkeypatch.setattr(sink, "at_step", at)
    builder = numbers(tmp_path, 600, 1)
    builder.set_spout("others", Others(300))
    builder.set_bolt("ends", Ends()).shuffle_grouping("others")
    with LocalCluster() as cluster:
        try:
            cluster.submit(builder.build())
            until = time.monotonic() + 60
            while cluster.status("numbers").components["others"].acked < 300:
                assert time.monotonic() < until, "the other trees wait for the sink"
                time.sleep(0.02)
            assert cluster.status("numbers").components["numbers"].acked == 0
        finally:
            leave.set()
        cluster.wait("numbers", timeout=100)
    assert len(rows_of(spark, tmp_path)) == 600
