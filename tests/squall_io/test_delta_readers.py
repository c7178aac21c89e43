"""Other readers of Delta tables see exactly the committed rows, also while they are being written: deltalake, Polars, DuckDB.

Rows are written by PyArrow here; `tests/spark/test_sink.py` has those that Spark writes.
"""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import duckdb
import polars
import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from squall.stores.local import LocalFiles
from squall_io.spark.delta import following
from squall_io.spark.delta.following import catch_up, enable, newest_version
from squall_io.spark.delta.own_batches import OwnBatches
from tests.spark.batches import SinkTask

ROWS = 3


def parquet(number: int) -> bytes:
    """A file of the rows of a batch."""
    target = io.BytesIO()
    table = pyarrow.table({"number": pyarrow.array([number] * ROWS, pyarrow.int64())})
    pyarrow.parquet.write_table(table, target)
    return target.getvalue()


def by_duckdb(path: Path) -> list[int]:
    """What DuckDB reads of the files that the log names: its extension for Delta is not on PyPI."""
    uris = DeltaTable(path).file_uris()
    return [
        row[0] for row in duckdb.connect().execute("SELECT number FROM read_parquet(?)", [uris]).fetchall()
    ]


READERS = {
    "deltalake": lambda path: DeltaTable(path).to_pyarrow_table()["number"].to_pylist(),
    "polars": lambda path: polars.scan_delta(str(path)).collect()["number"].to_list(),
    "duckdb": by_duckdb,
}


def test_a_table_that_is_being_written_is_read_in_whole_batches_by_every_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECKPOINT_EVERY", 7)
    files = LocalFiles(str(tmp_path))
    task = SinkTask(files, "number bigint, day string", partition_by=["day"])
    enable(files, time.time)
    own = OwnBatches(time.time, ("day",), newest_version(files))
    begun, over = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            days = ("day=2026-01-01", "day=a%3Ab", "day=__HIVE_DEFAULT_PARTITION__")
            entry = task.put(
                {f"{day}/a.parquet": parquet(number) for day in days}, len(days) * ROWS, time.time()
            )
            own.waiting.append(entry)
            own.add(files)
            begun.set()
            if number % 7 == 0:
                catch_up(files, time.time)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        for read in READERS.values():
            seen = 0
            for _ in range(5):
                found = read(tmp_path)
                assert {found.count(number) for number in set(found)} <= {3 * ROWS}
                assert set(found) == set(range(1, len(set(found)) + 1)) and len(found) >= seen
                seen = len(found)
    finally:
        over.set()
        writer.join()
    written = sorted(number for number in range(1, task.batches + 1) for _ in range(3 * ROWS))
    assert all(sorted(read(tmp_path)) == written for read in READERS.values())
    days = polars.scan_delta(str(tmp_path)).select("day").unique().collect()["day"].to_list()
    assert set(days) == {"2026-01-01", "a:b", None}
