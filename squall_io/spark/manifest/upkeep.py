"""When a checkpoint is made: after many batches, by whichever task of a sink comes by.

Must not know: who owns what, Spark.
"""

from __future__ import annotations

from typing import Final

from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.files import Files, each
from squall_io.spark.manifest.layout import COMMITS
from squall_io.spark.manifest.state import State, read_state

#: Entries in files of their own at which a checkpoint is made: reading a small file of HDFS costs about 5 ms.
DUE: Final = 200


def due(state: State) -> bool:
    """Whether a checkpoint is wanted."""
    return len(state.uncovered) >= DUE


def checkpoint_if_due(files: Files) -> bool:
    """Make a checkpoint if one is wanted; whether one was made. Costs one listing when none is."""
    if len(files.list(COMMITS)) < DUE:
        return False
    state = read_state(files)
    if state.checkpoint.unreadable:
        return False
    # Whoever made the checkpoint died before it had deleted them, or a commit's answer was lost and it was tried again.
    each(files.delete, [batch.commit for batch in state.needless])
    return due(state) and write_next(files, state.checkpoint, state.uncovered)
