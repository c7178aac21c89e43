"""A SparkSink's batches compared with their lower limits: (a) pyarrow alone, (b) Spark alone with a prepared Arrow table.

In turn, in one process, with one Spark session, on local files and on a real HDFS:
- the sink: `SparkSink.execute_batch` with tuples of three fields; rows, Arrow, Spark's write, commit, cleanup;
- (a) pyarrow writes the same table as one parquet file; for HDFS it is made in memory and stored by WebHDFS;
- (b) Spark writes the same table, with the session and the settings of the sink;
- Spark's defaults: `createDataFrame(table).write.parquet(...)` in a session without the sink's settings for writing. The parts
  are the times between the steps that the sink reports; "digest" includes the first check for a newer owner. Every 20th batch
  checks whether a checkpoint is due: medians do not show that, so its mean is printed.

    python -m benchmarks spark_sink [--sizes 1000 10000 100000 1000000] [--rounds 0] [--master "local[2]"]
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.child import machine, spread
from squall.stores.files import OpenStore
from squall.stores.webhdfs import WebHdfsFiles
from squall_io.spark import SparkSink
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session.sessions import shared_session
from squall_io.spark.sink import bolt as sink
from squall_io.spark.sink.writing import TableWriter, WriteAs
from squall_io.spark.stores import open_files
from tests.hdfs_servers import HdfsServer
from topology_api import Context
from topology_api.tuples import Source, Tuple
from worker.process.assemble import COLLECTIONS

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

SCHEMA = "word string, count bigint, at timestamp"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
#: The default number of rounds for each size.
ROUNDS = {1_000: 11, 10_000: 21, 100_000: 13, 1_000_000: 5}
#: Batches before the clock starts: Java compiles frequently used code.
WARM_UP = 15
WARM_UP_ROWS = 10_000
#: The steps that the sink reports, each of which begins a part, in order; the first part begins with the batch.
PARTS = {
    "write": "write",
    "list": "list",
    "check": "digest",
    "move": "move",
    "publish": "publish",
    "look": "look",
    "ack": "ack",
    "clear": "clear",
    "checkpoint": "checkpoint",
}
CONF = {"spark.driver.memory": "2g"}


class Metrics:
    """Metrics that are not read."""

    def counter(self, name: str) -> Metrics:
        return self

    def gauge(self, name: str, function: Callable[[], float]) -> None: ...

    def add(self, count: int = 1) -> None: ...


@dataclass
class Steps:
    """When the sink reached each step of a batch."""

    times: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, step: str) -> None:
        self.times.append((step, time.perf_counter()))

    def parts(self, started: float, ended: float) -> dict[str, float]:
        """Return how long each part took, in seconds."""
        found = dict.fromkeys(["rows", *PARTS.values()], 0.0)
        part, before = "rows", started
        for step, moment in [*self.times, ("", ended)]:
            found[part] += moment - before
            part, before = PARTS.get(step, part), moment
        return found


def context(index: int) -> Context:
    """Return a worker's arguments for a task of a sink."""
    return Context(
        topology="benchmark", topology_id="benchmark-1", component="store", task=1, index=0, parallelism=1,
        incarnation=(1, index), conf={}, tasks=lambda component: [], log=logging.getLogger("sink"),
        metrics=cast(Any, Metrics()), resources={}, directory=lambda: "", now=lambda: 0.0,
        random=random.Random(0), wake=lambda: None, progress=lambda why: None,
    )  # fmt: skip


def tuples(count: int) -> list[Tuple]:
    """Tuples as a worker passes them, of (text, number, time)."""
    chance = random.Random(1)
    start = datetime(2026, 11, 21, tzinfo=timezone.utc)
    words = [f"word{number}" for number in range(5_000)]
    source = Source("count", 1, "default", ("word", "count", "at"))
    made = []
    for number in range(count):
        tup = Tuple.__new__(Tuple)
        tup._values = (
            chance.choice(words),
            chance.randrange(10**6),
            start + timedelta(milliseconds=number),
        )
        tup._source = source
        made.append(tup)
    return made


class Place:
    """A folder of a file system, with a sink and its competitors."""

    def __init__(
        self, name: str, folder: str, session: SparkSession, master: str, put: OpenStore | None
    ) -> None:
        self.name = name
        self.folder = folder
        self.session = session
        self.put = put  # pyarrow writes here; None: to the file itself
        self.store = open_files(f"{folder}/spark", session=session)
        self.sink = SparkSink(f"{folder}/table", SCHEMA, batch_size=10**6, master=master, conf=CONF)
        self.sink.prepare(context(0))
        self.writer = TableWriter(session, parse_schema(SCHEMA), WriteAs("parquet", (), None))
        self.number = 0

    def by_sink(self, tups: Sequence[Tuple], table: pyarrow.Table) -> None:
        """Write a batch by the sink."""
        self.sink.execute_batch(tups)

    def by_pyarrow(self, tups: Sequence[Tuple], table: pyarrow.Table) -> None:
        """Write a file by pyarrow."""
        import pyarrow
        import pyarrow.parquet

        if self.put is None:
            pyarrow.parquet.write_table(table, f"{self.folder}/spark/{self.fresh()}.parquet")
            return
        made = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, made)
        self.put.replace(self.fresh(), made.getvalue().to_pybytes())

    def by_spark(self, tups: Sequence[Tuple], table: pyarrow.Table) -> None:
        """Write a folder by Spark, with the sink's settings."""
        self.writer.write(table, f"{self.store.root}/{self.fresh()}")

    def by_plain_spark(self, tups: Sequence[Tuple], table: pyarrow.Table) -> None:
        """Write a folder by Spark, as its documentation says."""
        self.session.createDataFrame(table).write.mode("overwrite").parquet(
            f"{self.store.root}/{self.fresh()}"
        )

    def fresh(self) -> str:
        """Return a new name."""
        self.number += 1
        return f"{self.number}"

    def close(self) -> None:
        """Release everything."""
        self.sink.cleanup()
        self.store.close()


