"""Finds the rows of many keys by one statement.

The database decides which key a row has: its collations may find "ABC" for "abc". So keys are asked for one by one if rows of
other spellings came back, or if two of the keys differ in capital letters only.
Must not know: tuples, caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import URL, Connection, and_, or_, select, tuple_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from squall_io.sql.address import shown_url
from squall_io.sql.database import refuses
from squall_io.sql.engine import engine_of
from squall_io.sql.reaching import COMPARES_ROWS, source_of

Key = tuple[Any, ...]
Found = list[tuple[Any, ...]]

#: The most values in a statement: SQLite and PostgreSQL take 32,766 or more.
MOST_VALUES: Final = 10_000
#: What PostgreSQL calls a comparison of types that do not go together: no operator, another type, no conversion.
_TYPES: Final = ("42883", "42804", "42846")


def is_of_key(error: Exception) -> bool:
    """Return whether an error is about the values of a key: its type does not go with the column's."""
    if refuses(error):
        return True
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _TYPES


def _folded(key: Key) -> Key:
    return tuple(value.casefold() if isinstance(value, str) else value for value in key)


class RowFinder:
    """One database, and a table in it or the rows of a query. The engine connects when it is first used."""

    def __init__(self, url: URL, table: str, key: Sequence[str], columns: Sequence[str]) -> None:
        self.shown = shown_url(url)
        self.engine = engine_of(url)
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
        if len(keys) > 1 and not rows.keys() - set(keys) and len({_folded(key) for key in keys}) == len(keys):
            return {key: rows.get(key, []) for key in keys}
        # Other spellings came back, or may be among the keys: whose rows they are, only the database knows.
        return {key: self._rows_of(connection, key) for key in keys}

    def _rows_of(self, connection: Connection, key: Key) -> Found:
        return [row for each in self._rows(connection, [key]).values() for row in each]

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
        if self.engine.dialect.name in COMPARES_ROWS:
            return tuple_(*columns).in_(keys)
        each = (and_(*(column == value for column, value in zip(columns, key))) for key in keys)
        return or_(*each)

    def _selected(self, connection: Connection) -> list[ColumnElement[Any]]:
        source = self._source
        if source is None:
            names = (*self.key, *self.columns)
            source = self._source = source_of(connection, self.table, names, self.shown)
        return [source.c[name] for name in (*self.key, *self.columns)]
