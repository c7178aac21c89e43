"""What the sinks share that show the rows of an epoch once it is committed: TokenSink and StagedSink.

Must not know: who keeps epochs, how rows become visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topology_api.components import BatchBolt
from topology_api.errors import FailTuple, SquallError
from topology_api.tuples import Tuple


class CommittingSink(BatchBolt):
    """A bolt that makes rows of its tuples, and shows those of an epoch after its commit. Derive from one of its subclasses."""

    threaded = True

    def row(self, tup: Tuple) -> Any:
        """Return the row to write for a tuple: any value that can be pickled. Raise FailTuple for a tuple that makes no row."""
        return list(tup.values)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Write a batch that belongs to no epoch. A tuple that makes no row fails alone."""
        rows, refused = [], []
        for tup in tups:
            try:
                rows.append(self.row(tup))
            except FailTuple as error:
                refused.append((tup, error))
        if rows:
            self.write_batch(rows)
        for tup, reason in refused:
            self.fail(tup, reason)

    def write_batch(self, rows: list[Any]) -> None:
        """Write rows that belong to no epoch: the state of the topology is in memory."""
        raise SquallError(f"{type(self).__name__} derives from CommittingSink: use TokenSink or StagedSink")
