"""CommittedRows gives the committed rows, unchanged, from every format, and continues after faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from squall.stores.files import OpenStore
from squall_io.files import FileSink
from squall_io.lines.errors import UnreadableFile
from squall_io.spark import CommittedRows
from squall_io.spark.manifest.tables import agree_on_schema
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.spouts import reading_spout
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from topology_api import Bolt, Topology, TopologyBuilder, Tuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ALL = """flag boolean, tiny tinyint, small smallint, whole int, big bigint, real float, exact double, price decimal(10,2),
    word string, day date, local timestamp_ntz, tags array<string>"""
BESIDES = ", at timestamp, raw binary, sizes map<string, int>, who struct<name: string, age: int>"
#: JSON has no maps with other keys and no binary of its own; ORC no timestamps with a zone; CSV nothing nested.
SCHEMAS = {
    "parquet": ALL + BESIDES,
    "orc": ALL,
    "json": ALL + ", at timestamp, who struct<name: string, age: int>",
    "csv": ALL.replace(", tags array<string>", "") + ", at timestamp",
}
NTZ = datetime(2026, 11, 21, 12, 30, 0, 123456)
FULL: dict[str, Any] = {
    "flag": True, "tiny": -128, "small": 32767, "whole": -(2**31), "big": 2**63 - 1, "real": 0.5, "exact": -0.1,
    "price": Decimal("-12345678.90"), "word": "a,\"b'\n\u20ac", "day": date(1582, 1, 2), "local": NTZ,
    "tags": ["x", None, ""], "at": datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc), "raw": b"\0\xff",
    "sizes": {"a": 1, "b": None}, "who": {"name": "Ada", "age": None},
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "table")) as store:
        yield store


class Take(Bolt):
    """Accepts its tuples; streams without readers are not emitted."""

    def execute(self, tup: Tuple) -> None: ...


def topology(spout: CommittedRows, tasks: int = 1) -> Topology:
    builder = TopologyBuilder("reader")
    builder.set_spout("rows", spout, parallelism=tasks)
    builder.set_bolt("take", Take()).shuffle_grouping("rows")
    return builder.build()


@pytest.mark.parametrize("file_format", ["parquet", "orc", "json", "csv"])
def test_rows_are_read_unchanged_in_every_format(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    ddl = SCHEMAS[file_format]
    names = parse_schema(ddl).names
    full = tuple(FULL[name] for name in names)
    empty = (None,) * len(names)
    task = SinkTask(files, ddl, file_format=file_format)
    for rows in ([full, empty], [empty], [full, full, full]):
        task.write(spark, rows, committed=float(task.batches))
    done = complete_topology(topology(CommittedRows(files.root, names)))
    assert done.emitted("rows") == [full, empty, empty, full, full, full]
    types = [type(value) for value in done.emitted("rows")[0]]
    assert types == [type(value) for value in full]
    at = dict(zip(names, done.emitted("rows")[0])).get("at")
    assert at is None or (at.utcoffset() is not None and not at.utcoffset())


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_partitions_and_added_columns_come_with_the_rows(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    ddl = "day date, place string, number int, word string"
    first = SinkTask(files, ddl, file_format=file_format, partition_by=["day", "place", "number"])
    rows = [
        (date(2026, 11, 21), "a b/c=d%\u20ac", -5, "one"),
        (None, None, None, "two"),
        (date(1, 1, 1), "x", 7, None),
    ]
    first.write(spark, rows, committed=1)
    agree_on_schema(files, parse_schema(f"{ddl}, extra int"))
    second = SinkTask(
        files, f"{ddl}, extra int", file_format=file_format, partition_by=first.table.partition_by, index=1
    )
    second.write(spark, [(date(2026, 1, 1), "y", 0, "new", 42)], committed=2)
    spout = CommittedRows(files.root, ["extra", "WORD", "day", "place", "number"])
    emitted = complete_topology(topology(spout)).emitted("rows")
    assert Counter(emitted[:3]) == Counter(
        (None, word, day, place, number) for day, place, number, word in rows
    )
    assert emitted[3:] == [(42, "new", date(2026, 1, 1), "y", 0)]


def test_several_tasks_share_the_batches_and_a_second_run_continues_where_the_first_ended(
    spark: SparkSession, files: OpenStore, tmp_path: Path
) -> None:
    task = SinkTask(files, "number bigint")
    for batch in range(5):
        task.write(spark, [(10 * batch + row,) for row in range(10)], committed=float(batch))
    positions = str(tmp_path / "positions")
    done = complete_topology(topology(CommittedRows(files.root, "number", positions=positions), 3))
    assert sorted(number for (number,) in done.emitted("rows")) == list(range(50))
    again = complete_topology(topology(CommittedRows(files.root, "number", positions=positions), 2))
    assert again.emitted("rows") == []


def test_with_a_state_path_a_killed_topology_goes_on_behind_its_last_commit(
    spark: SparkSession, files: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_spout, "AT_ONCE", 1)
    task = SinkTask(files, "number bigint", file_format="json")
    for batch in range(6):
        task.write(spark, [(10 * batch + row,) for row in range(10)], committed=float(batch))
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    for last in (False, True):
        builder = TopologyBuilder("reader", {**conf, "topology.max.spout.pending": 3})
        builder.set_spout("rows", SlowRows(files.root, "number"), parallelism=2)
        builder.set_bolt("out", FileSink(tmp_path / "out", "jsonl")).shuffle_grouping("rows")
        parquet = FileSink(tmp_path / "parquet", "parquet", schema="number bigint NOT NULL")
        builder.set_bolt("parquet", parquet).shuffle_grouping("rows")
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(builder.build())
            cluster.advance(200 if last else 0.45)
            assert last or cluster.status("reader").components["rows"].emitted < 60
    texts = [path.read_text() for path in (tmp_path / "out").glob("*.jsonl")]
    rows = [json.loads(line)["number"] for text in texts for line in text.splitlines()]
    assert sorted(rows) == list(range(60))
    frame = spark.read.parquet(str(tmp_path / "parquet"))
    assert sorted(row.number for row in frame.collect()) == list(range(60))
    assert len(list((tmp_path / "parquet").glob("*.parquet"))) > 1


class SlowRows(CommittedRows):
    """Emits some 50 rows a second in each task."""

    def next_tuple(self) -> float:
        return max(super().next_tuple() or 0.0, 0.02)


def test_a_file_that_differs_from_its_commit_is_named_and_gives_no_row(
    spark: SparkSession, files: OpenStore
) -> None:
    task = SinkTask(files, "number bigint")
    entry = task.write(spark, [(1,), (2,)])
    path = entry.files[0].path
    data = files.read(path)
    files.replace(path, data[:-1] + b"x")
    units = CommittedRows(files.root, "number")._units()
    units.open(_context())
    (unit,) = units.units(units.snapshot())
    with pytest.raises(UnreadableFile, match=f"{path} is damaged"):
        list(units.items(unit, 0))
    files.delete(path)
    with pytest.raises(UnreadableFile, match="no longer complete"):
        list(units.items(unit, 0))


def _context() -> Any:
    from tests.squall_io.test_spout_committed_rows import context

    return context()
