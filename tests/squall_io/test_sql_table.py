"""The SQL table as a stream: every row once in the order of a column, late commits within the lag, and outages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st

from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import check_rewindable_spout
from squall_io.sql import SqlTable
from squall_io.sql.places import SeenValues, packed, unpacked
from tests.sql_servers import PostgreSQL, postgresql_server
from topology_api import Fields, InvalidConfig, SquallError

#: Seconds after which a test gives up.
CAP = 60.0
TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER, at TIMESTAMP)"


@pytest.fixture(scope="module")
def running() -> Iterator[PostgreSQL]:
    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/shop.db" if sqlite else request.getfixturevalue("running").url
    execute(
        url,
        "DROP TABLE IF EXISTS orders",
        "DROP TABLE IF EXISTS seen",
        "DROP TABLE IF EXISTS squall_tokens",
        TABLE,
    )
    return url


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.begin() as connection:
            found = [connection.exec_driver_sql(each) for each in statements][-1]
            return [tuple(row) for row in found] if found.returns_rows else []
    finally:
        engine.dispose()


def insert(url: str, first: int, last: int) -> None:
    """Rows of which ten have the same time."""
    values = ", ".join(
        f"({number}, {number % 7}, '2024-01-01 00:00:{number // 10 % 60:02}.000000')"
        for number in range(first, last)
    )
    execute(url, f"INSERT INTO orders VALUES {values}")


class Reading:
    """One task of a spout."""

    def __init__(self, spout: SqlTable, position: Any = None) -> None:
        self.spout, self.around = spout, Surroundings()
        self.rows: list[Any] = []
        self.finished = False
        vars(spout)["_squall_task"] = self
        spout.open(context_of("orders", 0, 1, self.around))
        if position is not None:
            spout.rewind(position)

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        self.rows.append(tuple(values))

    def finish(self) -> None:
        self.finished = True

    def step(self) -> None:
        wait = self.spout.next_tuple()
        if self.spout._call is not None:
            self.spout._call.is_over(CAP)
        else:
            self.around.now += wait or 0.0

    def until(self, happens: Callable[[], bool]) -> None:
        end = time.monotonic() + CAP
        while not happens():
            assert time.monotonic() < end
            self.step()


@pytest.mark.parametrize(
    ("url", "order", "follow", "lag"),
    [
        ("sqlite", "id", True, 0),
        ("sqlite", "at", True, 2.0),
        ("sqlite", "at", False, 5.0),
        ("postgresql", "at", True, 2.0),
    ],
    indirect=["url"],
)
def test_the_contract_of_spouts(url: str, order: str, follow: bool, lag: float) -> None:
    insert(url, 0, 90)
    rows = execute(url, "SELECT id, price FROM orders")
    check_rewindable_spout(
        lambda: SqlTable(url, "orders", ["id", "price"], order_by=order, follow=follow, lag=lag),
        rows,
        lose=lambda: execute(url, "DROP TABLE orders"),
    )


def test_more_rows_of_one_value_than_a_statement_reads(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_io.sql.polling.MOST_ROWS", 3)
    insert(url, 0, 50)
    reading = Reading(SqlTable(url, "orders", "id", order_by="at", follow=False))
    reading.until(lambda: reading.finished)
    assert [row[0] for row in reading.rows] == list(range(50))
    reading.spout.close()


def test_times_that_sqlite_wrote_itself_are_compared_as_it_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.sql.polling.MOST_ROWS", 3)
    url = f"sqlite:///{tmp_path}/times.db"
    rows = ", ".join(f"({number}, '2024-01-01 00:00:{number // 10:02}')" for number in range(30))
    execute(
        url, "CREATE TABLE seen (id INTEGER PRIMARY KEY, at TIMESTAMP)", f"INSERT INTO seen VALUES {rows}"
    )
    reading = Reading(SqlTable(url, "seen", "id", order_by="at", follow=False))
    reading.until(lambda: reading.finished)
    assert [row[0] for row in reading.rows] == list(range(30))
    reading.spout.close()
    start = datetime(2024, 1, 1, 0, 0, 1)
    reading = Reading(SqlTable(url, "seen", "id", order_by="at", follow=False, start=start))
    reading.until(lambda: reading.finished)
    assert [row[0] for row in reading.rows] == list(range(10, 30))
    reading.spout.close()


def test_a_key_that_cannot_be_a_position_is_refused_and_no_row_is_passed_over(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    execute(url, "CREATE TABLE seen (id INTEGER, old BOOLEAN)", "INSERT INTO seen VALUES (1, true)")
    with pytest.raises(
        SquallError, match=r"whose id, old cannot be a position: bool .* give order_by= and key="
    ):
        Reading(SqlTable(url, "seen", "id", order_by="id", key=["old"], follow=False))


def test_queries_names_and_a_start(url: str) -> None:
    insert(url, 0, 40)
    query = "SELECT id AS number, price * 2 AS twice, at FROM orders WHERE price > 3"
    spout = SqlTable(
        url,
        query,
        {"number": "order", "twice": "price"},
        order_by="number",
        key=["number"],
        start=20,
        follow=False,
    )
    reading = Reading(spout)
    reading.until(lambda: reading.finished)
    assert spout.outputs == Fields("order", "price")
    assert reading.rows == [(number, number % 7 * 2) for number in range(20, 40) if number % 7 > 3]
    spout.close()


def test_a_row_that_is_updated_comes_again(url: str) -> None:
    insert(url, 0, 10)
    reading = Reading(SqlTable(url, "orders", ["id", "price"], order_by="at", lag=0))
    reading.until(lambda: len(reading.rows) == 10)
    execute(url, "UPDATE orders SET price = 100, at = '2024-01-02 00:00:00.000000' WHERE id = 3")
    reading.until(lambda: len(reading.rows) == 11)
    assert reading.rows[-1] == (3, 100)
    reading.spout.close()


def test_a_smaller_value_that_is_committed_within_the_lag_is_not_missed(running: PostgreSQL) -> None:
    execute(running.url, "DROP TABLE IF EXISTS orders", TABLE)
    reading = Reading(SqlTable(running.url, "orders", "id", order_by="id", lag=5.0))
    engine = sqlalchemy.create_engine(running.url)
    with engine.connect() as late:
        late.exec_driver_sql("INSERT INTO orders VALUES (1, 1, NULL)")
        insert(running.url, 2, 3)
        began = reading.around.now
        reading.until(lambda: reading.around.now >= began + 4.0)
        assert not reading.rows
        late.commit()
    reading.until(lambda: len(reading.rows) == 2)
    assert reading.rows == [(1,), (2,)]
    assert reading.around.now >= began + 5.0
    engine.dispose()
    reading.spout.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False) | st.binary()
             | st.datetimes() | st.dates() | st.decimals(allow_nan=False) | st.uuids(), max_size=4)
)  # fmt: skip
def test_positions_are_kept_as_they_are(values: list[Any]) -> None:
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(packed(values)))
    found = unpacked(kept)
    assert list(found) == values and [type(each) for each in found] == [type(each) for each in values]


def test_times_with_zones_are_kept_and_other_values_are_refused() -> None:
    values = (datetime(2024, 1, 1, 5, tzinfo=timezone.utc), date(2024, 1, 1), Decimal("1.50"), UUID(int=5))
    assert unpacked(packed(values)) == values
    with pytest.raises(TypeError, match="bool cannot be part"):
        packed([True])


def test_values_may_be_read_when_they_have_been_there_for_long_enough() -> None:
    seen = SeenValues(5.0)
    seen.see(None, 100.0)
    assert seen.readable(200.0) is None
    seen.see(7, 200.0)
    seen.see(7, 203.0)
    seen.see(9, 204.0)
    assert [seen.readable(at) for at in (204.9, 205.0, 208.9, 209.0, 300.0)] == [None, 7, 7, 9, 9]


def test_tables_that_cannot_be_read_say_what_to_do(url: str) -> None:
    execute(url, "CREATE TABLE seen (id INTEGER)")
    for spout, why in (
        (SqlTable(url, "orders", "tax", order_by="id"), "no columns tax; its columns are id, price, at"),
        (
            SqlTable(url, "seen", "id", order_by="id"),
            "no primary key, and rows with the same id.*give key=",
        ),
        (
            SqlTable(url, "SELECT nothing FROM orders", "id", order_by="id", key="id"),
            "cannot be read: .*nothing",
        ),
    ):
        with pytest.raises(SquallError, match=why):
            Reading(spout)


def test_a_password_is_looked_up_where_the_task_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    with (
        postgresql_server(password="s3cret") as server,
        pytest.raises(SquallError, match="no table 'orders'"),
    ):
        Reading(SqlTable(server.url, "orders", "id", order_by="id", password="env:SHOP_PASSWORD"))


def test_arguments_are_checked_together() -> None:
    with pytest.raises(InvalidConfig) as bad:
        SqlTable(
            "postgresql://me:hunter2@db/shop", "", [], order_by="", key=[], start=True, follow=1, lag=-1,  # type: ignore[arg-type]
            poll_interval=0, password="hunter2",
        )  # fmt: skip
    for part in ("url has", "table is", "columns is", "order_by is", "key is", "start is", "follow is", "lag is",
                 "poll_interval is", "password has"):  # fmt: skip
        assert part in str(bad.value)
    assert "hunter2" not in str(bad.value)
