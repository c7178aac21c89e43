"""A SparkSink that is offered 50,000 rows a second, and its effect on the topology's other trees.

One worker process has two spouts. One offers rows to the sink by a timetable, open loop. The other is that of the latency
benchmark: 500 sentences a second, split and counted; a tree's latency counts from when its sentence was due. Three variants in
turn: the other trees alone; the rows go to a batch bolt of the same batch size that does nothing; the rows go to the sink. The
third compared with the second shows the cost of the sink's writing to the others. Both spouts begin when the sink is open. The
first seconds are shown separately: Java compiles its code in them, and needs both cores for that.

    python -m benchmarks spark_beside [--rate 50000] [--seconds 15] [--settle 6] [--rounds 2] [--batch-size 10000] [--hdfs]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.child import machine, spread
from benchmarks.latency import Timetable
from benchmarks.notes import Meeting, Usage, find, leave
from benchmarks.topology import Count, Split
from local_cluster import LocalCluster
from squall_io.spark import SparkSink
from tests.hdfs_servers import HdfsServer
from topology_api import BatchBolt, Context, Failure, Fields, Spout, TopologyBuilder, Tuple

SCHEMA = "word string, count bigint, at timestamp"
OTHER_RATE = 500.0
DIFFERENT = 10_000
#: Limit of rows for a call of next_tuple, during which the worker's loop is blocked.
CHUNK = 100
#: Seconds' worth of rows that may be pending before the spout is held up.
PENDING_SECONDS = 4.0
VARIANTS = ("the others alone", "a bolt takes the rows", "the sink writes them")


class Beside(Timetable):
    """The sentences; they begin with the rows."""

    def __init__(self, folder: str, seconds: float, members: int) -> None:
        super().__init__(folder, OTHER_RATE, seconds, 1)
        self.members = members

    def open(self, context: Context) -> None:
        super().open(context)
        self.meeting = Meeting(self.folder, 0, self.members)
        self.acked: list[
            tuple[float, float]
        ] = []  # seconds after the beginning at which it was due, and how late it was acked

    def ack(self, message_id: object) -> None:
        due = self.due_at[message_id]  # type: ignore[call-overload]
        self.acked.append((due - (self.begins or 0.0), time.perf_counter() - due))

    def close(self) -> None:
        leave(self.folder, "spout", 0, acked=self.acked, **self.usage.read())


class Offered(Spout):
    """Rows by a timetable."""

    outputs = Fields("word", "count", "at")

    def __init__(self, folder: str, rate: float, seconds: float, members: int) -> None:
        self.folder = folder
        self.rate = rate
        self.count = int(rate * seconds)
        self.members = members

    def open(self, context: Context) -> None:
        chance = random.Random(context.index)
        now = datetime.now(timezone.utc)
        self.rows = [
            (f"word{chance.randrange(5_000)}", chance.randrange(10**6), now) for _ in range(DIFFERENT)
        ]
        self.number = 0
        self.latest = 0.0
        self.failed = 0
        self.begins: float | None = None
        self.meeting = Meeting(self.folder, 1, self.members)

    def next_tuple(self) -> float | None:
        if self.begins is None:
            self.begins = self.meeting.begins()
            return 0.01
        number, rows = self.number, self.rows
        if number >= self.count:
            self.finish()
            return None
        now = time.perf_counter()
        due = min(self.count, max(0, int((now - self.begins) * self.rate)))
        until = min(due, number + CHUNK)
        for each in range(number, until):
            self.emit(rows[each % DIFFERENT], message_id=each)
        self.number = until
        if until > number:
            self.latest = max(self.latest, now - self.begins - number / self.rate)
        return 0.0 if due > until else CHUNK / 2 / self.rate

    def fail(self, message_id: object, failure: Failure) -> None:
        self.failed += 1

    def close(self) -> None:
        assert self.begins is not None
        took = time.perf_counter() - self.begins
        leave(self.folder, "rows", 0, emitted=self.number, failed=self.failed, latest=self.latest, took=took)


class Taken(BatchBolt):
    """Takes rows in batches as the sink does, and does nothing with them."""

    threaded = True

    def __init__(self, folder: str, batch_size: int, members: int) -> None:
        self.folder = folder
        self.members = members
        self.batch_size = batch_size
        self.batch_interval = 5.0

    def prepare(self, context: Context) -> None:
        Meeting(self.folder, 2, self.members)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        pass


class Sink(SparkSink):
    """The sink; it records when it is open and how long its batches take."""

    def __init__(self, folder: str, path: str, batch_size: int, members: int) -> None:
        super().__init__(path, SCHEMA, batch_size=batch_size)
        self.folder = folder
        self.members = members

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.seconds: list[float] = []
        self.sizes: list[int] = []
        self.usage = Usage()
        Meeting(self.folder, 2, self.members)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        started = time.perf_counter()
        super().execute_batch(tups)
        self.seconds.append(time.perf_counter() - started)
        self.sizes.append(len(tups))

    def cleanup(self) -> None:
        super().cleanup()
        leave(self.folder, "sink", 0, seconds=self.seconds, sizes=self.sizes)


@dataclass(frozen=True)
class Found:
    """The results of one run."""

    settled: list[float]
    """Latencies of the other trees that were due after the first seconds."""
    early: list[float]
    """Of the others."""
    failed: int
    """Trees of both spouts."""
    cpu: float
    """Cores that the worker took, without Java's."""
    rows: dict[str, Any] | None
    sink: dict[str, Any] | None


