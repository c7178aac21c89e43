"""The SQL lookup: each tuple gets the columns of the rows that have its key, and waits while the database is away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout, run_bolt
from squall_io.sql import SqlLookup
from squall_io.sql.cache import AgedCache
from squall_io.sql.finding import RowFinder
from tests.sql_servers import PostgreSQL
from topology_api import Bolt, InvalidConfig, InvalidTopology, SquallError, TopologyBuilder

TABLE = "CREATE TABLE customers (id INTEGER, region VARCHAR(10), name VARCHAR(20))"
ROWS = "INSERT INTO customers VALUES (1, 'eu', 'ada'), (2, 'eu', 'bela'), (2, 'us', 'bob'), (4, 'us', NULL)"
#: Seconds after which a test gives up.
CAP = 60.0


@pytest.fixture(scope="module")
def running(postgresql_of_module: PostgreSQL) -> PostgreSQL:
    return postgresql_of_module


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/shop.db" if sqlite else request.getfixturevalue("running").url
    execute(url, "DROP TABLE IF EXISTS customers", TABLE, ROWS)
    return url


def execute(url: str, *statements: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for each in statements:
            connection.exec_driver_sql(each)
    engine.dispose()


def lookup(url: str, **more: Any) -> SqlLookup:
    return SqlLookup(url, "customers", {"id": "customer"}, ["name"], fields=["customer", "price"], **more)


def looked_up(bolt: SqlLookup, *values: Any) -> Any:
    rows = [(value, at) for at, value in enumerate(values)]
    return run_bolt(bolt, rows, source_fields=["customer", "price"])


def test_each_tuple_gets_the_columns_of_all_rows_with_its_key_in_order(url: str) -> None:
    done = looked_up(lookup(url), 4, 1, 2, 3, None, 1)
    assert done.emitted()[:2] == [(4, 0, None), (1, 1, "ada")]
    assert sorted(done.emitted()[2:4]) == [(2, 2, "bela"), (2, 2, "bob")]
    assert done.emitted()[4:] == [(3, 3, None), (None, 4, None), (1, 5, "ada")]
    assert len(done.acked()) == 6


@pytest.mark.parametrize(("missing", "failed"), [("drop", 0), ("fail", 2)])
def test_what_happens_to_a_tuple_without_a_row(url: str, missing: str, failed: int) -> None:
    done = looked_up(lookup(url, missing=missing), 1, 3, None)
    assert done.emitted() == [(1, 0, "ada")]
    assert len(done.failed()) == failed
    assert not done.errors


def test_keys_of_several_columns_and_queries(url: str) -> None:
    both = SqlLookup(
        url,
        "SELECT id, upper(region) AS where_, name AS called FROM customers",
        {"id": "customer", "where_": "region"},
        {"called": "name"},
        fields="region",
    )
    done = run_bolt(both, [(2, "US"), (2, "EU"), (2, "us"), (1, "EU")], source_fields=["customer", "region"])
    assert done.emitted() == [("US", "bob"), ("EU", "bela"), ("us", None), ("EU", "ada")]


def test_a_key_that_no_column_takes_fails_its_tuple_alone(url: str) -> None:
    done = looked_up(lookup(url), 1, [2], 2**80, 4)
    assert [row for row in done.emitted() if row[1] != 2] == [(1, 0, "ada"), (4, 3, None)]
    reasons = [failure.error or "" for _, failure in done.failed()]
    assert "field 'customer' is [2] (list), which cannot be a key" in reasons[0]
    assert len(reasons) == (
        1 if (2**80, 2, None) in done.emitted() else 2
    )  # PostgreSQL compares it, and finds none
    assert not done.errors


def test_a_text_for_a_number_fails_its_tuple_alone(running: PostgreSQL) -> None:
    execute(running.url, "DROP TABLE IF EXISTS customers", TABLE, ROWS)
    done = looked_up(lookup(running.url), 1, "x", 2, b"y", 4)
    assert [row[1] for row in done.emitted()] == [0, 2, 2, 4]
    assert len(done.failed()) == 2 and not done.errors


def test_a_driver_that_takes_no_mix_of_types_is_asked_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg is one, now and then."""
    url = f"sqlite:///{tmp_path}/shop.db"
    execute(url, TABLE, ROWS)
    find = RowFinder.find

    def of_one_type(finder: RowFinder, keys: Any) -> Any:
        if len({type(key[0]) for key in keys}) > 1:
            raise TypeError("bytes or buffer expected, got <class 'int'>")
        return find(finder, keys)

    monkeypatch.setattr(RowFinder, "find", of_one_type)
    done = looked_up(lookup(url), 1, "x", 2, 3)
    assert [row[:2] for row in done.emitted()] == [(1, 0), ("x", 1), (2, 2), (2, 2), (3, 3)]


