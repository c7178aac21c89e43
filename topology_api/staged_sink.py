"""StagedSink: the base class of bolts whose rows are first kept out of sight, and become visible epoch by epoch.

Like the other base classes it holds nothing and has no constructor. Must not know: who keeps epochs, where rows are staged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from topology_api.committing_sink import CommittingSink
from topology_api.errors import SquallError


class StagedSink(CommittingSink):
    """A bolt whose rows become visible epoch by epoch. Subclasses define `stage`, `commit`, `abort` and, mostly, `row`.

    With `topology.state.path`, the rows of an epoch are staged at its end: kept safe where no reader sees them. The *handle* of
    what was staged is part of the commit, and is committed after it: so each row is there once, whatever is killed. Without
    `topology.state.path` each batch is staged and committed at once, with None as its epoch, and a row may be there twice after
    a failure.

    These calls are the two phases of a commit, which others call prepare and commit. The first one has another name here, since
    `prepare(context)` prepares the task. A call that raises is reported, and made again after a pause. `row` is called beside
    them: see `CommittingSink`.

    lineage: names the state of the topology, for `stage`, `commit` and `abort`: epochs begin at 1 in each lineage. "" without
        `topology.state.path`.
    """

    lineage: str = ""

    def stage(self, epoch: int | None, rows: list[Any]) -> Any:
        """Keep the rows of an epoch safe, and return a handle: what `commit` needs to make them visible; None: there is nothing
        to make visible.

        A handle is kept as msgpack: None, bool, numbers, text, bytes, and lists and dicts of these. It must do for a new object
        in another process. The same epoch may be staged again after a failure, so each call must use a place of its own.

        Raise RowsRefused, with nothing staged, for rows that can never be staged: their tuples become dead letters, and the
        call is made again with the others.
        """
        raise SquallError(f"{type(self).__name__} has no stage(epoch, rows): define it")

    def commit(self, epoch: int | None, handle: Any) -> None:
        """Make visible what was staged. Epochs come in order. Must do nothing if it is visible already: the call is made again
        if its end could not be noted.
        """
        raise SquallError(f"{type(self).__name__} has no commit(epoch, handle): define it")

    def abort(self, epoch: int | None, handle: Any) -> None:
        """Remove what was staged for an epoch that will never be committed. May be called again.

        Not called for what a killed process has staged, nor when a task moves to another worker: let old leftovers be found by
        their place. Without `topology.state.path` it is called when `commit` has raised: the rows come again.
        """
        raise SquallError(f"{type(self).__name__} has no abort(epoch, handle): define it")

    def write_batch(self, rows: list[Any]) -> None:
        """Stage and commit rows that belong to no epoch."""
        handle = self.stage(None, rows)
        if handle is None:
            return
        try:
            self.commit(None, handle)
        except BaseException:
            with suppress(Exception):  # the rows come again: what counts is why
                self.abort(None, handle)
            raise
