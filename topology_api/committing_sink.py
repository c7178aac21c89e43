"""What the sinks share that show the rows of an epoch once it is committed: TokenSink and StagedSink.

Must not know: who keeps epochs, how rows become visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topology_api.components import BatchBolt
from topology_api.errors import FailTuple, RowsRefused, SquallError
from topology_api.tuples import Tuple


class CommittingSink(BatchBolt):
    """A bolt that makes rows of its tuples, and shows those of an epoch after its commit. Derive from one of its subclasses.

    With `topology.state.path`, `row` takes the tuples of the next epoch while another call of the sink waits for the system it
    writes to. So `row`, like `tick`, is called in a thread of its own, beside any other call, and must change nothing that
    they use: the rows come as an argument. All other calls are made one after the other, in one thread: `prepare`, then those
    that write, stage, commit or abort, then `cleanup`. With `threaded = False`, and in simulated time, no call is made beside
    another one; without `topology.state.path` all are made in one thread.

    keeps_by_default: whether the sink is a reason for a topology to keep its state where `topology.state.path` is auto. False
        for a sink whose commits cost more than rows that are there twice after a failure.
    """

    threaded = True
    keeps_by_default: bool = True

    def row(self, tup: Tuple) -> Any:
        """Return the row to write for a tuple: any value that can be pickled. Raise FailTuple for a tuple that makes no row.

        May be called while another call of the sink runs.
        """
        return list(tup.values)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Write a batch that belongs to no epoch. A tuple that makes no row, or one that is refused for good, fails alone."""
        kept: list[tuple[Tuple, Any]] = []
        refused: list[tuple[Tuple, FailTuple]] = []
        for tup in tups:
            try:
                kept.append((tup, self.row(tup)))
            except FailTuple as error:
                refused.append((tup, error))
        while kept:
            try:
                self.write_batch([row for _, row in kept])
                break
            except RowsRefused as error:
                reasons = error.reasons
                left = [each for at, each in enumerate(kept) if at not in reasons]
                if len(left) == len(kept):
                    raise  # it names none of the rows
                refused += [
                    (tup, FailTuple(reasons[at])) for at, (tup, _) in enumerate(kept) if at in reasons
                ]
                kept = left
        for tup, reason in refused:
            self.fail(tup, reason)

    def write_batch(self, rows: list[Any]) -> None:
        """Write rows that belong to no epoch: the state of the topology is in memory. Raises RowsRefused, with nothing written,
        for rows that are refused for good."""
        raise SquallError(f"{type(self).__name__} derives from CommittingSink: use TokenSink or StagedSink")
