"""The SQL sink: rows are written once with a token, and refused rows fail alone without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy

from local_cluster import LocalCluster
from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import run_bolt
from squall_io.sql import SqlSink
from squall_io.sql.values import value_problem
from tests.rewinding_spout import FromPosition
from tests.sql_servers import PostgreSQL
from topology_api import Fields, InvalidConfig, RowsRefused, SquallError, TopologyBuilder

TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER NOT NULL CHECK (price > 0))"
#: Ends at once after the rows were inserted, before they are committed.
KILLED = """
import os, signal, sys
from sqlalchemy import Connection
from squall_io.sql import SqlSink
Connection.commit = lambda self: os.kill(os.getpid(), signal.SIGKILL)
sink = SqlSink(sys.argv[1], "orders", ["id", "price"])
sink.read_token("t")
sink.write(1, [{"id": 1, "price": 5}], 0, "t")
"""


@pytest.fixture(scope="module")
def running(postgresql_of_module: PostgreSQL) -> PostgreSQL:
    return postgresql_of_module


@pytest.fixture(scope="module")
def server(running: PostgreSQL) -> str:
    return running.url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/shop.db" if sqlite else request.getfixturevalue("server")
    make_tables(url)
    return url


def make_tables(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for table in ("orders", "squall_tokens"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        connection.exec_driver_sql(TABLE)
    engine.dispose()


def sink(url: str) -> SqlSink:
    return SqlSink(url, "orders", ["id", "price"])


def written(url: str) -> list[tuple[int, int]]:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT id, price FROM orders ORDER BY id")
        rows = [(row.id, row.price) for row in found]
    engine.dispose()
    return rows


def orders(*rows: tuple[int, int]) -> list[dict[str, int]]:
    return [{"id": number, "price": price} for number, price in rows]


def test_a_process_that_is_killed_before_the_commit_leaves_nothing(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    bolt = sink(url)
    assert (bolt.read_token("t"), written(url)) == (0, [])
    assert bolt.write(1, orders((1, 5)), 0, "t")
    bolt.cleanup()


def test_all_refused_rows_are_named_and_nothing_is_written(url: str) -> None:
    bolt = sink(url)
    assert bolt.write(1, orders((1, 5), (20, 5)), 0, "t")
    rows = orders((2, 5), (3, -1), (4, 5), (5, 5), (1, 7), (6, 5), (4, 8), (7, 5))
    with pytest.raises(RowsRefused) as refused:
        bolt.write(2, rows, 1, "t")
    reasons = refused.value.reasons
    assert sorted(reasons) == [1, 4, 6]
    assert "table 'orders' in" in reasons[1] and "check constraint" in reasons[1].lower()
    assert "unique" in reasons[4].lower() and "unique" in reasons[6].lower()
    assert (bolt.read_token("t"), written(url)) == (1, [(1, 5), (20, 5)])
    left = [row for at, row in enumerate(rows) if at not in reasons]
    assert bolt.write(2, left, 1, "t")
    assert written(url) == [(number, 5) for number in (1, 2, 4, 5, 6, 7, 20)]
    bolt.cleanup()


def test_a_row_that_is_refused_at_the_end_of_its_transaction_is_named(server: str) -> None:
    make_tables(server)
    engine = sqlalchemy.create_engine(server)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        connection.exec_driver_sql("ALTER TABLE orders ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
    engine.dispose()
    bolt = sink(server)
    with pytest.raises(RowsRefused) as refused:
        bolt.write(1, orders((1, 5), (2, 5), (1, 6), (3, 5)), 0, "t")
    assert list(refused.value.reasons) == [2]
    assert (bolt.read_token("t"), written(server)) == (0, [])
    bolt.cleanup()


def test_a_table_that_is_gone_refuses_no_row(url: str) -> None:
    bolt = sink(url)
    bolt.read_token("t")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE orders")
    engine.dispose()
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        bolt.write(1, orders((1, 5)), 0, "t")
    bolt.cleanup()


@pytest.mark.parametrize("token", ["t", None])
def test_a_row_that_is_too_large_for_an_index_is_refused_alone(server: str, token: str | None) -> None:
    engine = sqlalchemy.create_engine(server)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS notes, squall_tokens")
        connection.exec_driver_sql("CREATE TABLE notes (note TEXT UNIQUE)")
    engine.dispose()
    around = Surroundings()
    bolt = SqlSink(server, "notes", ["note"])
    bolt.prepare(context_of("write", 0, 1, around))
    large = Random(1).randbytes(5000).hex()  # so that it cannot be compressed to what an index takes
    with pytest.raises(RowsRefused) as refused:
        bolt.write(1, [{"note": "a"}, {"note": large}, {"note": "b"}], 0, token)
    assert list(refused.value.reasons) == [1]
    assert "maximum" in refused.value.reasons[1] and large not in refused.value.reasons[1]
    assert bolt.write(1, [{"note": "a"}, {"note": "b"}], 0, token)
    bolt.cleanup()
    around.end()


class Repeated(FromPosition):
    """Every tenth order has the number of an earlier one, and every eleventh no good price."""

    outputs = Fields("id", "price")

    def next_tuple(self) -> float:
        if self.at < 300:
            price = -self.at if self.at % 11 == 4 else self.at
            self.emit((self.at - 5 if self.at % 10 == 7 else self.at, price), message_id=self.at)
            self.at += 1
        return 0.01


def test_rows_that_the_database_refuses_for_good_are_letters_and_all_others_are_written_once(
    url: str, tmp_path: Path
) -> None:
    """However often the topology starts again: of two rows with one number, the table takes the first that it gets."""
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", Repeated())
    builder.set_bolt("write", sink(url), 2).shuffle_grouping("orders")
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.3}
    letters: dict[str, tuple[int, int]] = {}
    for seconds in (0.7, 0.45, 0.2, 0.8, 8.0):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(seconds)
            assert cluster.status("shop").state == "ACTIVE"
            for letter in cluster.dead_letters("shop"):
                letters[letter.id] = (letter.values[0], letter.values[1])
                assert (letter.component, letter.source, letter.why_no_values) == ("write", "orders", "")
                assert "refuses the row: " in (letter.failure.error or "")
    every = sorted((at - 5 if at % 10 == 7 else at, -at if at % 11 == 4 else at) for at in range(300))
    assert sorted([*written(url), *letters.values()]) == every
    assert len({number for number, _ in written(url)}) == len(written(url))
    assert {number for number, price in every if price >= 0} - {0} <= {number for number, _ in written(url)}


def test_without_a_token_only_refused_rows_fail(url: str) -> None:
    rows = [(1, 5), (2, -1), (3, None), (4, "x"), (5, 7), (6, 2**70)]
    done = run_bolt(sink(url), rows, source_fields=["id", "price"])
    assert written(url) == [(1, 5), (5, 7)]
    assert len(done.failed()) == 4


class Orders(FromPosition):
    outputs = Fields("id", "price")

    def next_tuple(self) -> float:
        if self.at < 200:
            self.emit((self.at, 5), message_id=self.at)
            self.at += 1
        return 0.01


@pytest.mark.slow
def test_each_row_is_written_once_when_the_server_restarts_before_the_commit(
    running: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tables(running.url)
    commit, commits, restarts = sqlalchemy.Connection.commit, [0], [0]

    def restarted(connection: Any) -> None:
        commits[0] += 1
        if commits[0] % 3 or restarts[0] == 2:
            return commit(connection)
        restarts[0] += 1
        running.stop()
        running.start()
        connection.exec_driver_sql("SELECT 1")  # what waits for the answer meets a connection that is gone
        raise AssertionError("the connection has outlived its server")

    monkeypatch.setattr(sqlalchemy.Connection, "commit", restarted)
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", Orders())
    builder.set_bolt("write", sink(running.url)).shuffle_grouping("orders")
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.3}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf)
        cluster.advance(30)
        status = cluster.status("shop")
        assert status.components["orders"].acked == 200
        assert not status.errors, "it has waited"
        assert cluster.dead_letters("shop") == []
    assert restarts == [2]
    assert written(running.url) == [(number, 5) for number in range(200)]


def test_a_missing_column_says_what_there_is(url: str) -> None:
    with pytest.raises(SquallError, match="no columns tax; its columns are id, price"):
        SqlSink(url, "orders", ["id", "tax"]).read_token("t")


@pytest.mark.parametrize(
    "url",
    [
        "no url with hunter2",
        "postgresql://me:hunter2@db/shop",
        "postgresql+psycopg://db/shop?password=hunter2",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfig) as bad:
        SqlSink(url, "t", ["a"])
    assert "hunter2" not in str(bad.value)
    with pytest.raises(InvalidConfig, match="password has the secret itself") as bad:
        SqlSink("sqlite://", "t", ["a"], password="hunter2")
    assert "hunter2" not in str(bad.value)


@pytest.mark.parametrize("name", ["odbc_connect", "sslpassword", "PWD", "access_token", "client_secret"])
def test_a_secret_behind_the_question_mark_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="url has a password behind its `\\?`") as bad:
        SqlSink(f"postgresql://app@db/shop?{name}=hunter2", "t", ["a"])
    assert "hunter2" not in str(bad.value)


def test_a_password_that_is_not_there_is_named() -> None:
    bolt = SqlSink("postgresql://me@db/shop", "t", ["a"], password="env:SHOP_PASSWORD")
    with pytest.raises(
        SquallError, match="postgresql://me@db/shop is env:SHOP_PASSWORD, and the environment"
    ):
        bolt.read_token("t")


def test_without_sqlalchemy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(SquallError, match="install Squall with its extra `sql`"):
        SqlSink("sqlite://", "t", ["a"])


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_values_that_a_driver_cannot_send_are_found_before_they_are_written(dialect: str) -> None:
    text = sqlalchemy.Column("name", sqlalchemy.Text())
    number = sqlalchemy.Column("price", sqlalchemy.Float(), nullable=False)
    assert value_problem(text, "\N{GRINNING FACE}", dialect) is None
    problem = value_problem(text, "\ud800", dialect)
    assert problem is not None
    assert "column 'name' (TEXT) does not take '\\ud800' (str): it is no valid Unicode text" in problem
    nul = value_problem(text, "a\0", dialect)
    assert (nul is not None) == (dialect == "postgresql")
    for value in (2**70, float("nan")):
        assert (value_problem(number, value, dialect) is not None) == (dialect == "sqlite")
