"""What errors of databases mean: whether waiting may help, or the row or the statement has to be changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from local_cluster.contracts.opened import Surroundings, context_of
from squall_io.sql import SqlSink
from squall_io.sql.database import refuses
from squall_io.sql.reaching import is_away


class OfMySQL(Exception):
    """An error as PyMySQL raises it: a number and a text."""


OfMySQL.__module__ = "pymysql.err"


def away(orig: BaseException, kind: type[DBAPIError] = OperationalError) -> bool:
    return is_away(kind("INSERT", {}, orig))


def of_state(state: str) -> BaseException:
    found: BaseException = psycopg.errors.lookup(state)("it says why")
    return found


@pytest.mark.parametrize(
    "state", ["08006", "40001", "40P01", "53100", "53300", "55P03", "57P01", "57P03", "58030"]
)
def test_waiting_helps_for_a_server_of_postgresql_that_is_away_or_busy(state: str) -> None:
    assert away(of_state(state))


@pytest.mark.parametrize("state", ["54000", "54001", "55000", "55006", "57014", "42501", "25006"])
def test_waiting_does_not_help_for_what_postgresql_says_of_a_statement(state: str) -> None:
    assert not away(of_state(state))
    assert refuses(OperationalError("INSERT", {}, of_state(state))) == (state == "54000")


def test_an_error_without_a_state_is_one_of_the_connection() -> None:
    assert away(psycopg.OperationalError("connection refused"))
    assert away(psycopg.InterfaceError("the connection is lost"), InterfaceError)
    assert not away(psycopg.IntegrityError("no state"), IntegrityError)


@pytest.mark.parametrize("number", [1040, 1042, 1043, 1129, 1203, 1205, 1213, 2002, 2003, 2006, 2013])
def test_waiting_helps_for_a_server_of_mysql_that_is_away_or_busy(number: int) -> None:
    assert away(OfMySQL(number, "it says why"))


@pytest.mark.parametrize("number", [1142, 1364, 3819])
def test_waiting_does_not_help_for_what_mysql_says_of_a_statement(number: int) -> None:
    assert not away(OfMySQL(number, "it says why"))
    with_state = OfMySQL("it says why")
    with_state.errno, with_state.sqlstate = number, "40001"  # type: ignore[attr-defined]
    assert not away(with_state)


def test_a_connection_that_a_driver_of_mysql_has_closed_is_away() -> None:
    assert away(OfMySQL(0, ""), InterfaceError)


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ("database is locked", True),
        ("unable to open database file", True),
        ("database or disk is full", True),
        ("disk I/O error", True),
        ("attempt to write a readonly database", False),
        ("no such table: orders", False),
        ('near "INSRT": syntax error', False),
        ("too many SQL variables", False),
    ],
)
def test_what_sqlite_says(text: str, helps: bool) -> None:
    assert away(sqlite3.OperationalError(text)) == helps


def test_a_sink_does_not_wait_for_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")
    engine.dispose()
    around = Surroundings()
    bolt = SqlSink(f"sqlite:///file:{tmp_path}/shop.db?mode=ro&uri=true", "orders", ["id"])
    bolt.prepare(context_of("write", 0, 1, around))
    with pytest.raises(OperationalError, match="attempt to write a readonly database"):
        bolt.write(None, [{"id": 1}], 0, None)
    bolt.cleanup()
    around.end()
