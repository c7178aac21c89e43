"""What a table holds now, for a stream that asks very often.

Must not know: Spark, what is read of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from squall.stores.files import Files
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS
from squall_io.spark.manifest.state import TableState, read_state, require_readable

#: Seconds between two looks: Spark asks a hundred times a second.
LOOK_SECONDS: Final = 0.2


class TableWatch:
    """The state of a table, which is read again only if there are other records than at the last look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: TableState | None = None
        self._records: frozenset[str] = frozenset()
        self._looked = 0.0

    def state_of(self, files: Files) -> TableState:
        """Return what the table holds. Raises `UnreadableManifest` and the errors of `Files`."""
        now = self._clock()
        if self._state is not None and now < self._looked + LOOK_SECONDS:
            return self._state
        # An entry may be in a checkpoint before its own file was seen.
        records = frozenset(status.path for folder in (COMMITS, CHECKPOINTS) for status in files.list(folder))
        if self._state is None or self._state.uncertain or records != self._records:
            self._state = require_readable(files, read_state(files))
        self._records, self._looked = records, now
        return self._state
