"""Where the rows of the batches are that sinks committed: in their own files, or in files of a batch that has replaced them.

A compaction moves rows to other files, and changes nothing else: who reads batch by batch, or from a moment on, gets the same
rows in the same order before and after it. For that, a merged file names the files whose rows it has (`DataFile.parts`), and
the entries of replaced batches stay in the manifest for ever, with the order of their files.
Must not know: file systems, which batches a reader wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.layout import batch_of
from squall_io.spark.manifest.state import TableState


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a file."""

    file: DataFile
    #: The place of the first row in the file, counted from 0.
    first: int = 0
    #: None: all rows of the file.
    rows: int | None = None
    #: The place of the file that these rows were committed in, among the files of its batch.
    place: int = 0
    #: The number of the schema that the file was written with.
    schema: int = 0

    @property
    def size(self) -> int:
        """Its share of the file's bytes."""
        if self.rows is None:
            return self.file.size
        return self.file.size * self.rows // max(1, sum(rows for _, rows in self.file.parts))


@dataclass(frozen=True)
class OriginalBatch:
    """A batch as it was committed, and where its rows are now."""

    entry: BatchEntry
    #: In the order of the rows. Of a file whose rows were deleted, there is no range.
    ranges: tuple[RowRange, ...]
    #: How many rows each file had whose rows were dropped, by its place among the files of the batch.
    dropped: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The rows that are there."""
        return self.entry.rows - sum(self.dropped.values())

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts batches in the order of their commits."""
        return (self.entry.committed, self.entry.batch)

    @property
    def size(self) -> int:
        """Its share of the bytes of the files that have its rows."""
        return sum(each.size for each in self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether all rows are there that were committed: retention may have deleted files."""
        return len(self.ranges) == len(self.entry.files)


def originals(state: TableState) -> list[OriginalBatch]:
    """Return the batches of a table that have files, in the order of their commits, without those that only move rows.

    A batch whose rows replace others, and that does not say which, is returned as it is; Squall writes no such batch.
    """
    found = [original for entry in state.entries for original in originals_of(entry, state)]
    return sorted(found, key=lambda original: original.order)


def originals_of(entry: BatchEntry, state: TableState) -> Iterator[OriginalBatch]:
    """Yield the batches whose rows an entry that is not replaced has."""
    if not entry.files:
        return
    if not entry.replaces:
        whole = (RowRange(file, place=place, schema=entry.schema) for place, file in enumerate(entry.files))
        yield OriginalBatch(entry, tuple(whole))
        return
    where = dict(_ranges(entry, state))
    known: set[str] = set()
    for committed in _committed(entry, state):
        ranges = [
            replace(there, place=place)
            for place, file in enumerate(committed.files)
            if (there := where.get(file.name)) is not None
        ]
        known.update(file.name for file in committed.files)
        dropped = {
            place: state.dropped[file.name]
            for place, file in enumerate(committed.files)
            if file.name in state.dropped and file.name not in where
        }
        if ranges:
            yield OriginalBatch(committed, tuple(ranges), dropped)
    # Files of its own without parts; the entries of some batches may be unreadable.
    if own := [there for name, there in where.items() if name not in known]:
        yield OriginalBatch(entry, tuple(own))


def _ranges(entry: BatchEntry, state: TableState) -> Iterator[tuple[str, RowRange]]:
    """Yield the names of the files that sinks committed, with the place of their rows."""
    for file in entry.files:
        writer = batch_of(file.name)  # not this entry's batch, if the entry took the file over as it was
        written = entry if writer is None else state.counted.get(writer, entry)
        first = 0
        for name, rows in file.parts:
            yield name, RowRange(file, first, rows, schema=written.schema)
            first += rows
        if not file.parts:
            yield file.name, RowRange(file, schema=written.schema)


def _committed(entry: BatchEntry, state: TableState) -> Iterator[BatchEntry]:
    """Yield the batches of sinks that an entry replaces, also those that were replaced before."""
    for name in entry.replaces:
        batch = batch_of(name)
        replaced = None if batch is None else state.counted.get(batch)
        if replaced is not None and replaced.replaces:
            yield from _committed(replaced, state)
        elif replaced is not None:
            yield replaced
