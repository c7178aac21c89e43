"""CommittedRows of a table of which old days are dropped: positions stay right, and a vacuum gets no more files than it may."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall.stores.files import OpenStore
from squall_io.spark.manifest.leases import held_leases
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import read_table
from squall_io.spark.retention.counting import counter
from squall_io.spark.retention.dropping import drop
from squall_io.spark.retention.vacuum import vacuum
from squall_io.spark.spouts.committed_rows import BatchUnits, CommittedRows
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.squall_io.test_spout_committed_rows import context

OLD, YOUNG, LATER = "day=2020-01-01/a.parquet", "day=2999-01-01/a.parquet", "day=2999-01-02/a.parquet"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "table")) as opened:
        yield opened


def parquet(*numbers: int) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), target)
    return target.getvalue()


def units_of(files: OpenStore) -> BatchUnits:
    units = BatchUnits(CommittedRows(files.root, ["n"], follow=True))
    units.open(context())
    return units


def later() -> float:
    return time.time() + 60


def test_rows_keep_their_positions_when_others_of_their_batch_are_dropped(files: OpenStore) -> None:
    task = SinkTask(files, "n bigint, day date", partition_by=["day"])
    task.put({OLD: parquet(1, 2, 3), YOUNG: parquet(4, 5), LATER: parquet(6)}, rows=6)
    task.put({OLD: parquet(7)}, rows=1, committed=1.0)
    units = units_of(files)
    mixed, gone = units.units(units.snapshot())
    assert [row for *_, row in units.items(mixed, 0)] == [(1,), (2,), (3,), (4,), (5,), (6,)]
    reading = units.items(mixed, 2)
    assert next(reading) == (2, 3, (3,))
    count = counter(files, read_table(files), None)  # type: ignore[arg-type]
    assert drop(files, 86_400.0, "a test", time.time, count).rows == 4
    found = vacuum(files, 0.0, "a test", later)
    assert (found.files, [each.batches for each in found.held]) == (0, [2])
    more = units.more()
    assert more is not None and set(more[0]) == {mixed, gone}
    assert [
        each.lease.holds(entry.batch)
        for each in held_leases(files, 0.0)
        for entry in read_state(files).entries
    ] == [False]
    assert vacuum(files, 0.0, "a test", later).files == 2
    assert list(reading) == [(3, 4, (4,)), (4, 5, (5,)), (5, 6, (6,))]
    assert list(units.items(mixed, 0)) == [(3, 4, (4,)), (4, 5, (5,)), (5, 6, (6,))]
    assert list(units.items(mixed, 5)) == [(5, 6, (6,))]
    assert list(units.items(gone, 0)) == []
    units.close()
    assert held_leases(files, 0.0) == ()
