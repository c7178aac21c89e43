"""Decides when a checkpoint is made: after many batches, by any task of a sink.

Must not know: who owns what, Spark.
"""

from __future__ import annotations

from typing import Final

from squall_io.spark.concurrently import map_concurrently
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.files import Files
from squall_io.spark.manifest.layout import COMMITS
from squall_io.spark.manifest.state import TableState, read_state

#: Entries in files of their own at which a checkpoint is made: reading a small file of HDFS costs about 5 ms.
DUE: Final = 200


def due(state: TableState) -> bool:
    """Whether a checkpoint is due."""
    return len(state.uncovered) >= DUE


def checkpoint_if_due(files: Files) -> bool:
    """Make a checkpoint if one is due; return whether one was made. Costs one listing if not."""
    if len(files.list(COMMITS)) < DUE:
        return False
    state = read_state(files)
    if state.checkpoint.unreadable:
        return False
    # The checkpoint's writer died before it deleted them, or a commit was retried after its answer was lost.
    map_concurrently(files.delete, [batch.commit for batch in state.needless])
    return due(state) and write_next(files, state.checkpoint, state.uncovered)
