"""Finds the rows of many keys by one statement.

The database decides which key a row has: its collations may find "ABC" for "abc". So keys that are not among the keys of the
rows that came back are asked for again, without the others, and then one by one if that brings rows.
Must not know: tuples, caches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    URL,
    Connection,
    MetaData,
    Table,
    and_,
    column,
    create_engine,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchTableError, OperationalError
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from squall_io.sql.database import reason, refuses
from topology_api import SquallError

Key = tuple[Any, ...]
Found = list[tuple[Any, ...]]

_QUERY: Final = re.compile(r"\s*(select|with)\s", re.IGNORECASE)
#: The databases that compare several columns with several values at once.
_ROWS: Final = ("postgresql", "sqlite", "mysql", "mariadb")
#: The most values in a statement: SQLite and PostgreSQL take 32,766 or more.
MOST_VALUES: Final = 10_000
#: What PostgreSQL calls a comparison of types that do not go together: no operator, another type, no conversion.
_TYPES: Final = ("42883", "42804", "42846")
#: What a server says that waiting does not help: the user, its password, or the database is wrong.
_WRONG: Final = re.compile(
    r"authentication failed|no password supplied|(role|user|database) \"?[^\"]*\"? does not exist"
    r"|access denied|unknown database|no pg_hba.conf entry",
    re.IGNORECASE,
)
#: Settings of libpq with which a dead connection is noticed within a minute.
_LIBPQ: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def is_query(table: str) -> bool:
    """Return whether a text is a query, and not the name of a table."""
    return _QUERY.match(table) is not None


def is_away(error: Exception) -> bool:
    """Return whether an error says that the database cannot be reached now, or that it is busy: waiting may help."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, TimeoutError)
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))


def is_wrong_login(error: Exception) -> bool:
    """Return whether the server refuses the user, the password or the database."""
    return isinstance(error, DBAPIError) and _WRONG.search(str(error.orig)) is not None


def is_of_key(error: Exception) -> bool:
    """Return whether an error is about the values of a key: its type does not go with the column's."""
    if refuses(error):
        return True
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _TYPES


class RowFinder:
    """One database, and a table in it or the rows of a query. The engine connects when it is first used."""

    def __init__(self, url: URL, table: str, key: Sequence[str], columns: Sequence[str]) -> None:
        self.shown = url.render_as_string(hide_password=True)
        settings = {}
        if url.get_driver_name() in ("psycopg", "psycopg2"):
            settings = {name: value for name, value in _LIBPQ.items() if name not in url.query}
        self.engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=settings)
        self.table = table
        self.key = tuple(key)
        self.columns = tuple(columns)
        self._source: FromClause | None = None

    def find(self, keys: Sequence[Key]) -> dict[Key, Found]:
        """Return the rows of each key, without rows an empty list. Raises SquallError for a table that is missing or other, and
        what the driver raises."""
        with self.engine.connect() as connection:
            most = max(1, MOST_VALUES // len(self.key))
            parts = [list(keys[at : at + most]) for at in range(0, len(keys), most)]
            return {key: rows for part in parts for key, rows in self._found(connection, part).items()}

    def check(self) -> None:
        """Look whether the table has the columns. Raises as `find` does."""
        with self.engine.connect() as connection:
            connection.execute(select(*self._selected(connection)).limit(1)).all()

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def _found(self, connection: Connection, keys: list[Key]) -> dict[Key, Found]:
        rows = self._rows(connection, keys)
        if len(keys) == 1:
            return {keys[0]: [row for each in rows.values() for row in each]}
        left = [key for key in keys if key not in rows]
        if rows and left:
            others = self._rows(connection, left)
            rows |= {key: others[key] for key in left if key in others}
            if others.keys() - set(left):
                for key in left:
                    rows[key] = [row for each in self._rows(connection, [key]).values() for row in each]
        return {key: rows.get(key, []) for key in keys}

    def _rows(self, connection: Connection, keys: list[Key]) -> dict[Key, Found]:
        selected = self._selected(connection)
        where = self._where(selected[: len(self.key)], keys)
        found: dict[Key, Found] = {}
        for row in connection.execute(select(*selected).where(where)):
            values = tuple(row)
            found.setdefault(values[: len(self.key)], []).append(values[len(self.key) :])
        return found

    def _where(self, columns: Sequence[ColumnElement[Any]], keys: list[Key]) -> ColumnElement[bool]:
        if len(columns) == 1:
            return columns[0].in_([key[0] for key in keys])
        if self.engine.dialect.name in _ROWS:
            return tuple_(*columns).in_(keys)
        each = (and_(*(column == value for column, value in zip(columns, key))) for key in keys)
        return or_(*each)

    def _selected(self, connection: Connection) -> list[ColumnElement[Any]]:
        source = self._source
        if source is None:
            source = self._source = self._named(connection)
        return [source.c[name] for name in (*self.key, *self.columns)]

    def _named(self, connection: Connection) -> FromClause:
        names = (*self.key, *self.columns)
        if is_query(self.table):
            unique = dict.fromkeys(names)
            return text(self.table).columns(*map(column, unique)).subquery("looked_up")
        schema, _, name = self.table.rpartition(".")
        try:
            table = Table(name, MetaData(), schema=schema or None, autoload_with=connection)
        except NoSuchTableError:
            raise SquallError(
                f"there is no table {self.table!r} in {self.shown}: create it with the columns {', '.join(names)}"
            ) from None
        if missing := [each for each in names if each not in table.columns]:
            raise SquallError(
                f"table {self.table!r} in {self.shown} has no columns {', '.join(missing)}; its columns are"
                f" {', '.join(each.name for each in table.columns)}"
            )
        return table


def wrong_login(shown: str, error: Exception) -> SquallError:
    """Return the error for a login that the server refuses."""
    return SquallError(
        f"{shown} refuses the login: {reason(error)}; change url or password, and submit again"
    )
