"""How long it takes to read the manifest of a table of many batches: on local files, and on a real HDFS.

The table has `--batches` batches of several sink tasks, all in checkpoints; 0, 200 (at which a sink makes the next checkpoint)
or 500 more have entries of their own. `read_committed`, `squall table` and a sink's checkpoint begin with `read_state`. A
session of Spark Connect reads by WebHDFS.

    python -m benchmarks spark_manifest [--batches 10000] [--files 2] [--rounds 7]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.child import machine, spread
from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.claims import take_over
from squall_io.spark.manifest.entries import BatchEntry, DataFile, encode_entry
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.stores import open_files
from tests.hdfs_servers import HdfsServer

LOOSE = (0, 200, 500)
TASKS = 4
#: A checkpoint for this many batches, as a sink that commits them makes it.
STRIDE = 2_500


def entries(writer_ids: Sequence[WriterId], batches: int, files: int) -> list[BatchEntry]:
    """Entries of batches that the tasks have committed in turn."""
    made = []
    for number in range(batches):
        batch = BatchName(writer_ids[number % TASKS], 1, 1 + number // TASKS)
        named = tuple(
            DataFile(
                f"day=2026-11-21/{batch.data_file(1, each_file, '.snappy.parquet')}",
                40_000 + number,
                f"sha256:{number:064x}",
            )
            for each_file in range(files)
        )
        writer_id = batch.writer_id
        made.append(
            BatchEntry(
                batch,
                "word-count",
                writer_id.topology_id,
                writer_id.component,
                (1, 0),
                1,
                10_000,
                named,
                1e9 + number,
            )
        )
    return made


class Grown:
    """A table whose number of batches grows."""

    def __init__(self, files: Files, batches: int, data_files: int) -> None:
        self.files = files
        self.batches = batches
        open_table(files, TableRecord(ROWS, "parquet", ("day",)))
        agree_on_schema(files, parse_schema("word string, count bigint, day date"))
        writer_ids = [WriterId.of("word-count-1", "store", index) for index in range(TASKS)]
        for writer_id in writer_ids:
            take_over(files, writer_id, (1, 0), "a benchmark", 0.0)
        every = entries(writer_ids, batches + LOOSE[-1], data_files)
        self.loose = every[batches:]
        self.there = 0
        for start in range(0, batches, STRIDE):
            before = read_state(files).checkpoint
            assert write_next(files, before, every[start : min(start + STRIDE, batches)])

    def grow(self, loose: int) -> None:
        """Give this many batches entries of their own."""
        self._put(self.loose[self.there : loose])
        self.there = loose

    def _put(self, added: Sequence[BatchEntry]) -> None:
        put: Callable[[BatchEntry], bool] = lambda entry: self.files.put_if_absent(  # noqa: E731
            entry.batch.commit, encode_entry(entry)
        )
        assert all(map_concurrently(put, added))


@contextmanager
def tables(folder: str, batches: int, files: int) -> Iterator[dict[str, list[tuple[str, Grown, Files]]]]:
    """The table on each file system, with the ways to read it."""
    path = f"{folder}/table"
    with HdfsServer(Path(folder, "hdfs")) as server:
        far = f"{server.url}/benchmark/table"
        with (
            open_files(path) as local,
            open_files(far) as by_java,
            open_files(far, conf={"squall.webhdfs.address": server.webhdfs}) as by_web,
        ):
            here, there = Grown(local, batches, files), Grown(by_java, batches, files)
            yield {
                "local files": [("", here, local)],
                "HDFS": [("", there, by_java), (", by WebHDFS", there, by_web)],
            }


def read(files: Files, expected: int) -> tuple[TableState, float]:
    """Return the content of a table, and the seconds that reading took."""
    started = time.perf_counter()
    state = require_readable(files, read_state(files))
    seconds = time.perf_counter() - started
    assert len(state.entries) == expected, f"{len(state.entries)} of {expected} batches"
    return state, seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=2, help="data files of a batch")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder,
        tables(folder, given.batches, given.files) as found,
    ):
        print(
            f"{given.batches:,} batches of {given.files} files in checkpoints; seconds, {given.rounds} rounds"
        )
        for loose in LOOSE:
            for place, ways in found.items():
                for how, table, files in ways:
                    table.grow(loose)
                    first = read(files, given.batches + loose)[1]
                    rounds = [read(files, given.batches + loose)[1] for _ in range(given.rounds)]
                    name = f"{place}{how}, and {loose} entries of their own"
                    print(f"{name:>50}: {spread(rounds, '.3f')}, before that {first:.3f}", flush=True)
