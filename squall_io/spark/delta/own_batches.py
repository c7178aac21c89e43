"""The batches of one task on their way into the Delta log of its table: without reading the manifest, which takes long.

See `following` for why no batch is added twice, and none too early.
Must not know: the manifest, Spark, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from squall.stores.files import AbsentFile, Files
from squall_io.spark.delta import log_names
from squall_io.spark.delta.actions import decode_actions, encode_actions
from squall_io.spark.delta.following import adding_actions
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.layout import COMMITS, batch_of

#: How many names of batches that are in the log are remembered. Two tasks may both have made the batch of an epoch visible, if
#: a checkpoint of the manifest took its entry between; they do so within a few epochs.
REMEMBERED: Final = 10_000


@dataclass
class OwnBatches:
    """Adds the batches of one task to the log.

    version: the newest version when the task began, before its first batch (`newest_version`).
    """

    wall: Callable[[], float]
    partition_by: Sequence[str]
    version: int
    #: Batches that are committed, and not yet in the log.
    waiting: list[BatchEntry] = field(default_factory=list)
    #: Batches that are in the log, or whose rows are, by their names; the oldest first.
    _known: dict[str, None] = field(default_factory=dict, init=False)

    def unknown_of(self, files: Files) -> set[str]:
        """Return the batches with an entry that the log did not name since the task began. Reads what others have put."""
        names = {str(batch) for status in files.list(COMMITS) if (batch := batch_of(status.name)) is not None}
        while files.exists(path := log_names.version_path(self.version + 1)):
            self._skip(files, path)
            self.version += 1
        return names - self._known.keys()

    def add(self, files: Files) -> None:
        """Add the batches that wait; each must have passed the last look of the protocol. Raises errors of `Files`, after which
        the batches wait on, and `ForeignLog`.
        """
        while self.waiting:
            self.waiting = [entry for entry in self.waiting if str(entry.batch) not in self._known]
            path = log_names.version_path(self.version + 1)
            actions = adding_actions((), self.waiting, self.partition_by, self.wall())
            if self.waiting and files.put_if_absent(path, encode_actions(actions)):
                self._remember(str(entry.batch) for entry in self.waiting)
                self.version += 1
            elif self.waiting:
                self._skip(files, path)
                self.version += 1

    def _skip(self, files: Files, path: str) -> None:
        """Read a version that another process has put: it may have these batches already, or those that replace them."""
        try:
            data = files.read(path)
        except AbsentFile:
            return  # so old that it was deleted: it cannot name batches of a task that began later
        for action in decode_actions(data, f"{files.root}/{path}"):
            if (info := action.commit_info) is not None:
                self._remember((*info.batches, *info.replaces))

    def _remember(self, names: Iterable[str]) -> None:
        self._known |= dict.fromkeys(names)
        for name in list(islice(self._known, max(0, len(self._known) - REMEMBERED))):
            del self._known[name]
