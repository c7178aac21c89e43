"""Tables of Parquet files without Spark, for tests of compactions: what is written, and what readers of single batches find."""

from __future__ import annotations

import io
import logging
import random
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from squall.stores.files import Files
from squall_io.spark import CommittedRows
from squall_io.spark.manifest.state import read_state
from squall_io.spark.spouts.committed_rows import BatchUnits
from tests.spark.batches import SinkTask
from topology_api import Context

DDL = "n bigint, text string, day string"
DAYS = ("a", "b")


def parquet(numbers: list[int], **more: Any) -> bytes:
    """A file with a row for each number."""
    out = io.BytesIO()
    texts = pa.array([f"text {number}" for number in numbers], pa.string())
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64()), "text": texts}), out, **more)
    return out.getvalue()


def put(task: SinkTask, committed: float, rows: int = 3, days: tuple[str, ...] = DAYS) -> str:
    """Commit a batch, whose numbers tell its time, its file and their places; return its name."""
    content = {
        f"day={day}/part-0.snappy.parquet": parquet(
            [int(committed) * 1000 + at * 100 + row for row in range(rows)]
        )
        for at, day in enumerate(days)
    }
    return str(task.put(content, rows * len(days), committed).batch)


def rows_by_batch(files: Files, position: int = 0, **arguments: Any) -> dict[str, list[Any]]:
    """The rows of each batch from a position on, with their positions, as CommittedRows reads them, in its order."""
    units = BatchUnits(CommittedRows(files.root, ["n", "text", "day"], **arguments))
    units.open(context())
    try:
        found = units.units(units.snapshot())
        return {str(units.name(unit)): list(units.items(unit, position)) for unit in found}
    finally:
        units.close()


def context() -> Context:
    """The context of the only task of a spout."""
    nothing = cast(Any, None)
    return Context(
        topology="reader", topology_id="reader-1", component="rows", task=1, index=0, parallelism=1,
        conf={}, tasks=lambda component: [], log=logging.getLogger("task"), metrics=nothing, resources={},
        directory=lambda: "", now=lambda: 0.0, random=random.Random(0), wake=lambda: None,
    )  # fmt: skip


def drop_replaced(files: Files) -> int:
    """Delete the files of replaced batches, as a vacuum does; return how many there were."""
    state = read_state(files)
    kept = {path for entry in state.entries for path in entry.paths}
    gone = {path for entry in state.replaced for path in entry.paths if files.exists(path)} - kept
    for path in gone:
        files.delete(path)
    return len(gone)


def data_files(root: Path) -> set[str]:
    """The data files that are there."""
    return {str(path.relative_to(root)) for path in (root / "data").rglob("*.parquet")}