def test_the_database_decides_which_keys_are_equal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    execute(
        url,
        "CREATE TABLE words (word TEXT COLLATE NOCASE, number INTEGER)",
        "INSERT INTO words VALUES ('abc', 1), ('Xyz', 2)",
    )
    finder = RowFinder(sqlalchemy.make_url(url), "words", ["word"], ["number"])
    keys = [("ABC",), ("abc",), ("xyz",), ("none",)]
    assert finder.find(keys) == {("ABC",): [(1,)], ("abc",): [(1,)], ("xyz",): [(2,)], ("none",): []}
    assert finder.find([("XYZ",)]) == {("XYZ",): [(2,)]}
    finder.close()


def test_batches_are_one_statement_and_what_is_absent_is_cached_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Any]] = []
    find = RowFinder.find

    def counted(finder: RowFinder, keys: Any) -> Any:
        asked.append(sorted(keys))
        return find(finder, keys)

    monkeypatch.setattr(RowFinder, "find", counted)
    bolt = lookup(url)
    bolt.batch_size = 4
    looked_up(bolt, 1, 3, 1, 4, 3, 1, 4, 5)
    assert asked == [[(1,), (3,), (4,)], [(5,)]]


def test_a_cache_forgets_what_is_old_and_what_was_not_used() -> None:
    cache: AgedCache[str] = AgedCache(2, 10)
    cache.put("a", "1", 0)
    cache.put("b", "2", 5)
    assert cache.get("a", 9) == "1"
    cache.put("c", "3", 9)
    assert (cache.get("b", 9), cache.get("a", 10), cache.get("c", 18.9), len(cache)) == (None, None, "3", 1)
    cache.put("c", "4", 15)
    assert cache.get("c", 24) == "4" and cache.get("c", 14) is None
    nothing: AgedCache[str] = AgedCache(0, None)
    nothing.put("a", "1", 0)
    assert nothing.get("a", 0) is None


class Seen(Bolt):
    seen: list[Any] = []

    def execute(self, tup: Any) -> None:
        self.seen.append(tuple(tup.values))


def until(happens: Callable[[], bool], cluster: LocalCluster) -> None:
    """Let a cluster run until something happens."""
    ended = threading.Event()
    timer = threading.Timer(CAP, ended.set)
    timer.start()
    while not happens():
        assert not ended.is_set(), cluster.status("shop")
        ended.wait(0.05)
    timer.cancel()


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_tuples_wait_for_a_database_that_is_away_and_the_status_says_so(
    running: PostgreSQL, how: str
) -> None:
    execute(running.url, "DROP TABLE IF EXISTS customers", TABLE, ROWS)
    Seen.seen = []
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", ScriptedSpout(["customer", "price"], [(1, at) for at in range(20)]))
    builder.set_bolt("named", lookup(running.url, cache=0)).shuffle_grouping("orders")
    builder.set_bolt("seen", Seen()).shuffle_grouping("named")
    process = running.process()
    if how == "stopped":
        running.stop()
    else:
        os.kill(process, signal.SIGSTOP)
    try:
        with LocalCluster() as cluster:
            cluster.submit(builder.build())
            until(lambda: "waiting for" in cluster.status("shop").components["named"].idle, cluster)
            assert not Seen.seen
            if how == "stopped":
                running.start()
            else:
                os.kill(process, signal.SIGCONT)
            cluster.wait("shop", CAP)
            assert cluster.status("shop").components["orders"].failed == 0
    finally:
        if how == "frozen":
            os.kill(process, signal.SIGCONT)
    assert sorted(Seen.seen) == [(1, at, "ada") for at in range(20)]


def test_a_missing_table_or_column_says_what_to_do(url: str) -> None:
    with pytest.raises(SquallError, match=r"no table 'bills'.*create it"):
        looked_up(SqlLookup(url, "bills", "customer", "name", fields="customer"), 1)
    with pytest.raises(SquallError, match="no columns tax; its columns are id, region, name"):
        looked_up(SqlLookup(url, "customers", {"id": "customer"}, "tax", fields="customer"), 1)


def test_arguments_are_checked_together() -> None:
    with pytest.raises(InvalidConfig) as bad:
        SqlLookup(
            "postgresql://me:hunter2@db/shop", "", {}, ["a"], fields=["a"], missing="skip", cache=-1, ttl=0,
            password="hunter2",
        )  # fmt: skip
    text = str(bad.value)
    for part in (
        "url has",
        "table is",
        "key is",
        "emitted twice",
        "missing is",
        "cache is",
        "ttl is",
        "password has",
    ):
        assert part in text
    assert "hunter2" not in text


def test_a_stream_without_the_fields_is_refused_when_the_topology_is_built() -> None:
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", ScriptedSpout(["buyer"], []))
    builder.set_bolt("named", lookup("sqlite://")).shuffle_grouping("orders")
    with pytest.raises(
        InvalidTopology, match="'orders' has no fields 'customer', 'price', which SqlLookup needs"
    ):
        builder.build()