def run(variant: int, given: argparse.Namespace, path: str) -> Found:
    """Return one run in a fresh worker process."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        seconds = given.settle + given.seconds
        members = 3 if variant else 1
        builder = TopologyBuilder("beside", conf={"topology.workers": 1})
        builder.set_spout("sentences", Beside(folder, seconds, members))
        builder.set_bolt("split", Split()).shuffle_grouping("sentences")
        builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
        if variant:
            pending = {"topology.max.spout.pending": int(PENDING_SECONDS * given.rate)}
            builder.set_spout("rows", Offered(folder, given.rate, seconds, members), conf=pending)
            bolt = (
                Taken(folder, given.batch_size, members)
                if variant == 1
                else Sink(folder, path, given.batch_size, members)
            )
            builder.set_bolt("store", bolt).shuffle_grouping("rows")
        with LocalCluster(processes=True, supervisors=1, slots=1) as cluster:
            cluster.submit(builder.build())
            cluster.wait("beside", timeout=5 * seconds + 120)
            status = cluster.status("beside").components
        (spout,) = find(folder, "spout")
        rows, sink = [*find(folder, "rows"), None][0], [*find(folder, "sink"), None][0]
    failed = sum(status[name].failed for name in ("sentences", "rows") if name in status)
    acked: list[tuple[float, float]] = spout["acked"]
    if rows is not None and (status["rows"].acked, rows["failed"]) != (rows["emitted"], 0):
        print(f"rows: {rows['emitted']:,} emitted, {status['rows'].acked:,} acked, {rows['failed']:,} failed")
    settled = [late for due, late in acked if due >= given.settle]
    early = [late for due, late in acked if due < given.settle]
    return Found(settled, early, failed, spout["cpu_seconds"] / seconds, rows, sink)


def at(values: list[float], point: float) -> float:
    """Return a percentile, in milliseconds."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * point / 100)] * 1e3 if ordered else float("nan")


def print_found(name: str, found: Found) -> None:
    """A run's figures."""
    points = ", ".join(f"p{point:g} {at(found.settled, point):.2f}" for point in (50, 90, 99, 99.9))
    line = f"{name:>22}: {points} ms; the first seconds' p99 {at(found.early, 99):.2f}; {found.failed} failed"
    line += f"; worker {found.cpu:.0%} of a core"
    if found.rows is not None:
        taken = found.rows["emitted"] / found.rows["took"]
        line += f"; {taken:,.0f} rows/s taken, at most {found.rows['latest'] * 1e3:,.0f} ms late"
    print(line, flush=True)
    if found.sink is not None:
        sizes, seconds = found.sink["sizes"], found.sink["seconds"]
        print(
            f"{'':>24}{len(sizes)} batches of {statistics.median(sizes):,.0f} rows,"
            f" {spread([each * 1e3 for each in seconds], ',.0f')} ms each, busy {sum(seconds) / found.rows['took']:.0%}"  # type: ignore[index]
            " of the time"
        )


def main() -> None:
    """Run in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=50_000.0, help="rows a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--settle", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=10_000)
    parser.add_argument("--hdfs", action="store_true", help="the table lies on HDFS; else on local files")
    given = parser.parse_args()
    print(machine())
    where = "HDFS" if given.hdfs else "local files"
    print(
        f"{given.rate:,.0f} rows/s in batches of {given.batch_size:,} to {where}; {OTHER_RATE:g} other trees/s"
    )
    found: list[list[Found]] = [[], [], []]
    with (
        tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder,
        HdfsServer(Path(folder, "hdfs")) if given.hdfs else nullcontext() as server,
    ):
        base = f"{server.url}/benchmark" if server is not None else folder
        for number in range(given.rounds):
            for variant, name in enumerate(VARIANTS):
                found[variant].append(run(variant, given, f"{base}/table{number}"))
                print_found(name, found[variant][-1])
    worst = [[at(each.settled, 99) for each in runs] for runs in found]
    ratios = [with_sink / without for without, with_sink in zip(worst[1], worst[2])]
    told = (f"{name} {spread(p99, '.2f')}" for name, p99 in zip(VARIANTS, worst))
    rates = [each.rows["emitted"] / each.rows["took"] for each in found[2] if each.rows is not None]
    failed = sum(each.failed for runs in found for each in runs)
    print(f"the sink took {spread(rates)} of {given.rate:,.0f} rows/s offered; {failed} failed in all runs")
    print(f"p99 of the others in ms: {'; '.join(told)}")
    print(f"the sink writes : a bolt takes them: {spread(ratios, '.2f')}")
