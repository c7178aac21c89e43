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
    create_engine,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, NoSuchTableError, StatementError

from topology_api import SquallError
from topology_api.tuples import BOUNDED

#: What SQL calls invalid data (22), violated constraints (23), and a value of the wrong type.
_REFUSALS: Final = ("22", "23", "42804")


class RowRefused(SquallError):
    """The database does not take a row; it was not written."""


class Database:
    """The connections to a database, and what is known of its tables."""

    def __init__(self, url: URL, table: str, columns: tuple[str, ...], tokens: str) -> None:
        self.shown = url.render_as_string(hide_password=True)
        # Values are not shown: they may be secrets of the users' users.
        self.engine = create_engine(url, pool_pre_ping=True, hide_parameters=True)
        self.dialect = self.engine.dialect.name
        schema, _, name = table.rpartition(".")
        try:
            self.table = self._reflected(name, schema or None, table, columns)
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
        """Write the rows and set the token, if its number is `expected`; return whether it was."""
        self.ensure_tokens()
        # Not left through an exception, the connection's transaction is rolled back.
        with self.engine.connect() as connection:
            if not self._set(connection, token, expected, epoch):
                return False
            try:
                self._insert(connection, rows)
            except Exception as error:
                if not refuses(error):
                    raise
                connection.rollback()
                raise self._refused(rows, error) from error
            connection.commit()
        return True

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write the rows in one transaction. Raises what the driver raises."""
        with self.engine.begin() as connection:
            self._insert(connection, rows)

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

    def _insert(self, connection: Connection, rows: list[dict[str, Any]]) -> None:
        if rows:
            connection.execute(insert(self.table), rows)

    def _refused(self, rows: list[dict[str, Any]], error: Exception) -> RowRefused:
        """Find the row that the database refuses, in a transaction that is rolled back."""
        with self.engine.connect() as connection:
            for row in rows:
                try:
                    self._insert(connection, [row])
                except Exception as found:
                    if not refuses(found):
                        raise
                    return RowRefused(
                        f"table {self.table.fullname!r} in {self.shown} refuses the row {BOUNDED.repr(row)}:"
                        f" {reason(found)}; correct the row where it is emitted, or the table"
                    )
        return RowRefused(f"table {self.table.fullname!r} in {self.shown} refuses a row: {reason(error)}")


def refuses(error: Exception) -> bool:
    """Return whether an error is about the values of a row, not about the connection or the rights of the user."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, (StatementError, OverflowError))
    if error.connection_invalidated:
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    if state is not None:
        return str(state).startswith(_REFUSALS)
    return type(error).__name__ in ("DataError", "IntegrityError", "InterfaceError", "ProgrammingError")


def reason(error: Exception) -> str:
    """Return what the database says, in one line and without the statement."""
    said = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return " ".join(str(said).split())
