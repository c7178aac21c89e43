"""Seconds from a line to its committed row: a spout that follows a folder, and a SparkSink with `batch_interval=0.5`.

Every half second a file with a few lines appears in the folder, by renaming; each line has the time at which it appeared. The
spout (`FileSpout` and `HdfsLines` in turn) looks each `--poll` seconds, or as often as it does by default. A row's latency ends
when its batch counts and its tuple is acked. The first seconds, in which Java compiles its code, are left out.

    python -m benchmarks spark_latency [--seconds 30] [--settle 5] [--poll 0.2]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.child import machine
from benchmarks.notes import find, leave
from benchmarks.spark_beside import at
from local_cluster import LocalCluster
from squall_io.files import FileSpout
from squall_io.spark import HdfsLines, SparkSink
from topology_api import Context, TopologyBuilder

LINES = 20
#: Seconds between two files, at least and at most, so that looks and files have no common rhythm.
APART = (0.3, 0.7)


class Sink(SparkSink):
    """The sink; it notes when each line was committed."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder}/table", "at double", batch_interval=0.5, master="local[2]")
        self.folder = folder

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.late: list[tuple[float, float]] = []
        Path(self.folder, "open").touch()

    def execute_batch(self, tups: Any) -> None:
        super().execute_batch(tups)
        now = time.time()
        self.late += [(tup["at"], now - tup["at"]) for tup in tups]

    def cleanup(self) -> None:
        super().cleanup()
        leave(self.folder, "sink", 0, late=self.late)


def run(kind: Callable[..., Any], poll: float | None, seconds: float, settle: float) -> list[float]:
    """Return the latencies of one run in a worker process."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        source = Path(folder, "in")
        source.mkdir()
        builder = TopologyBuilder("latency", conf={"topology.workers": 1})
        builder.set_spout(
            "lines", kind(str(source), follow=True, poll_interval=poll, format="jsonl", schema="at double")
        )
        builder.set_bolt("store", Sink(folder)).shuffle_grouping("lines")
        with LocalCluster(processes=True, supervisors=1, slots=1) as cluster:
            cluster.submit(builder.build())
            while not Path(folder, "open").exists():
                time.sleep(0.1)
            began, number = time.time(), 0
            while time.time() - began < settle + seconds:
                (source / "_new").write_text(f'{{"at": {time.time()!r}}}\n' * LINES)
                os.rename(source / "_new", source / f"{number}.jsonl")
                number += 1
                time.sleep(random.uniform(*APART))
            while cluster.status("latency").components["lines"].acked < number * LINES:
                time.sleep(0.1)
        (note,) = find(folder, "sink")
    return [late for due, late in note["late"] if due >= began + settle]


def main() -> None:
    """Run in turn and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=5.0)
    parser.add_argument("--poll", type=float, help="seconds between two looks; else the defaults")
    given = parser.parse_args()
    print(machine())
    for kind in (FileSpout, HdfsLines):
        late = run(kind, given.poll, given.seconds, given.settle)
        points = ", ".join(f"p{point} {at(late, point):,.0f}" for point in (50, 90, 99))
        print(f"{kind.__name__:>10}: {points} ms from line to committed row, {len(late):,} rows", flush=True)
