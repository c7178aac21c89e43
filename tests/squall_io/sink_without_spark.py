"""What stands for Spark in a sink whose files pyarrow writes."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from squall_io.kit.waiting import DoublingWait
from squall_io.spark.rows.arrow import arrow_schema
from squall_io.spark.rows.schema import Schema
from squall_io.spark.sink import sink_table
from squall_io.spark.sink.writing import WriteAs


class Lease:
    """A lease of no session."""

    def __init__(self) -> None:
        self.session: Any = object()

    def renew(self, session: Any) -> None: ...

    def release(self, linger: float) -> None: ...


class PyarrowWriter:
    """Writes a file to a local folder, as a `TableWriter` does."""

    def __init__(self, session: Any, schema: Schema, write_as: WriteAs) -> None:
        self.session, self.schema = session, arrow_schema(schema)

    def write(self, rows: Any, folder: str) -> None:
        import pyarrow.parquet

        place = Path(folder.removeprefix("file://"))
        place.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows.cast(self.schema), place / f"part-{uuid.uuid4().hex}.parquet")

    def warm_up(self, folder: str) -> None:
        import pyarrow

        self.write(
            pyarrow.table([pyarrow.nulls(1, each.type) for each in self.schema], schema=self.schema), folder
        )

    def close(self) -> None: ...


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sinks of this test do without Spark, without waits, and without syncs of the disk."""
    pytest.importorskip("pyspark")  # it has to be installed, for its types; it is not started
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(sink_table, "shared_session", lambda *more: Lease())
    monkeypatch.setattr(sink_table, "TableWriter", PyarrowWriter)
    monkeypatch.setattr(sink_table, "is_broken", lambda session: False)
    monkeypatch.setattr(DoublingWait, "first", 0.0)
    monkeypatch.setattr(os, "fsync", lambda file: None)
