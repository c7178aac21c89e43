"""Reads the next rows of a table in the order of a column. Must not know: tuples, threads, when it is time to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    URL,
    Connection,
    Date,
    DateTime,
    String,
    Time,
    and_,
    func,
    inspect,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from squall_io.sql.address import shown_url
from squall_io.sql.engine import engine_of
from squall_io.sql.places import packed
from squall_io.sql.reaching import COMPARES_ROWS, is_query, source_of
from topology_api import SquallError

#: The most rows of a statement.
MOST_ROWS: Final = 1000
#: The order and the key of a row: what comes after it is greater.
Place = tuple[Any, ...]
#: A row: its values, and its place.
PlacedRow = tuple[tuple[Any, ...], Place]


def _is_time(column: ColumnElement[Any]) -> bool:
    return isinstance(column.type, (Date, DateTime, Time))


class RowReader:
    """One table, or the rows of a query. Not connected until it is used.

    order: the column that grows. key: the columns that tell rows of one order apart; None: the primary key.
    """

    def __init__(
        self, url: URL, table: str, columns: Sequence[str], order: str, key: Sequence[str] | None
    ) -> None:
        self.shown = shown_url(url)
        self.engine = engine_of(url)
        self.table, self.columns, self.order = table, tuple(columns), order
        self._key = None if key is None else tuple(key)
        self._source: FromClause | None = None
        self._place: tuple[str, ...] = ()

    def check(self) -> None:
        """Look at the table. Raises SquallError for one that is missing or other, and what the driver raises."""
        self._source = None
        with self.engine.connect() as connection:
            source = self._known(connection)
            place = self._placing(source)
            values = [source.c[name] for name in self.columns]
            for row in connection.execute(select(*values, *place).limit(1)):
                try:
                    packed(tuple(row)[len(values) :])
                except TypeError as error:
                    raise SquallError(
                        f"{self.table!r} in {self.shown} has a row whose {', '.join(self._place)} cannot be a position:"
                        f" {error}; give order_by= and key= with columns of numbers, texts, dates or times"
                    ) from None

    def greatest(self) -> Any:
        """Return the greatest value of the order; None: there are no rows."""
        with self.engine.connect() as connection:
            return connection.scalar(select(func.max(self._placing(self._known(connection))[0])))

    def rows(self, after: Place | None, start: Any, until: Any) -> list[PlacedRow]:
        """Return the next rows in their order, at most `MOST_ROWS`.

        after: the place of the last row that was read; None: those from the order `start` on are (None: all). until: the last
        order to read; None: no limit.
        """
        with self.engine.connect() as connection:
            source = self._known(connection)
            place = self._placing(source)
            where: list[ColumnElement[bool]] = [place[0].is_not(None)]
            if after is not None:
                where.append(self._behind(place, after))
            elif start is not None:
                # As text without a fraction: not behind a stored time of that second, in whichever form.
                where.append(place[0] >= (str(start) if isinstance(place[0].type, String) else start))
            if until is not None:
                where.append(place[0] <= until)
            values = [source.c[name] for name in self.columns]
            query = select(*values, *place).where(*where).order_by(*place).limit(MOST_ROWS)
            count = len(values)
            return [(tuple(row[:count]), tuple(row[count:])) for row in connection.execute(query)]

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def _placing(self, source: FromClause) -> list[ColumnElement[Any]]:
        """Return the columns of a place. SQLite keeps times as text, in the form in which each was written, with or without a
        fraction: so there they are compared as texts, and not changed to the form that the library writes."""
        columns: list[ColumnElement[Any]] = [source.c[name] for name in self._place]
        if self.engine.dialect.name != "sqlite":
            return columns
        return [type_coerce(each, String) if _is_time(each) else each for each in columns]

    def _behind(self, place: Sequence[ColumnElement[Any]], after: Place) -> ColumnElement[bool]:
        if len(place) == 1:
            return place[0] > after[0]  # type: ignore[no-any-return]
        if self.engine.dialect.name in COMPARES_ROWS:
            return tuple_(*place) > tuple_(*after)
        equal = [column == value for column, value in zip(place, after)]
        steps = (and_(*equal[:at], place[at] > after[at]) for at in range(len(place)))
        return or_(*steps)

    def _known(self, connection: Connection) -> FromClause:
        if self._source is None:
            key = self._key if self._key is not None else self._primary_key(connection)
            place = tuple(dict.fromkeys((self.order, *key)))
            self._source = source_of(connection, self.table, (*self.columns, *place), self.shown)
            self._place = place
        return self._source

    def _primary_key(self, connection: Connection) -> tuple[str, ...]:
        schema, _, name = self.table.rpartition(".")
        found: tuple[str, ...] = ()
        if not is_query(self.table) and inspect(connection).has_table(name, schema or None):
            found = tuple(inspect(connection).get_pk_constraint(name, schema or None)["constrained_columns"])
        elif not is_query(self.table):
            return ()  # that it is missing is said when it is looked up
        if not found:
            raise SquallError(
                f"{self.table!r} in {self.shown} has no primary key, and rows with the same {self.order} need an order:"
                " give key= with columns that tell them apart"
            )
        return found
