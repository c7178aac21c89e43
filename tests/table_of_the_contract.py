"""The table to which the contract's sink writes, and what a reader sees of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from squall_io.spark import SparkSink
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import read_state
from squall_io.spark.stores import open_files
from topology_api import StagedSink


def make(table: Path) -> StagedSink:
    return SparkSink(str(table), "text string")


def values(number: int) -> dict[str, Any]:
    return {"text": f"row {number}"}


@cache
def rows_in(file: Path) -> list[Any]:
    """Return the rows of a file, which is never changed."""
    import pyarrow.parquet

    return [tuple(row.values()) for row in pyarrow.parquet.read_table(file).to_pylist()]


def visible(table: Path) -> list[Any]:
    if not table.exists():
        return []
    with open_files(str(table)) as files:
        entries = read_state(files).entries
    return [row for entry in entries for file in entry.files for row in rows_in(table / file.path)]


def staged(table: Path) -> int:
    folder = table / STAGING
    return len(list(folder.iterdir())) if folder.exists() else 0
