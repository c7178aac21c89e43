"""A table in use: a topology writes it while its workers are killed, it is compacted and vacuumed, and a stream follows it.

What each reader sees at the end is a count of rows, so that a lost and a doubled row both show.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_io.spark import SparkSink, committed_files, read_committed, register
from squall_io.spark.sink import compactor
from tests.rewinding_spout import FromPosition
from tests.spark_classes import small_java
from topology_api import Context, Topology, TopologyBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "table-in-use"
DAYS = 3
COLUMNS = ("number", "word", "day")
Row = tuple[int, str, int]


def row(number: int) -> Row:
    return number, f"word {number % 97}", number % DAYS


def rows(count: int) -> Counter[Row]:
    """The rows of the whole input."""
    return Counter(map(row, range(count)))


class Paced(FromPosition):
    """Emits rows at a rate, until there is a file `enough`."""

    outputs = COLUMNS

    def __init__(self, enough: Path, a_second: int) -> None:
        self.enough, self.a_second = enough, a_second

    def open(self, context: Context) -> None:
        super().open(context)
        self.context = context
        self.next_at = context.now()

    def next_tuple(self) -> float | None:
        if (now := self.context.now()) < self.next_at:
            return self.next_at - now
        if self.at % self.a_second == 0 and self.enough.exists():
            self.finish()
            return None
        self.next_at = max(self.next_at, now - 1) + 1 / self.a_second
        self.emit(row(self.at), message_id=self.at)
        self.at += 1
        return None


class EagerSink(SparkSink):
    """Looks often whether its table is to be compacted."""

    def prepare(self, context: Context) -> None:
        compactor.LOOK = 1.0  # type: ignore[misc]  # of its own process
        super().prepare(context)


def topology(folder: Path, a_second: int, compact_after: int | None = None) -> Topology:
    """Each row once, by two tasks of a sink, in three partitions."""
    conf = {
        "topology.workers": 3,
        "topology.epoch.secs": 1,
        "topology.state.path": f"file://{folder}/state",
        "topology.require": "exactly-once",
    }
    builder = TopologyBuilder(NAME, conf=conf)
    builder.set_spout("numbers", Paced(folder / "enough", a_second))
    java = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": small_java()}
    sink = EagerSink(
        str(folder / "table"),
        "number bigint, word string, day int",
        partition_by="day",
        master="local[1]",
        conf=java,
        compact_after=compact_after,
    )
    builder.set_bolt("store", sink, parallelism=2).shuffle_grouping("numbers")
    return builder.build()


def squall(*arguments: str, after: float | None = None) -> str:
    """Run a command of Squall's to its end, or kill it after some seconds; return what it printed."""
    command = [sys.executable, "-m", "squall_cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = process.communicate(timeout=120 if after is None else after)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            assert after is not None, f"squall {' '.join(arguments)} took too long"
            return process.communicate()[0]
    assert process.returncode == 0, said
    return said


#: A query that copies the table to Parquet files until it is asked to end; the last words are table, copy and stop file.
FOLLOW = """
import pathlib, sys, time
from tests.spark.table_in_use import small_session
from squall_io.spark import register
table, copy, stop = sys.argv[1:]
spark = small_session("follower")
register(spark)
stream = spark.readStream.format("squall").load(table)
query = stream.writeStream.format("parquet").option("checkpointLocation", copy + ".checkpoint").start(copy)
while not pathlib.Path(stop).exists():
    query.awaitTermination(0.5)
query.processAllAvailable()
query.stop()
spark.stop()
"""


def small_session(name: str) -> SparkSession:
    """A session of its own process."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[1]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", small_java())
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )


class Follower:
    """A process with the query, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.copy, self.stop = folder / "copy", folder / "stop"
        self.log = folder / "follower.log"
        self._command = [sys.executable, "-c", FOLLOW, str(folder / "table"), str(self.copy), str(self.stop)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True, env=env
            )

    @property
    def has_copied(self) -> bool:
        return any(self.copy.glob("*.parquet"))

    def kill(self) -> None:
        """Kill the process and its Java."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self) -> None:
        """Let it copy what is there, and end."""
        self.stop.touch()
        assert self._process is not None
        try:
            assert self._process.wait(180) == 0, self.log.read_text()[-3000:]
        finally:
            self.kill()


def seen_by_readers(spark: SparkSession, folder: Path) -> Mapping[str, Counter[Row]]:
    """Count the rows that each kind of reader sees in the table."""
    import deltalake
    import duckdb
    import polars

    table = str(folder / "table")
    register(spark)
    columns = list(COLUMNS)
    files = committed_files(table)

    def by_duckdb() -> list[Any]:
        query = "SELECT number, word, day FROM read_parquet($files, hive_partitioning = true)"
        return duckdb.execute(query, {"files": files}).fetchall()

    ways: dict[str, Callable[[], Any]] = {
        "read_committed": lambda: map(tuple, read_committed(spark, table).select(columns).collect()),
        "format": lambda: map(tuple, spark.read.format("squall").load(table).select(columns).collect()),
        "deltalake": lambda: _rows(deltalake.DeltaTable(table).to_pyarrow_table().select(columns)),
        "Polars": lambda: polars.scan_delta(table).select(columns).collect().rows(),
        "DuckDB": by_duckdb,
        "the stream's copy": lambda: map(
            tuple, spark.read.parquet(str(folder / "copy")).select(columns).collect()
        ),
    }
    return {name: Counter(map(tuple, read())) for name, read in ways.items()}


def _rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns)))


def eventually(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.1)