WAYS: dict[str, Callable[[Place, Sequence[Tuple], Any], None]] = {
    "sink": Place.by_sink,
    "(a) pyarrow alone": Place.by_pyarrow,
    "(b) Spark alone": Place.by_spark,
    "Spark as it comes": Place.by_plain_spark,
}


@contextmanager
def places(master: str, folder: str) -> Iterator[list[Place]]:
    """The local folder and the one on HDFS."""
    with (
        HdfsServer(Path(folder, "hdfs")) as server,
        shared_session(master, CONF) as lease,
    ):
        local, far = f"file://{folder}/local", f"{server.url}/benchmark"
        Path(folder, "local", "spark").mkdir(parents=True)
        put = WebHdfsFiles(f"{far}/pyarrow", server.webhdfs)
        opened = [
            Place("local files", local.removeprefix("file://"), lease.session, master, None),
            Place("HDFS", far, lease.session, master, put),
        ]
        try:
            yield opened
        finally:
            for place in opened:
                place.close()


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Return the times at which a call began and ended; earlier garbage is collected before."""
    gc.collect()
    started = time.perf_counter()
    run()
    return started, time.perf_counter()


def measure(
    place: Place, tups: Sequence[Tuple], rounds: int
) -> tuple[dict[str, list[float]], list[dict[str, float]]]:
    """Return how long each round took, in seconds, by the way of writing; and the parts of the sink's rounds."""
    table = table_of(tups)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    parts = []
    ways = list(WAYS)
    for number in range(rounds):
        for way in ways[number % 4 :] + ways[: number % 4]:
            sink.at_step = steps = Steps()
            started, ended = timed(lambda way=way: WAYS[way](place, tups, table))  # type: ignore[misc]
            seconds[way].append(ended - started)
            if way == "sink":
                parts.append(steps.parts(started, ended))
    return seconds, parts


def table_of(tups: Sequence[Tuple]) -> pyarrow.Table:
    """Return the rows of tuples, prepared."""
    checker = RowChecker(parse_schema(SCHEMA))
    columns, bad = checker.split([tup.values for tup in tups])
    assert not bad
    return checker.table(columns)


def print_size(count: int, seconds: dict[str, list[float]], parts: list[dict[str, float]]) -> list[str]:
    """Print the figures of a size; return the sink's beside Spark's, for the summary."""
    beside = []
    for way, values in seconds.items():
        rates = [count / value for value in values]
        millis = [value * 1e3 for value in values]
        print(f"{count:>9,} {way:<18}{spread(rates):>34} rows/s {spread(millis, ',.1f'):>30} ms")
    sink_seconds = seconds["sink"]
    for way in ("(b) Spark alone", "Spark as it comes"):
        # Neighbours in time are compared, since the machine's speed varies.
        ratios = [other / own for own, other in zip(sink_seconds, seconds[way])]
        of_medians = statistics.median(seconds[way]) / statistics.median(sink_seconds)
        of_least = min(seconds[way]) / min(sink_seconds)
        beside.append(f"{of_medians:.2f}")
        print(
            f"{'':>9} sink : {way}: {of_medians:.2f} of medians, {of_least:.2f} of the least;"
            f" round by round {spread(ratios, '.2f')}"
        )
    told = [
        f"{name} {statistics.median(each[name] for each in parts) * 1e3:.1f}"
        for name in parts[0]
        if name not in ("ack", "checkpoint")
    ]
    told.append(f"checkpoint {statistics.mean(each['checkpoint'] for each in parts) * 1e3:.1f} (mean)")
    print(f"{'':>9} the sink's parts, medians in ms: {', '.join(told)}", flush=True)
    return beside


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=0, help="of each size; 0: many of the small ones")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    gc.set_threshold(*COLLECTIONS)
    print(machine())
    tups = tuples(max(*given.sizes, WARM_UP_ROWS))
    folder = tempfile.mkdtemp(prefix="squall-benchmark-")
    try:
        with places(given.master, folder) as found:
            for place in found:
                measure(place, tups[:WARM_UP_ROWS], given.rounds or WARM_UP)
                print(f"\n{place.name}, {given.master}; median (least to greatest)")
                beside = []
                for count in given.sizes:
                    rounds = given.rounds or ROUNDS.get(count, 7)
                    beside.append(print_size(count, *measure(place, tups[:count], rounds)))
                sizes = ", ".join(f"{count:,}" for count in given.sizes)
                own, plain = (", ".join(each) for each in zip(*beside))
                print(
                    f"{place.name}, {sizes} rows: the sink : (b) {own}; : Spark as it comes {plain}; of medians"
                )
        print(f"\nload average at the end {', '.join(f'{value:.2f}' for value in os.getloadavg())}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
