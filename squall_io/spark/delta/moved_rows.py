"""How batches that replace others get into a Delta log: what is added before them, and what each of them removes.

A reader of the log that follows its changes is to see each row once: in the batch that brought it, and not again when it is
moved. So a file that only moves rows changes no data (`dataChange`), and each batch that it replaces is in an earlier version.
If the log knows none of the replaced batches, as after a log was made for a table that had been compacted, it need not learn
of them: then the moved rows are new to it, and files that were deleted since do not get into it.
Must not know: actions, files of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.layout import batch_of
from squall_io.spark.manifest.state import TableState


@dataclass(frozen=True)
class Moving:
    """A version that adds a batch which replaces others."""

    entry: BatchEntry
    adds: tuple[DataFile, ...]
    removes: tuple[DataFile, ...]
    #: Whether its rows are new to the log.
    is_new: bool
    #: The batches whose rows it has, except those that earlier versions name.
    replaces: tuple[str, ...]


@dataclass
class MissingBatches:
    """What a log lacks."""

    state: TableState
    #: The files that it has after all that was found so far.
    live: set[str]
    plain: list[BatchEntry] = field(default_factory=list)
    moving: list[Moving] = field(default_factory=list)

    def find(self, entry: BatchEntry) -> None:
        """Add an entry, and first those that it replaces, as far as the log lacks them."""
        replaced = list(self._replaced(entry))
        if entry.paths <= self.live and not (entry.dropped and self._has_more(replaced, entry)):
            return
        if not entry.replaces:
            self.plain.append(entry)
            self.live |= entry.paths
            return
        is_new = not any(self._is_known(each) for each in replaced)
        names = tuple(dict.fromkeys(self._names(entry)))
        if not is_new:
            for each in replaced:
                self.find(each)
        adds = tuple(file for file in entry.files if file.path not in self.live)
        gone = self.live - entry.paths
        removes = tuple(file for each in replaced for file in each.files if file.path in gone)
        self.moving.append(Moving(entry, adds, removes, is_new, names))
        self.live -= {file.path for file in removes}
        self.live |= entry.paths

    def _replaced(self, entry: BatchEntry) -> Iterator[BatchEntry]:
        """Yield the batches that an entry itself replaces."""
        for name in entry.replaces:
            batch = batch_of(name)
            if batch is not None and (found := self.state.counted.get(batch)) is not None:
                yield found

    def _has_more(self, replaced: Iterable[BatchEntry], entry: BatchEntry) -> bool:
        """Return whether the log has files of replaced batches that an entry does not take over."""
        return any(not (each.paths - entry.paths).isdisjoint(self.live) for each in replaced)

    def _is_known(self, entry: BatchEntry) -> bool:
        """Return whether the log has rows of an entry, in its files or in those of batches that it replaces."""
        if entry.paths & self.live:
            return True
        return any(self._is_known(each) for each in self._replaced(entry))

    def _names(self, entry: BatchEntry) -> Iterator[str]:
        """Yield the names of the batches whose rows an entry has, down to those whose files the log has."""
        yield from entry.replaces
        for each in self._replaced(entry):
            if each.replaces and not each.paths <= self.live:
                yield from self._names(each)


def is_dropped(file: DataFile, dropped: AbstractSet[str]) -> bool:
    """Return whether rows of a file were dropped."""
    return not dropped.isdisjoint(name for name, _ in file.parts or ((file.name, 0),))


def missing_from(live: AbstractSet[str], certain: Iterable[BatchEntry], state: TableState) -> MissingBatches:
    """Return what a log with these files lacks to have the entries that count for certain."""
    found = MissingBatches(state, set(live))
    for entry in sorted(certain, key=lambda entry: (bool(entry.replaces), entry.committed, entry.batch)):
        found.find(entry)
    return found
