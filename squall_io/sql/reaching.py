"""Reaching a database: what its errors mean, and a table or a query by its name.

Must not know: rows, tuples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, MetaData, Table, column, text
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchTableError, OperationalError
from sqlalchemy.sql.selectable import FromClause

from squall_io.sql.database import reason
from topology_api import SquallError

_QUERY: Final = re.compile(r"\s*(select|with)\s", re.IGNORECASE)
#: The databases that compare several columns with several values at once.
COMPARES_ROWS: Final = ("postgresql", "sqlite", "mysql", "mariadb")
#: What a server says that waiting does not help: the user, its password, or the database is wrong.
_WRONG: Final = re.compile(
    r"authentication failed|no password supplied|(role|user|database) \"?[^\"]*\"? does not exist"
    r"|access denied|unknown database|no pg_hba.conf entry",
    re.IGNORECASE,
)
#: What SQLite says of a statement, by the same kind of error as of a file that it cannot open now.
_WRONG_STATEMENT: Final = ("no such", "syntax error")


def is_query(table: str) -> bool:
    """Return whether a text is a query, and not the name of a table."""
    return _QUERY.match(table) is not None


def is_away(error: Exception) -> bool:
    """Return whether an error says that the database cannot be reached now, or that it is busy: waiting may help."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, TimeoutError)
    if any(each in str(error.orig) for each in _WRONG_STATEMENT):
        return False
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))


def is_wrong_login(error: Exception) -> bool:
    """Return whether the server refuses the user, the password or the database."""
    return isinstance(error, DBAPIError) and _WRONG.search(str(error.orig)) is not None


def source_of(connection: Connection, table: str, names: Sequence[str], shown: str) -> FromClause:
    """Return a table, or the rows of a query, that has these columns. Raises SquallError for one that is missing or other."""
    if is_query(table):
        return text(table).columns(*map(column, dict.fromkeys(names))).subquery("rows_of_query")
    schema, _, name = table.rpartition(".")
    try:
        found = Table(name, MetaData(), schema=schema or None, autoload_with=connection)
    except NoSuchTableError:
        raise SquallError(
            f"there is no table {table!r} in {shown}: create it with the columns {', '.join(names)}"
        ) from None
    if missing := [each for each in names if each not in found.columns]:
        raise SquallError(
            f"table {table!r} in {shown} has no columns {', '.join(missing)}; its columns are"
            f" {', '.join(each.name for each in found.columns)}"
        )
    return found


def wrong_login(shown: str, error: Exception) -> SquallError:
    """Return the error for a login that the server refuses."""
    return SquallError(
        f"{shown} refuses the login: {reason(error)}; change url or password, and submit again"
    )
