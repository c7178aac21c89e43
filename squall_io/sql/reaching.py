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

from squall_io.sql.database import reason, sqlstate_of
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
#: The classes of SQLSTATE for which waiting may help: connections (08), transactions that others have rolled back (40), a lack
#: of connections, memory or disk (53), a lock that is held, a server that stops or starts (57P0), and its own faults (58).
#: Drivers have one class of errors for these and for others, such as a statement that has run out of its time.
_AWAY_STATES: Final = ("08", "40", "53", "55P03", "57P0", "58")
#: What SQLite says where waiting may help; a table that is missing or may not be written is the same class of errors.
_AWAY_TEXTS: Final = (
    "unable to open database file",
    "is locked",
    "locking protocol",
    "disk I/O error",
    "disk is full",
    "out of memory",
)
#: The packages of drivers whose errors have the numbers of MySQL.
_MYSQL: Final = ("pymysql", "MySQLdb", "mysql", "mariadb")
#: The numbers of MySQL for which waiting may help: too many connections, a handshake that was cut off, a blocked host, a server
#: that stops, a full disk or table, a lock that is held, a deadlock, and a connection that cannot be made or was lost.
_AWAY_NUMBERS: Final = frozenset(
    (1021, 1040, 1042, 1043, 1053, 1114, 1129, 1203, 1205, 1213, 2002, 2003, 2006, 2013, 2055)
)
#: MySQL's numbers begin here; smaller ones are those of drivers.
_FIRST_NUMBER: Final = 1000


def is_query(table: str) -> bool:
    """Return whether a text is a query, and not the name of a table."""
    return _QUERY.match(table) is not None


def is_away(error: Exception) -> bool:
    """Return whether an error says that the database cannot be reached now, or that it is busy: waiting may help."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, TimeoutError)
    if error.connection_invalidated:
        return True
    driver = type(error.orig).__module__.partition(".")[0]
    if driver == "sqlite3":
        return isinstance(error, OperationalError) and any(each in str(error.orig) for each in _AWAY_TEXTS)
    # Before the SQLSTATE, which is HY000 for most of what MySQL says.
    if driver in _MYSQL and (number := _mysql_number(error)) is not None:
        return number in _AWAY_NUMBERS
    if (state := sqlstate_of(error)) is not None:
        return state.startswith(_AWAY_STATES)
    return isinstance(error, (OperationalError, InterfaceError))


def _mysql_number(error: DBAPIError) -> int | None:
    said = error.orig
    for number in (getattr(said, "errno", None), *getattr(said, "args", ())[:1]):
        if isinstance(number, int) and number >= _FIRST_NUMBER:
            return number
    return None


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
