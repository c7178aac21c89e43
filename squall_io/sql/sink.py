"""SqlSink: a bolt that writes a row for each tuple to a table of a SQL database.

    builder.set_bolt("write", SqlSink("postgresql+psycopg://app@db/shop", "orders", ["id", "price"])).shuffle_grouping("orders")

SQLAlchemy is imported where it is used. Must not know: statements, transactions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from topology_api import FailTuple, InvalidConfig, SquallError
from topology_api.token_sink import TokenSink

if TYPE_CHECKING:
    from sqlalchemy import URL

    from squall_io.sql.database import Database
    from topology_api import Context, Tuple

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SqlSink(TokenSink):
    """Writes a row for each tuple. The table must exist; the table of tokens is created if it is missing.

    In a topology with `topology.state.path` each row is written once, in any other at least once.

    url: the database, as for SQLAlchemy's `create_engine`, such as "postgresql+psycopg://app@db/shop".
    table: the table, with its schema if needed ("sales.orders").
    columns: the field of each column, or the names of columns that are named like their fields.
    tokens: the table that keeps what was written, with the columns name and number.
    password_variable: the environment variable of the workers that holds the password, so that `url` need not.
    """

    _database: Database | None = None

    def __init__(
        self,
        url: str,
        table: str,
        columns: Mapping[str, str] | Sequence[str],
        *,
        tokens: str = "squall_tokens",
        password_variable: str | None = None,
    ) -> None:
        parsed = _parsed(url)
        names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        problems = []
        if isinstance(columns, str) or not names:
            problems.append(f"columns is {columns!r}: give a list of names, or a dict from columns to fields")
        if not table:
            problems.append("table is empty: give the name of the table to write")
        if not _NAME.fullmatch(tokens):
            problems.append(f"tokens is {tokens!r}: give the name of a table, of letters, digits and _")
        if password_variable is not None and not _NAME.fullmatch(password_variable):
            problems.append(
                "password_variable is no name of an environment variable: give the name, not the password"
            )
        if password_variable is not None and parsed.password is not None:
            problems.append("url has a password, and password_variable is given: give one of the two")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.url = url
        self.table = table
        self.columns = names
        self.tokens = tokens
        self.password_variable = password_variable

    def row(self, tup: Tuple) -> dict[str, Any]:
        """Return the values of a tuple by column. Raises FailTuple if the table does not take them."""
        from squall_io.sql.values import value_problem

        database, row = self._database, {}
        for column, field in self.columns.items():
            try:
                row[column] = tup[field]
            except KeyError as error:
                raise FailTuple(f"column {column!r}: {error.args[0]}") from None
        if database is None:  # it could not be reached so far: the row waits, and the database checks it
            return row
        for known in database.columns:
            if (problem := value_problem(known, row[known.name], database.dialect)) is not None:
                raise FailTuple(f"table {self.table!r}: {problem} (field {self.columns[known.name]!r})")
        return row

    def prepare(self, context: Context) -> None:
        """Look at the table, if the database can be reached now. Raises SquallError for a table that is missing or other."""
        from sqlalchemy.exc import OperationalError

        try:
            self._opened()
        except OperationalError as error:
            context.log.warning("cannot reach the database yet: %s", error.orig)

    def read_token(self, token: str) -> int:
        """Return the number of the last epoch that was written under this name."""
        return self._opened().number(token)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """Write the rows in one transaction, with a token only if its number is `expected`. Raises RowsRefused for rows that
        the database refuses whenever they come, such as by a constraint."""
        if token is None or epoch is None:
            self._opened().write(rows)
            return True
        return self._opened().write_once(rows, token, expected, epoch)

    def cleanup(self) -> None:
        """Close the connections."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> Database:
        if self._database is None:
            from squall_io.sql.database import Database

            self._database = Database(self._url(), self.table, tuple(self.columns), self.tokens)
        return self._database

    def _url(self) -> URL:
        url = _parsed(self.url)
        if self.password_variable is None:
            return url
        if (password := os.environ.get(self.password_variable)) is None:
            raise SquallError(
                f"the environment of the worker has no {self.password_variable}, which holds the password for"
                f" {url.render_as_string(hide_password=True)}: set it where the worker is started"
            )
        return url.set(password=password)


def _parsed(url: str) -> URL:
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        raise SquallError("SqlSink needs SQLAlchemy: install Squall with its extra `sql`") from None
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # the text may hold a password: it is not shown
        raise InvalidConfig(
            ["url is no address of a database: give one like sqlite:///file.db"], "SqlSink"
        ) from None
