"""RedisCommitting: what the sinks of Redis share.

Must not know: which commands a row has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall_io.kit.waiting import Waiting
from squall_io.redis.address import url_problems
from squall_io.redis.connection import RedisConnection
from topology_api import Fields
from topology_api.token_sink import TokenSink
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from squall_io.redis.transactions import RedisTransactions
    from topology_api import Context


class RedisCommitting(TokenSink):
    """A sink whose rows are commands of Redis."""

    url: str
    password: str | None
    tokens: str
    _transactions: RedisTransactions | None = None

    def used(self) -> list[str]:
        """Return the fields of a tuple that the sink needs."""
        return []

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        for (component, stream), fields in inputs.items():
            for name in self.used():
                if name not in fields:
                    yield (
                        f"stream {stream!r} of component {component!r} has no field {name!r} to write; it has:"
                        f" {listed(fields)}"
                    )

    def prepare(self, context: Context) -> None:
        """Take what is needed to write. Redis is asked at the first write."""
        from squall_io.redis.transactions import RedisTransactions

        connection = RedisConnection(self.url, self.password, type(self).__name__)
        waiting = Waiting(connection.where, context.log, context.progress, context.now)
        self._transactions = RedisTransactions(connection, self.tokens, waiting, lambda: context.stopped)

    def read_token(self, token: str) -> int:
        """Return the number of the last epoch that was written under this name. Raises TokenWentBack if it was higher
        before."""
        return self._opened().number(token)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """Write the rows in one transaction, with a token only if its number is `expected`. Raises RowsRefused for rows that
        Redis refuses whenever they come, and TokenWentBack."""
        if token is None or epoch is None:
            self._opened().write(rows)
            return True
        return self._opened().write_once(rows, token, expected, epoch)

    def cleanup(self) -> None:
        """Close the connection."""
        if self._transactions is not None:
            self._transactions.close()

    def _opened(self) -> RedisTransactions:
        assert self._transactions is not None, "prepare was called"
        return self._transactions


def server_problems(url: object, password: object, tokens: object) -> Iterator[str]:
    """Yield what is wrong with the arguments that all sinks have."""
    yield from url_problems(url, password)
    if not isinstance(tokens, str) or not tokens:
        yield f"tokens is {typed(tokens)}: give what the keys of tokens begin with"


def field_problems(**names: object) -> Iterator[str]:
    """Yield which arguments are no name of a field, and not None."""
    for argument, name in names.items():
        if name is not None and (not isinstance(name, str) or not name):
            yield f"{argument} is {typed(name)}: give the name of a field, or None"


def fields_problem(fields: object) -> str | None:
    """Return why an argument is no list of fields, and not None."""
    if fields is None or isinstance(fields, str):
        return None
    if isinstance(fields, list | tuple) and fields and all(isinstance(each, str) for each in fields):
        return None
    return f"fields is {typed(fields)}: give a field, a list of fields, or None"


def names_in(fields: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names in an argument that passed `fields_problem`."""
    return None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
