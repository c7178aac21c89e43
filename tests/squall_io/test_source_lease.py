"""A stream of `format("squall")` holds its table: what it is about to read outlives compactions and vacuums, until it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall.stores.files import FilesRefused
from squall.stores.local import LocalFiles
from squall_io.spark.compaction.compacting import compact
from squall_io.spark.compaction.parquet_merges import merge_parquet
from squall_io.spark.manifest.leases import ReaderLease, held_leases
from squall_io.spark.manifest.rewriting import Wanted
from squall_io.spark.manifest.state import read_state
from squall_io.spark.retention.vacuum import Vacuumed, vacuum
from squall_io.spark.source import watching
from squall_io.spark.source.data_source import SquallSource, StreamReader
from tests.spark.batches import SinkTask
from tests.squall_io.compacted_tables import DDL, put

#: Every batch was replaced before that moment.
LATER = 1e12


class Table:
    """A table with two batches, and the readers of its streams."""

    def __init__(self, folder: Path) -> None:
        self.files = LocalFiles(str(folder / "counts"))
        self.task = SinkTask(self.files, DDL, partition_by=["day"])
        for number in range(2):
            put(self.task, float(number))

    def stream(self) -> StreamReader:
        """What plans and reads a new query."""
        from pyspark.sql.types import LongType, StringType, StructType

        source = SquallSource({"path": self.files.root})
        assert source.schema() == DDL
        schema = StructType().add("n", LongType()).add("text", StringType()).add("day", StringType())
        found = source.streamReader(schema)
        assert isinstance(found, StreamReader)
        return found

    def leases(self) -> list[ReaderLease]:
        return [each.lease for each in held_leases(self.files, 0.0)]

    def compact_and_vacuum(self) -> Vacuumed:
        """Move all rows, and delete what no reader holds."""
        assert compact(self.files, Wanted(data="data"), merge_parquet, "a test").made
        return vacuum(self.files, 0.0, "a test", lambda: LATER)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.0)
    made = Table(tmp_path)
    yield made
    assert made.leases() == [], "a stream was not stopped"


def planned(stream: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The offset after the next rows, and what tasks read of them."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    return end, stream.partitions(start, end)


def numbers(stream: StreamReader, tasks: list[Any]) -> list[int]:
    """The rows of tasks."""
    return sorted(n for task in tasks for batch in stream.read(task) for n in batch.column("n").to_pylist())


def test_rows_that_a_stream_is_about_to_read_outlive_a_compaction_and_a_vacuum(table: Table) -> None:
    stream = table.stream()
    end, tasks = planned(stream, stream.initialOffset())
    [lease] = table.leases()
    assert lease.holder.startswith('a stream of format("squall") on ')
    done = table.compact_and_vacuum()
    assert (done.files, [each.holder for each in done.held]) == (0, [lease.holder])
    assert len(numbers(stream, tasks)) == 12  # another process reads them, as long as the query lives

    put(table.task, 5.0)
    _, more = planned(stream, end)
    assert vacuum(table.files, 0.0, "a test", lambda: LATER).files == 4, "its next rows are in other files"
    assert len(numbers(stream, more)) == 6
    stream.stop()


def test_a_stream_without_its_lease_would_not_find_its_files(table: Table) -> None:
    stream = table.stream()
    _, tasks = planned(stream, stream.initialOffset())
    stream.stop()
    assert table.compact_and_vacuum().files == 4
    with pytest.raises(Exception, match="of a committed batch is gone"):
        numbers(stream, tasks)


def test_a_stream_that_has_planned_nothing_yet_holds_everything(table: Table) -> None:
    stream = table.stream()
    stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert [lease.seen for lease in table.leases()] == [None]
    assert table.compact_and_vacuum().files == 0
    stream.stop()
    stream.stop()


def test_a_stream_that_may_not_write_reads_without_a_lease(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(self: LocalFiles, path: str, data: bytes) -> None:
        raise FilesRefused("permission denied")

    monkeypatch.setattr(LocalFiles, "replace", refused)
    stream = table.stream()
    _, tasks = planned(stream, stream.initialOffset())
    assert len(numbers(stream, tasks)) == 12
    stream.stop()
    assert "is read without a lease" in caplog.text


def test_a_frame_holds_nothing(table: Table) -> None:
    source = SquallSource({"path": table.files.root})
    source.schema()
    assert len(source.ranges()) == len(read_state(table.files).entries) * 2
    assert table.leases() == []
