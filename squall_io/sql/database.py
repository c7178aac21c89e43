"""One database as the sink sees it: the table it writes, and the table of tokens.

A number is set under a token only in the transaction that writes the rows, so both are there or neither is.
Must not know: tuples, topologies.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchTableError,
    StatementError,
)

from squall_io.sql.address import shown_url
from squall_io.sql.engine import engine_of
from squall_io.sql.upsert import statement, unique_on
from topology_api import RowsRefused, SquallError

#: What SQL calls invalid data (22), violated constraints (23), a value of the wrong type, and a row that is too large for the
#: table or an index of it.
_REFUSALS: Final = ("22", "23", "42804", "54000")
#: What sqlite3 and psycopg say of a value of a type that they do not take: an error of theirs, not of the database.
_OF_TYPES: Final = ("binding parameter", "adapt type")


class Database:
    """The connections to a database, and what is known of its tables.

    key: the columns by which a row replaces another one; empty: rows are inserted.
    """

    def __init__(
        self, url: URL, table: str, columns: tuple[str, ...], tokens: str, key: tuple[str, ...] = ()
    ) -> None:
        self.shown = shown_url(url)
        self.engine = engine_of(url)
        self.dialect = self.engine.dialect.name
        schema, _, name = table.rpartition(".")
        try:
            self.table = self._reflected(name, schema or None, table, columns)
            if key and not unique_on(inspect(self.engine), name, schema or None, key):
                raise SquallError(
                    f"table {table!r} in {self.shown} has no unique index on the key ({', '.join(key)}), so its rows cannot be"
                    f" updated by it: create one (CREATE UNIQUE INDEX ON {table} ({', '.join(key)})), or change `key` of the"
                    " sink"
                )
        except BaseException:
            self.engine.dispose()
            raise
        self.columns = tuple(self.table.columns[column] for column in columns)
        self.tokens = Table(
            tokens,
            MetaData(),
            Column("name", String(255), primary_key=True),
            Column("number", BigInteger, nullable=False),
        )
        self._tokens_exist = False
        self._statement = statement(self.engine.dialect, self.table, columns, key)

    def _reflected(self, name: str, schema: str | None, whole: str, columns: tuple[str, ...]) -> Table:
        try:
            table = Table(name, MetaData(), schema=schema, autoload_with=self.engine)
        except NoSuchTableError:
            raise SquallError(
                f"there is no table {whole!r} in {self.shown}: create it with the columns {', '.join(columns)}"
            ) from None
        there = [column.name for column in table.columns]
        if missing := [column for column in columns if column not in there]:
            raise SquallError(
                f"table {whole!r} in {self.shown} has no columns {', '.join(missing)}; its columns are"
                f" {', '.join(there)}: add them to the table, or change `columns` of the sink"
            )
        return table

    def ensure_tokens(self) -> None:
        """Create the table of tokens if it is missing. Another task may do so at the same time."""
        if self._tokens_exist:
            return
        if not inspect(self.engine).has_table(self.tokens.name):
            try:
                self.tokens.create(self.engine)
            except DatabaseError:
                if not inspect(self.engine).has_table(self.tokens.name):
                    raise
        self._tokens_exist = True

    def number(self, token: str) -> int:
        """Return the number of a token; 0 if there is none."""
        self.ensure_tokens()
        with self.engine.connect() as connection:
            found = connection.scalar(select(self.tokens.c.number).where(self.tokens.c.name == token))
        return 0 if found is None else int(found)

    def write_once(self, rows: list[dict[str, Any]], token: str, expected: int, epoch: int) -> bool:
        """Write the rows and set the token, if its number is `expected`; return whether it was. Raises RowsRefused, with
        nothing written, and what the driver raises."""
        self.ensure_tokens()
        # Not left through an exception, the connection's transaction is rolled back.
        with self.engine.connect() as connection:
            if not self._set(connection, token, expected, epoch):
                return False
            self._write(connection, rows)
        return True

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write the rows in one transaction. Raises RowsRefused, with nothing written, and what the driver raises."""
        with self.engine.connect() as connection:
            self._write(connection, rows)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def _set(self, connection: Connection, token: str, expected: int, epoch: int) -> bool:
        tokens = self.tokens
        if expected == 0:
            try:
                connection.execute(insert(tokens).values(name=token, number=epoch))
            except IntegrityError:
                return False
            return True
        where = (tokens.c.name == token) & (tokens.c.number == expected)
        return connection.execute(update(tokens).where(where).values(number=epoch)).rowcount == 1

    def _write(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        try:
            self._insert(connection, rows)
            connection.commit()
        except Exception as error:
            if not refuses(error):
                raise
            connection.rollback()
            found = self._refused(connection, rows)
            if not found:
                raise  # together they break what none of them breaks, or another process has changed the table meanwhile
            where = f"table {self.table.fullname!r} in {self.shown} refuses the row"
            raise RowsRefused({at: f"{where}: {why}" for at, why in found.items()}) from error

    def _insert(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        if rows:
            connection.execute(self._statement, rows)

    def _refused(self, connection: Connection, rows: list[dict[str, Any]]) -> dict[int, str]:
        """Return why the database refuses rows, by position, each after those before it that it takes. Writes nothing."""
        try:
            if self.dialect == "sqlite":
                return self._refused_by_sqlite(connection, rows)
            found = self._refused_of(connection, rows, 0, immediate=False)
            if (
                not found and self.dialect == "postgresql"
            ):  # by a constraint that is checked at the end of a transaction
                connection.rollback()
                found = self._refused_of(connection, rows, 0, immediate=True)
            return found
        finally:
            connection.rollback()

    def _refused_of(
        self, connection: Connection, rows: list[dict[str, Any]], first: int, immediate: bool
    ) -> dict[int, str]:
        """The same by halves. `first`: the position of the first row; `immediate`: all constraints are checked at once."""
        try:
            with connection.begin_nested():
                if immediate:
                    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
                self._insert(connection, rows)
        except Exception as error:
            if not refuses(error):
                raise
            if len(rows) == 1:
                return {first: reason(error)}
            half = len(rows) // 2
            found = self._refused_of(connection, rows[:half], first, immediate)
            return found | self._refused_of(connection, rows[half:], first + half, immediate)
        return {}

    def _refused_by_sqlite(self, connection: Connection, rows: list[dict[str, Any]]) -> dict[int, str]:
        """The same row by row. SQLite needs no savepoints for that, and its driver begins no transaction for them."""
        found = {}
        for at, row in enumerate(rows):
            try:
                self._insert(connection, [row])
            except Exception as error:
                if not refuses(error):
                    raise
                found[at] = reason(error)
        return found


def refuses(error: Exception) -> bool:
    """Return whether an error is about the values of a row, so that the row is refused whenever it comes: not about the
    connection, the table, other transactions, or the rights of the user."""
    if not isinstance(error, DBAPIError):
        # psycopg raises TypeError for values of several types in one statement, now and then.
        return isinstance(error, (StatementError, OverflowError, UnicodeError, TypeError))
    if error.connection_invalidated:
        return False
    if (state := sqlstate_of(error)) is not None:
        return state.startswith(_REFUSALS)
    return isinstance(error, (DataError, IntegrityError)) or any(
        each in str(error.orig) for each in _OF_TYPES
    )


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error; None if its driver does not say it, or no server has answered."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return None if state is None else str(state)


def reason(error: Exception) -> str:
    """Return what the database says, in one line and without the statement."""
    said = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return " ".join(str(said).split())
