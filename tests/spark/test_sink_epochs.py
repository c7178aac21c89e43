"""SparkSink in topologies with state, with a real Spark: each row is in the table once, and an epoch is one batch."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import LocalCluster
from squall_io.spark import CommittedRows, SparkSink, read_committed
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import read_state
from squall_io.spark.stores import open_files
from tests.local_cluster.words_with_state import Finite, Pass, Words, eventually
from tests.spark_classes import small_java
from topology_api import Bolt, Topology, TopologyBuilder, Tuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMA = "word string, number bigint NOT NULL"


def entries_of(path: Path) -> list[BatchEntry]:
    with open_files(str(path)) as files:
        return list(read_state(files).entries)


def rows_of(spark: SparkSession, path: Path) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, read_committed(spark, str(path)).collect()))


def expected(count: int) -> Counter[tuple[Any, ...]]:
    return Counter((f"w{number % 1000 % 7}", number) for number in range(count))


def assert_tidy(path: Path) -> None:
    """Nothing is staged, and each data file is one of an entry."""
    named = {file.path for entry in entries_of(path) for file in entry.files}
    data = {str(each.relative_to(path)) for each in path.rglob("squall-*") if "_squall" not in each.parts}
    assert data == named
    assert not list((path / STAGING).glob("*/*.json"))


def words(spout: Words, sink: SparkSink, tasks: int = 2, through: Bolt | None = None) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("pass", through or Pass(0.02), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("store", sink, parallelism=tasks).shuffle_grouping("pass")
    return builder.build()


def conf_at(folder: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{folder}/state", "topology.require": "exactly-once", **more}


def test_each_row_is_in_the_table_once_and_an_epoch_of_all_tasks_is_one_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, draw = tmp_path / "table", random.Random(1)
    sink = SparkSink(str(table), SCHEMA, partition_by="word", batch_interval=2.0)
    for tasks, last in ((2, False), (3, False), (1, False), (2, True)):
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(words(Finite(900, 100), sink, tasks), conf_at(tmp_path, **{"topology.workers": 2}))
            cluster.advance(120 if last else draw.uniform(1.5, 4.0))
            if last:
                assert cluster.last_status("words").state == "COMPLETED"
    assert rows_of(spark, table) == expected(900)
    entries = entries_of(table)
    assert 3 <= len(entries) <= 12  # epochs of two seconds
    assert any(len({file.path.split("~")[2][-1] for file in entry.files}) > 1 for entry in entries)
    assert len({entry.batch.writer_id for entry in entries}) == 1
    assert_tidy(table)


def test_the_example_of_accounts_has_each_entry_once_in_the_table_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    accounts = importlib.import_module("accounts")
    names = [str(tmp_path / name) for name in ("transfers.txt", "accounts.sqlite", "state", "table")]
    for last in (False, True):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(accounts.topology(*names))
            cluster.advance(120 if last else 0.05)
            assert not last or cluster.last_status("accounts").state == "COMPLETED"
    with contextlib.closing(sqlite3.connect(names[1])) as connection:
        booked = connection.execute("select account, transfer, amount, balance from entry").fetchall()
    assert rows_of(spark, Path(names[3])) == Counter(booked) and len(set(booked)) == 4_000


class Spoils(Pass):
    """Makes rows that do not fit the schema of some tuples."""

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], None if tup["number"] % 50 == 7 else tup["number"]))


def test_rows_that_do_not_fit_become_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    with LocalCluster(simulated_time=True) as cluster:
        topology = words(Finite(200, 100), SparkSink(str(table), SCHEMA), 1, Spoils())
        cluster.submit(topology, conf_at(tmp_path, **{"topology.epoch.secs": 0.5}))
        cluster.advance(60)
        assert cluster.last_status("words").state == "COMPLETED"
        letters = cluster.dead_letters("words")
    assert len(letters) == 4
    assert all("field 'number': None, where NOT NULL is declared" in str(each.failure) for each in letters)
    assert sum(rows_of(spark, table).values()) == 196


class Collect(Bolt):
    """Keeps its tuples, for the test."""

    got: list[tuple[Any, ...]] = []

    def execute(self, tup: Tuple) -> None:
        Collect.got.append(tuple(tup.values))


def has_more(table: Path, count: int) -> bool:
    return table.exists() and len(entries_of(table)) > count


def has_ended(cluster: LocalCluster, pid: int) -> bool:
    return all(worker.pid != pid for worker in cluster.workers("words"))


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_each_row_is_in_the_table_once_when_workers_are_killed_again_and_again(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    table, draw, count = tmp_path / "table", random.Random(kills), 1_500 * kills
    java = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": small_java()}
    sink = SparkSink(str(table), SCHEMA, master="local[1]", conf=java, batch_interval=0.5)
    with LocalCluster(processes=True) as cluster:
        cluster.submit(words(Finite(count, 500), sink), conf_at(tmp_path, **{"topology.workers": 2}))
        for _ in range(kills):
            before = entries_of(table) if table.exists() else []
            eventually(partial(has_more, table, len(before)), 120)
            worker = draw.choice(cluster.workers("words"))
            os.kill(worker.pid, signal.SIGKILL)
            eventually(partial(has_ended, cluster, worker.pid))
        cluster.wait("words", 200)
    assert rows_of(spark, table) == expected(count)
    assert_tidy(table)
    numbers = [file.path for entry in entries_of(table) for file in entry.files]
    assert len(numbers) == len(set(numbers))
    read = TopologyBuilder("reads")
    read.set_spout("rows", CommittedRows(str(table), fields=["word", "number"], follow=False))
    read.set_bolt("collect", Collect()).global_grouping("rows")
    Collect.got.clear()
    with LocalCluster() as cluster:
        cluster.submit(read.build())
        cluster.wait("reads", 60)
    assert Counter(Collect.got) == expected(count)
