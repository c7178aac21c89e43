"""TokenSink: the base class of bolts that write rows to a system with transactions, each row once.

Like the other base classes it holds nothing and has no constructor. Must not know: who keeps epochs, how rows are written.
"""

from __future__ import annotations

from typing import Any

from topology_api.committing_sink import CommittingSink
from topology_api.errors import SquallError


class TokenSink(CommittingSink):
    """A bolt that writes rows to a system with transactions. Subclasses define `read_token`, `write` and, mostly, `row`.

    With `topology.state.path`, the rows of an epoch are part of the commit, and are written after it in one transaction, which
    also compares and sets the number of a *token*: so each row is there once, whatever is killed. Without it, batches are
    written as they come, and a row may be there twice after a failure. `row` is called beside `read_token` and `write`: see
    `CommittingSink`.
    """

    def read_token(self, token: str) -> int:
        """Return the number that was last set for a token; 0: none was."""
        raise SquallError(f"{type(self).__name__} has no read_token(token): define it")

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """In one transaction: if the number of the token is `expected`, write the rows and set the number to `epoch`.

        Returns False, with nothing written, if the number is another one. epoch and token are None where the state of the
        topology is in memory: then the rows are only written. An exception means that it is not known whether anything was
        written: the token is read, and the call made again if it has to be.

        Raise RowsRefused, with nothing written, for rows that the system would refuse whenever they come: their tuples become
        dead letters. They are named in the next commit, and after it the others are written under the same number.
        """
        raise SquallError(f"{type(self).__name__} has no write(epoch, rows, expected, token): define it")

    def write_batch(self, rows: list[Any]) -> None:
        """Write rows without a token."""
        self.write(None, rows, 0, None)
