"""SqlSink: a bolt that writes a row for each tuple to a table of a SQL database.

    builder.set_bolt("write", SqlSink("postgresql+psycopg://app@db/shop", "orders", ["id", "price"])).shuffle_grouping("orders")

SQLAlchemy is imported where it is used. Must not know: statements, transactions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from squall_io.kit.waiting import Waiting
from squall_io.sql.address import address_problems, parsed, shown_url, with_password
from topology_api import FailTuple, InvalidConfig, SquallError
from topology_api.token_sink import TokenSink

if TYPE_CHECKING:
    from squall_io.sql.database import Database
    from topology_api import Context, Tuple

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
T = TypeVar("T")
#: Seconds between two looks at whether the task is stopped, while it waits.
LOOK: Final = 0.2
#: The databases that can insert a row or update the one that is there, in one statement that SQLAlchemy knows.
UPSERTING: Final = ("postgresql", "sqlite", "mysql", "mariadb")


class SqlSink(TokenSink):
    """Writes a row for each tuple. The table must exist; the table of tokens is created if it is missing.

    In a topology with `topology.state.path` each row is written once, in any other at least once.

    url: the database, as for SQLAlchemy's `create_engine`, such as "postgresql+psycopg://app@db/shop".
    table: the table, with its schema if needed ("sales.orders").
    columns: the field of each column, or the names of columns that are named like their fields.
    key: the columns that tell rows apart. A row whose key is in the table replaces the values of `columns` there; without
        `key`, rows are inserted. The table needs a unique index on exactly these columns. For PostgreSQL, SQLite and MySQL.
    tokens: the table that keeps what was written, with the columns name and number; created if it is missing.
    password: the name of the password: `env:NAME`, an environment variable of the workers, or `file:PATH`, a file on their
        hosts; it is looked up where the task starts. A URL with a password is refused, also one with an option such as
        sslpassword: topologies lie in ZooKeeper.
    """

    _database: Database | None = None
    _waiting: Waiting | None = None
    _stopped: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(
        self,
        url: str,
        table: str,
        columns: Mapping[str, str] | Sequence[str],
        *,
        key: str | Sequence[str] | None = None,
        tokens: str = "squall_tokens",
        password: str | None = None,
    ) -> None:
        address = parsed(url, type(self).__name__)
        names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        problems = address_problems(address, password)
        if isinstance(columns, str) or not names:
            problems.append(f"columns is {columns!r}: give a list of names, or a dict from columns to fields")
        if not table:
            problems.append("table is empty: give the name of the table to write")
        if not _NAME.fullmatch(tokens):
            problems.append(f"tokens is {tokens!r}: give the name of a table, of letters, digits and _")
        if key is not None:
            problems += _key_problems(keys, names, address.get_backend_name())
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url = url
        self.table = table
        self.columns = names
        self.tokens = tokens
        self.key = keys
        self.password = password

    def row(self, tup: Tuple) -> dict[str, Any]:
        """Return the values of a tuple by column. Raises FailTuple if the table does not take them."""
        from squall_io.sql.values import value_problem

        database, row = self._database, {}
        for column, field in self.columns.items():
            try:
                row[column] = tup[field]
            except KeyError as error:
                raise FailTuple(f"column {column!r}: {error.args[0]}") from None
        for column in self.key:
            if row[column] is None:
                raise FailTuple(
                    f"table {self.table!r}: key column {column!r} is None, which is equal to no value"
                    f" (field {self.columns[column]!r})"
                )
        if database is None:  # it could not be reached so far: the row waits, and the database checks it
            return row
        for known in database.columns:
            if (problem := value_problem(known, row[known.name], database.dialect)) is not None:
                raise FailTuple(f"table {self.table!r}: {problem} (field {self.columns[known.name]!r})")
        return row

    def prepare(self, context: Context) -> None:
        """Look at the table, if the database can be reached now. Raises SquallError for a table that is missing or other, and
        for a login that is refused."""
        from squall_io.sql.reaching import is_away, is_wrong_login, wrong_login

        address = parsed(self.url, type(self).__name__)
        self._waiting = Waiting(shown_url(address), context.log, context.progress, context.now)
        self._stopped = lambda: context.stopped
        try:
            self._opened()
        except Exception as error:
            if is_wrong_login(error):
                raise wrong_login(self._waiting.what, error) from None
            if not is_away(error):
                raise
            context.log.warning("cannot reach the database yet: %s", error)

    def read_token(self, token: str) -> int:
        """Return the number of the last epoch that was written under this name."""
        return self._answer(lambda database: database.number(token))

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """Write the rows in one transaction, with a token only if its number is `expected`. Raises RowsRefused for rows that
        the database refuses whenever they come, such as by a constraint."""
        if token is None or epoch is None:
            self._answer(lambda database: database.write(rows))
            return True
        # What was written before an answer was lost has set the token: then this is refused, and the token is read.
        return self._answer(lambda database: database.write_once(rows, token, expected, epoch))

    def cleanup(self) -> None:
        """Close the connections."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _answer(self, call: Callable[[Database], T]) -> T:
        """Make a call, again and again while the database is away. Raises SquallError for a login that is refused, and where
        the task is stopped meanwhile."""
        from squall_io.sql.database import reason
        from squall_io.sql.reaching import is_away, is_wrong_login, wrong_login

        while True:
            try:
                answer = call(self._opened())
            except Exception as error:
                waiting = self._waiting
                if waiting is None:
                    raise
                if is_wrong_login(error):
                    raise wrong_login(waiting.what, error) from None
                if not is_away(error):
                    raise
                self._pause(waiting, waiting.failed(reason(error)))
            else:
                if self._waiting is not None:
                    self._waiting.succeeded()
                return answer

    def _pause(self, waiting: Waiting, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped():
                raise SquallError(f"the task is stopped while it waits for {waiting.what}: {waiting.reason}")
            time.sleep(min(left, LOOK))

    def _opened(self) -> Database:
        if self._database is None:
            from squall_io.sql.database import Database

            url = with_password(parsed(self.url, type(self).__name__), self.password)
            self._database = Database(url, self.table, tuple(self.columns), self.tokens, self.key)
        return self._database


def _key_problems(key: tuple[str, ...], columns: Mapping[str, str], backend: str) -> list[str]:
    problems = []
    if not key:
        problems.append("key has no columns: leave it out to insert rows")
    if missing := [repr(name) for name in key if name not in columns]:
        problems.append(f"key has {', '.join(missing)}, not in columns: give columns that the sink writes")
    if backend not in UPSERTING:
        problems.append(
            f"key is given, and url is for {backend}: rows can be updated by key in {', '.join(UPSERTING)} only; leave"
            " key out to insert rows"
        )
    return problems
