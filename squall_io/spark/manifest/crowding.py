"""Finds the directories that have too many small files, for a process that looks again and again: it does not read the whole
manifest each time.

A look counts the files of the entries that have come since the last one. It counts too many where others were replaced
meanwhile, or do not count, and never too few. So if a directory seems to have too many, `begin` counts again, by the whole
manifest.
Must not know: what is done about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files
from squall_io.spark.manifest.checkpoints import entries_since
from squall_io.spark.manifest.entries import BatchEntry, decode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import COMMITS, BatchName, batch_of
from squall_io.spark.manifest.state import TableState


class Crowding:
    """Counts files with fewer than `small` bytes; more than `limit` of them in a directory are too many."""

    def __init__(self, small: int, limit: int) -> None:
        self._small = small
        self._limit = limit
        self._counts: Counter[str] = Counter()
        #: The newest checkpoint of which all entries are counted, and how many these are; None: nothing is counted yet.
        self._checkpoint: int | None = None
        self._checkpointed = 0
        #: The other entries that are counted.
        self._others: set[BatchName] = set()
        self._resting = False

    def may_be_crowded(self, files: Files) -> bool:
        """Return False if no directory has too many small files, or if there is nothing new since `rest`. Raises errors of
        `Files`."""
        if self._checkpoint is None:
            return True
        try:
            new = self._new_entries(files)
        except UnreadableRecord:
            return True  # who reads all of the manifest will say so
        self._count(new)
        self._resting = self._resting and not new
        return not self._resting and bool(self._crowded())

    def begin(self, state: TableState) -> frozenset[str]:
        """Count all again; return the directories that have too many small files."""
        self._counts.clear()
        self._count(state.entries)
        self._checkpoint, self._checkpointed = state.checkpoint.number, len(state.checkpoint.entries)
        self._others = state.counted.keys() - {entry.batch for entry in state.checkpoint.entries}
        self._resting = False
        return self._crowded()

    def rest(self) -> None:
        """Say that nothing can be done until something changes."""
        self._resting = True

    def _new_entries(self, files: Files) -> list[BatchEntry]:
        assert self._checkpoint is not None
        # An entry leaves this folder when a checkpoint has it, so the checkpoints are looked at later.
        named = (batch_of(status.name) for status in files.list(COMMITS))
        unread = [batch for batch in named if batch is not None and batch not in self._others]
        read = map_concurrently(lambda batch: _read(files, batch), unread)
        number, added = entries_since(files, self._checkpoint, self._checkpointed)
        found = {entry.batch: entry for entry in (*added, *filter(None, read))}
        new = [entry for batch, entry in found.items() if batch not in self._others]
        self._checkpoint, self._checkpointed = number, self._checkpointed + len(added)
        self._others = (self._others | found.keys()) - {entry.batch for entry in added}
        return new

    def _count(self, entries: Iterable[BatchEntry]) -> None:
        files = (file for entry in entries for file in entry.files)
        self._counts.update(file.directory for file in files if file.size < self._small)

    def _crowded(self) -> frozenset[str]:
        return frozenset(directory for directory, count in self._counts.items() if count > self._limit)


def _read(files: Files, batch: BatchName) -> BatchEntry | None:
    """Return an entry; None if it is in a checkpoint meanwhile, or was swept."""
    try:
        return decode_entry(files.read(batch.commit), batch.commit)
    except AbsentFile:
        return None
