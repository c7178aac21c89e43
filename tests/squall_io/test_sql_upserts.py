"""The SQL sink with a key: a row takes the place of the one with its key, and of two rows in a batch the later one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.dialects import mysql

from local_cluster import LocalCluster
from local_cluster.testing import run_bolt
from squall_io.sql import SqlSink
from squall_io.sql.upsert import statement
from tests.rewinding_spout import FromPosition
from tests.sql_servers import PostgreSQL
from topology_api import Fields, InvalidConfig, RowsRefused, SquallError, TopologyBuilder

TABLE = """CREATE TABLE stock (shop TEXT NOT NULL, item INTEGER NOT NULL, pieces INTEGER CHECK (pieces >= 0), note TEXT,
 {})"""
COLUMNS = ["shop", "item", "pieces"]


@pytest.fixture(scope="module")
def server(postgresql_of_module: PostgreSQL) -> str:
    return postgresql_of_module.url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    found: str = request.getfixturevalue("server")
    run(found, "DROP TABLE IF EXISTS stock", "DROP TABLE IF EXISTS squall_tokens")
    return found


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements; return the rows of the last one."""
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.begin() as connection:
            found = [connection.exec_driver_sql(each) for each in statements][-1]
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def stock(url: str) -> list[tuple[Any, ...]]:
    return run(url, "SELECT shop, item, pieces, note FROM stock ORDER BY shop, item")


def sink(url: str, key: Any = ("shop", "item"), columns: Any = COLUMNS) -> SqlSink:
    return SqlSink(url, "stock", columns, key=key)


def rows(*values: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, each)) for each in values]


@pytest.mark.parametrize("unique", ["PRIMARY KEY (shop, item)", "UNIQUE (item, shop)", "CHECK (true)"])
def test_the_last_row_of_a_key_counts_and_other_columns_stay(url: str, unique: str) -> None:
    run(url, TABLE.format(unique))
    if "CHECK" in unique:
        run(url, "CREATE UNIQUE INDEX stock_key ON stock (shop, item)")
    run(url, "INSERT INTO stock VALUES ('a', 1, 5, 'old')")
    bolt = sink(url)
    assert bolt.write(1, rows(("a", 1, 6), ("b", 1, 1), ("a", 1, 7), ("b", 2, 3), ("b", 1, 2)), 0, "t")
    assert stock(url) == [("a", 1, 7, "old"), ("b", 1, 2, None), ("b", 2, 3, None)]
    assert bolt.write(2, rows(("b", 2, 4)), 1, "t")
    assert stock(url)[-1] == ("b", 2, 4, None)
    bolt.cleanup()


def test_a_refused_row_does_not_take_the_place_of_an_earlier_one(url: str) -> None:
    run(url, TABLE.format("PRIMARY KEY (shop, item)"))
    bolt = sink(url)
    batch = rows(("a", 1, 6), ("a", 2, 1), ("a", 1, -7), ("b", 1, 3))
    with pytest.raises(RowsRefused) as refused:
        bolt.write(1, batch, 0, "t")
    assert list(refused.value.reasons) == [2]
    assert bolt.write(1, [row for at, row in enumerate(batch) if at != 2], 0, "t")
    assert stock(url) == [("a", 1, 6, None), ("a", 2, 1, None), ("b", 1, 3, None)]
    bolt.cleanup()


def test_a_row_of_key_columns_alone_is_there_once(url: str) -> None:
    run(url, TABLE.format("PRIMARY KEY (shop, item)"))
    bolt = sink(url, columns=["shop", "item"])
    both = [{"shop": "a", "item": 1}, {"shop": "a", "item": 1}]
    bolt.write_batch(both)
    bolt.write_batch(both)
    assert stock(url) == [("a", 1, None, None)]
    bolt.cleanup()


def test_a_key_that_is_none_fails_its_tuple(url: str) -> None:
    run(url, TABLE.format("UNIQUE (shop, pieces)"))
    done = run_bolt(sink(url, key=["shop", "pieces"]), [("a", 1, 5), ("a", 2, None)], source_fields=COLUMNS)
    assert stock(url) == [("a", 1, 5, None)]
    assert len(done.failed()) == 1


@pytest.mark.parametrize(
    "unique", ["CHECK (true)", "UNIQUE (shop)", "UNIQUE (shop, item, pieces)", "partial"]
)
def test_a_table_without_a_unique_index_on_the_key_says_what_to_do(url: str, unique: str) -> None:
    run(url, TABLE.format("CHECK (true)" if unique == "partial" else unique))
    if unique == "partial":
        run(url, "CREATE UNIQUE INDEX part ON stock (shop, item) WHERE pieces > 3")
    with pytest.raises(SquallError, match=r"no unique index on the key \(shop, item\).*CREATE UNIQUE INDEX"):
        sink(url).read_token("t")


def test_batches_are_sent_by_the_fast_path_of_the_driver(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg sends all statements of `executemany` before it reads the first answer."""
    run(server, "DROP TABLE IF EXISTS stock", TABLE.format("PRIMARY KEY (shop, item)"))
    sent: list[int] = []
    executemany = psycopg.Cursor.executemany

    def counted(cursor: Any, query: Any, batch: Any, **more: Any) -> None:
        sent.append(len(batch))
        executemany(cursor, query, batch, **more)

    monkeypatch.setattr(psycopg.Cursor, "executemany", counted)
    bolt = sink(server)
    bolt.write_batch(rows(*(("a", number % 500, number) for number in range(1000))))
    bolt.cleanup()
    assert sent == [1000]
    assert stock(server) == [("a", number, number + 500, None) for number in range(500)]


def test_the_statement_for_mysql() -> None:
    """Without a server: as SQLAlchemy compiles it."""
    table = sqlalchemy.Table("stock", sqlalchemy.MetaData(), *map(sqlalchemy.Column, COLUMNS))
    dialect = mysql.dialect()
    found = " ".join(
        str(statement(dialect, table, tuple(COLUMNS), ("shop", "item")).compile(dialect=dialect)).split()
    )
    assert found.endswith("VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE pieces = VALUES(pieces)")
    found = str(statement(dialect, table, ("shop", "item"), ("shop", "item")).compile(dialect=dialect))
    assert found.endswith("ON DUPLICATE KEY UPDATE shop = VALUES(shop)")


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("sqlite://", [], "key has no columns"),
        ("sqlite://", ["shop", "tax"], "key has 'tax', not in columns"),
        ("mssql+pyodbc://db/shop", "shop", "url is for mssql.*leave key out to insert"),
    ],
)
def test_keys_that_no_table_can_have_are_refused(url: str, key: Any, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        sink(url, key)


class Changes(FromPosition):
    """The pieces of ten items, again and again."""

    outputs = Fields(*COLUMNS)

    def next_tuple(self) -> float:
        if self.at < 200:
            self.emit(("a", self.at % 10, self.at), message_id=self.at)
            self.at += 1
        return 0.01


def test_the_last_value_of_each_key_is_there_however_often_the_topology_starts(
    url: str, tmp_path: Path
) -> None:
    run(url, TABLE.format("PRIMARY KEY (shop, item)"))
    builder = TopologyBuilder("shop")
    builder.set_spout("changes", Changes())
    builder.set_bolt("write", sink(url), 2).fields_grouping("changes", "item")
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.3}
    for seconds in (0.7, 0.2, 0.8, 5.0):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(builder.build(), conf)
            cluster.advance(seconds)
            assert not cluster.status("shop").errors
    assert stock(url) == [("a", item, 190 + item, None) for item in range(10)]
