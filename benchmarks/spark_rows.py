"""CPU from a line of JSON to a committed row of a table: in Python, Java not counted, beside a plain loop with pyarrow; and
beside Spark's Structured Streaming, which is Java.

A file has objects with a word, a number and a time. The loop reads lines, makes values, and writes a parquet file for each
100,000 rows. Squall reads the same lines with `FileSpout` or `HdfsLines`, 200,000 trees pending, and commits batches of
100,000 with `SparkSink`, all in one process: in this one (`LocalCluster()`), or in a worker process. A bolt parses the lines,
or, with "parsed by the spout", the spout (`format="jsonl"`), where Squall has that. What is counted is the CPU time of that
process from the opened sink to the last commit, and how much of it the garbage collector took. "no collector" is the same with
`gc.disable()`. Structured Streaming reads the same file as JSON with the same schema and writes parquet, once to warm up and
once measured; all processes below this one are counted.

    python -m benchmarks spark_rows [--rows 600000] [--rounds 2] [--only in-process ...]
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchmarks.child import answer, ask, machine, spread
from benchmarks.collector import Collections
from benchmarks.notes import find, leave
from benchmarks.replay import cpu_of_children
from local_cluster import LocalCluster
from squall_io.files import FileSpout
from squall_io.spark import HdfsLines, SparkSink
from topology_api import Bolt, Context, Fields, TopologyBuilder, Tuple

SCHEMA = "word string, count bigint, at timestamp"
BATCH = 100_000
PENDING = 200_000
#: Where Squall runs, which spout reads, who parses, and whether the collector is on.
VARIANTS = {
    "in-process": ("threads", "files", "bolt", True),
    "in-process, no collector": ("threads", "files", "bolt", False),
    "worker": ("worker", "files", "bolt", True),
    "worker, no collector": ("worker", "files", "bolt", False),
    "in-process, HdfsLines": ("threads", "hdfs", "bolt", True),
    "in-process, parsed by the spout": ("threads", "files", "spout", True),
    "worker, parsed by the spout": ("worker", "files", "spout", True),
    "in-process, HdfsLines, parsed by the spout": ("threads", "hdfs", "spout", True),
}
LOOP = "a loop with pyarrow"
STREAMING = "Structured Streaming, with Java"


class Parse(Bolt):
    """Makes fields from a line."""

    outputs = Fields("word", "count", "at")

    def execute(self, tup: Tuple) -> None:
        value = json.loads(tup[0])
        self.emit((value["word"], value["count"], datetime.fromisoformat(value["at"])))


class Sink(SparkSink):
    """The sink; it notes the CPU time of its process from its opening to the last commit."""

    def __init__(self, folder: str, collects: bool) -> None:
        super().__init__(f"{folder}/table", SCHEMA, batch_size=BATCH, batch_interval=60.0, master="local[2]")
        self.folder = folder
        self.collects = collects

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        if not self.collects:
            gc.disable()
        self.collections = Collections()
        gc.callbacks.append(self.collections)
        self.collecting = 0.0
        self.began = self.until = time.process_time()

    def execute_batch(self, tups: Any) -> None:
        super().execute_batch(tups)
        self.until = time.process_time()
        self.collecting = self.collections.seconds

    def cleanup(self) -> None:
        super().cleanup()
        leave(self.folder, "sink", 0, cpu=self.until - self.began, collecting=self.collecting)


def write_lines(path: Path, count: int) -> None:
    """Write a file of objects."""
    start = datetime(2026, 11, 21, tzinfo=timezone.utc)
    with path.open("w") as file:
        for number in range(count):
            at = start + timedelta(milliseconds=number)
            row = {"word": f"word{number % 5_000}", "count": number, "at": at.isoformat()}
            file.write(json.dumps(row) + "\n")


def by_hand(folder: str, path: str) -> None:
    """The child's part of the loop."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [("word", pyarrow.string()), ("count", pyarrow.int64()), ("at", pyarrow.timestamp("us", "UTC"))]
    )
    began = time.process_time()
    rows: list[tuple[str, int, datetime]] = []
    number = 0

    def write() -> None:
        columns = [pyarrow.array(values, kind) for values, kind in zip(zip(*rows), schema.types)]
        table = pyarrow.table(columns, schema=schema)
        pyarrow.parquet.write_table(table, f"{folder}/{number}.parquet")
        rows.clear()

    with open(path, encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line)
            rows.append((value["word"], value["count"], datetime.fromisoformat(value["at"])))
            number += 1
            if len(rows) == BATCH:
                write()
    if rows:
        write()
    answer({"cpu": time.process_time() - began})


