"""The files that one task's last snapshot consists of: a whole one, and those after it that hold only what had changed.

Changes are written until the files of changes are together as large as the whole one, or are many, or half of everything has
changed: then the next snapshot is whole again. So a task writes about twice what changes, and reads at most twice what it
holds. The chain goes on after a rewind, and in a new process. It ends, so that the next snapshot is whole, where a task begins
with the snapshots of several tasks, with those of another submission, whose types may be others, or of an earlier release.
Must not know: files, what snapshots hold.
"""

from __future__ import annotations

from typing import Final

from worker.epochs.snapshot_files import SnapshotLink, TaskSnapshot
from worker.routing.key_groups import GroupRange

#: The most files.
LONGEST: Final = 20


class SnapshotChain:
    """The chain of one task."""

    def __init__(self) -> None:
        #: The files of the last snapshot, the whole one first.
        self.links: list[SnapshotLink] = []
        #: How many cells the whole one holds.
        self.cells = 0
        #: Whether the task began with what this submission has written.
        self.same_submission = False
        #: The key groups of the task's keys, which the files are in the order of; None: they are not divided into groups.
        self.groups: GroupRange | None = None

    def restore(self, snapshot: TaskSnapshot | None, submission: str) -> None:
        """Begin with a snapshot that was read."""
        self.links, self.cells = [], 0
        self.same_submission = snapshot is not None and snapshot.submission == submission
        if snapshot is not None and self.same_submission:
            self.links, self.cells = list(snapshot.chain), snapshot.cells

    def wants_whole(self, touched: int) -> bool:
        """Return whether the next snapshot is whole. `touched`: how many cells have changed since the last one."""
        if not self.links or len(self.links) >= LONGEST or 2 * touched >= self.cells:
            return True
        whole, *changes = self.links
        return sum(each.bytes for each in changes) >= whole.bytes

    def begin(self, whole: bool) -> None:
        """The next snapshot begins."""
        if whole:
            self.links, self.cells = [], 0

    def written(self, link: SnapshotLink, cells: int) -> None:
        """The next snapshot is in the store. `cells`: how many it holds."""
        if not self.links:
            self.cells = cells
        self.links.append(link)
