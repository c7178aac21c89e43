"""Where the rows of each batch are: in the batch's own files, or in a part of the files of a compaction.

A compaction only moves rows. Its files name the batches that their rows are from, in the order of the rows (`parts`). So the
rows of a batch are the same before a compaction and after it, and after a second compaction of the same rows.
Must not know: which batches are wanted, what the files hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.state import TableState
from topology_api import SquallError


class UnknownParts(SquallError):
    """A file of a compaction that does not say which batches its rows are from."""


class RowRange(NamedTuple):
    """Rows of a file that follow each other."""

    #: Relative to the table.
    path: str
    #: The size of the whole file, in bytes.
    size: int
    #: The number of the first row in the file.
    first: int = 0
    #: None: all rows of the file.
    rows: int | None = None


def places_of(state: TableState) -> Mapping[str, tuple[RowRange, ...]]:
    """Return the rows of each batch that a sink has committed, by the batch's name. A batch without rows may be missing.
    Raises `UnknownParts`.
    """
    places: dict[str, list[RowRange]] = {}
    for entry in state.entries:
        for file in entry.files:
            for name, rows in _inside(entry, file):
                places.setdefault(name, []).append(rows)
    return {name: tuple(ranges) for name, ranges in places.items()}


def committed_by_sinks(entries: Iterable[BatchEntry]) -> Iterator[BatchEntry]:
    """Yield the entries of batches of sinks. Those of compactions only move rows."""
    return (entry for entry in entries if not entry.replaces)


def _inside(entry: BatchEntry, file: DataFile) -> Iterator[tuple[str, RowRange]]:
    if not entry.replaces:
        yield str(entry.batch), RowRange(file.path, file.size)
        return
    parts: tuple[tuple[str, int], ...] = getattr(file, "parts", ())
    if not parts:
        raise UnknownParts(
            f"{file.path} was written by the compaction {entry.batch}, and its entry does not say which batches its rows are"
            " from; read the table with read_committed"
        )
    first = 0
    for name, rows in parts:
        yield name, RowRange(file.path, file.size, first, rows)
        first += rows
