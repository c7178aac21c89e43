"""How long Spark takes to find the files of a table of many small batches: `read_committed` beside a plain `spark.read`.

The table has `--batches` batches of three Parquet files each. Each way counts the rows in one session, in turn: `spark.read` of
the folder, `read_committed`, and `read_committed(key=...)`; first with a session of this process, then by Spark Connect. The
plain read with the key's own work, `dropDuplicates`, is what a key is compared with. A time includes the making of the frame.

    python -m benchmarks spark_listing [--batches 2000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.child import answer, ask, machine, spread
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.state import read_state
from squall_io.spark.reading.committed import read_committed
from squall_io.spark.session.request import SessionRequest
from squall_io.spark.session.sessions import start_session
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.spark.connect_servers import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 3
ROWS = 10
#: Each way, with the plain one that it is compared with.
BESIDE = {"read_committed": "spark.read", "read_committed, key": "spark.read, distinct"}


def fill(path: str, batches: int) -> str:
    """Make the table; return the folder of its files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_files(path) as files:
        task = SinkTask(files, "number bigint, word string")
        for batch in range(batches):
            content = {}
            for file in range(FILES):
                first = (batch * FILES + file) * ROWS
                made = io.BytesIO()
                numbers = list(range(first, first + ROWS))
                pq.write_table(
                    pa.table({"number": numbers, "word": [f"word {each}" for each in numbers]}), made
                )
                content[f"part-{file:05d}-c000.snappy.parquet"] = made.getvalue()
            entry = task.put(content, rows=FILES * ROWS, committed=float(batch))
        state = read_state(files)
        assert write_next(files, state.checkpoint, state.uncovered)
        return os.path.dirname(f"{files.root}/{entry.files[0].path}")


def measured(spark: SparkSession, path: str, folder: str, rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round of each way; each counts all rows."""
    ways: dict[str, Callable[[], DataFrame]] = {
        "spark.read": lambda: spark.read.parquet(folder),
        "read_committed": lambda: read_committed(spark, path),
        "spark.read, distinct": lambda: spark.read.parquet(folder).dropDuplicates(["number"]),
        "read_committed, key": lambda: read_committed(spark, path, key="number"),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, frame in ways.items():
            started = time.perf_counter()
            counted = frame().count()
            taken[name].append(time.perf_counter() - started)
            assert counted == rows, f"{name}: {counted} of {rows} rows"
            print(f"  {name}: {taken[name][-1]:.1f} s", file=sys.stderr, flush=True)
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        asked = json.loads(given.child)
        session = start_session(SessionRequest.of(asked.pop("master"), {}))
        answer({"taken": measured(session, **asked)})
        session.stop()
        return
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as scratch:
        path = f"{scratch}/table"
        asked = {"path": path, "folder": fill(path, given.batches), "rounds": given.rounds}
        asked["rows"] = given.batches * FILES * ROWS
        print(
            f"{given.batches:,} batches, {given.batches * FILES:,} files; seconds, {given.rounds} rounds",
            flush=True,
        )
        measure("classic", "local[2]", asked)
        server = ConnectServer(Path(scratch)).start()
        try:
            measure("Connect", server.url, asked)
        finally:
            server.kill()


def measure(name: str, master: str, asked: dict[str, Any]) -> None:
    """Measure with a session of one kind, in a process of its own, and print."""
    taken = ask(__name__, "--child", json.dumps({**asked, "master": master}), timeout=3_600)["taken"]
    for way, seconds in taken.items():
        beside = (
            f", {median(seconds) / median(taken[BESIDE[way]]):.2f} times {BESIDE[way]}"
            if way in BESIDE
            else ""
        )
        print(f"{name:>8}, {way:<21}: {spread(seconds, '.1f')}{beside}", flush=True)