def by_streaming(folder: str, path: str, rows: int) -> None:
    """The child's part of Structured Streaming."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()

    def run(name: str) -> None:
        lines = spark.readStream.schema(SCHEMA).json(str(Path(path).parent))
        written = lines.writeStream.format("parquet").option(
            "checkpointLocation", f"{folder}/{name}-positions"
        )
        written.trigger(availableNow=True).start(f"{folder}/{name}").awaitTermination()

    run("warm")
    before = cpu_of_children()
    run("measured")
    after = cpu_of_children()
    assert spark.read.parquet(f"{folder}/measured").count() == rows
    answer({"cpu": sum(after.values()) - sum(before.values())})
    spark.stop()


def by_squall(variant: str, folder: str, path: str, rows: int) -> None:
    """The child's part of a variant."""
    place, reader, parser, collects = VARIANTS[variant]
    kind: Callable[..., Any] = FileSpout if reader == "files" else HdfsLines
    more = {"format": "jsonl", "schema": SCHEMA} if parser == "spout" else {}
    conf = {
        "topology.workers": 1,
        "topology.max.spout.pending": PENDING,
        "topology.message.timeout.secs": 300,
    }
    builder = TopologyBuilder("rows", conf)
    builder.set_spout("lines", kind(path, follow=False, **more))
    if not more:
        builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    builder.set_bolt("store", Sink(folder, collects)).shuffle_grouping("lines" if more else "parse")
    made = LocalCluster() if place == "threads" else LocalCluster(processes=True, supervisors=1, slots=1)
    with made as cluster:
        cluster.submit(builder.build())
        cluster.wait("rows", timeout=600)
        status = cluster.status("rows").components
    assert (status["lines"].acked, status["lines"].failed) == (rows, 0), status["lines"]
    (note,) = find(folder, "sink")
    answer({"cpu": note["cpu"], "collecting": note["collecting"]})


def main() -> None:
    """Run in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="VARIANT", choices=VARIANTS)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        variant, folder, path = given.run
        if variant == LOOP:
            return by_hand(folder, path)
        if variant == STREAMING:
            return by_streaming(folder, path, given.rows)
        return by_squall(variant, folder, path, given.rows)
    print(machine())
    known = "format" in inspect.signature(FileSpout).parameters
    variants = [name for name in given.only or VARIANTS if known or VARIANTS[name][2] == "bolt"]
    found: dict[str, list[float]] = {name: [] for name in [LOOP, *variants]}
    if not given.only:
        found[STREAMING] = []
    shares: dict[str, list[float]] = {name: [] for name in found}
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as base:
        path = Path(base, "lines", "rows.jsonl")
        path.parent.mkdir()
        write_lines(path, given.rows)
        for _ in range(given.rounds):
            for name, micros in found.items():
                with tempfile.TemporaryDirectory(prefix="run-", dir=base) as folder:
                    run = ask(__name__, "--rows", given.rows, "--run", name, folder, path)
                micros.append(run["cpu"] / given.rows * 1e6)
                shares[name].append(run.get("collecting", 0.0) / run["cpu"])
    loop = statistics.median(found[LOOP])
    for name, micros in found.items():
        beside = f"{statistics.median(micros) / loop:.2f} of the loop, {spread(shares[name], '.1%')} of it collecting"
        print(f"{name:>44}: {spread(micros, '.2f')} us CPU a row, {beside}")
    return None
