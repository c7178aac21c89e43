"""What is in the inbox of a task with epochs besides the tuples that come over links.

Must not know: tasks, links.
"""

from __future__ import annotations

from typing import Any

from squall.transport.frames import NO_MORE, Batch
from topology_api.tuples import UNTRACKED, Source
from worker.epochs.messages import SnapshotMarker


class MarkerBatch(Batch):
    """A snapshot marker in an inbox."""

    def __init__(self, marker: SnapshotMarker, source: Source, target: int) -> None:
        super().__init__(source, target, [], [], [])
        self.marker = marker


class AgainBatch(Batch):
    """Tuples that a task has to execute again: it had them in its hands at the commit with which it begins."""

    def __init__(self, source: Source, target: int, rows: list[Any], awaited: bool) -> None:
        none = [UNTRACKED] * len(rows)
        super().__init__(source, target, rows, none, none, NO_MORE)
        #: Whether the end of the input waits until they are settled.
        self.awaited = awaited
