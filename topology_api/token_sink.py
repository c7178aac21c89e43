"""TokenSink: the base class of bolts that write rows to a system with transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topology_api.components import BatchBolt
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from topology_api.tuples import Tuple


class TokenSink(BatchBolt):
    """A bolt that writes rows to a system with transactions."""

    threaded = True  # writes block

    def row(self, tup: Tuple) -> Any:
        """Return the row to write for a tuple. Raise FailTuple for a bad row."""
        return list(tup.values)

    def read_token(self, token: str) -> int:
        """Return the number that was last set under this name; 0 if there is none."""
        raise SquallError(f"{type(self).__name__} has no read_token(token): define it")

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """In one transaction: if the number of `token` is `expected`, write the rows and set it to `epoch`.

        Return False, with nothing written, if it is another number. With None as the token, and as the epoch, the rows are
        written without a token.
        """
        raise SquallError(f"{type(self).__name__} has no write(epoch, rows, expected, token): define it")

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Write a batch without a token."""
        self.write(None, [self.row(tup) for tup in tups], 0, None)
