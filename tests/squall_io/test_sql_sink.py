"""The SQL sink: rows are written once with a token, and refused rows fail alone without one."""

from __future__ import annotations

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from local_cluster.testing import run_bolt
from squall_io.sql import SqlSink
from squall_io.sql.database import RowRefused
from topology_api import InvalidConfig, SquallError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER NOT NULL CHECK (price > 0))"
        )
    return path


def sink(file: Path, **more: object) -> SqlSink:
    return SqlSink(f"sqlite:///{file}", "orders", ["id", "price"], **more)  # type: ignore[arg-type]


def written(file: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(file) as database:
        return database.execute("SELECT id, price FROM orders ORDER BY id").fetchall()


def orders(*rows: tuple[int, int]) -> list[dict[str, int]]:
    return [{"id": number, "price": price} for number, price in rows]


def test_rows_and_token_are_written_together_once(file: Path) -> None:
    bolt = sink(file)
    assert bolt.read_token("t") == 0
    assert bolt.write(3, orders((1, 5)), 0, "t")
    assert bolt.write(4, orders((2, 5)), 3, "t")
    assert not bolt.write(4, orders((3, 5)), 3, "t")
    assert not bolt.write(4, orders((3, 5)), 0, "t")
    assert (bolt.read_token("t"), written(file)) == (4, [(1, 5), (2, 5)])
    bolt.cleanup()


@pytest.mark.parametrize("expected", [0, 1])
def test_of_concurrent_writers_one_wins(file: Path, expected: int) -> None:
    if expected:
        assert sink(file).write(1, [], 0, "t")
    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(lambda n: sink(file).write(2, orders((n, 5)), expected, "t"), range(4)))
    assert sorted(won) == [False, False, False, True]
    assert written(file) == [(won.index(True), 5)]


def test_a_refused_row_is_named_and_leaves_nothing(file: Path) -> None:
    bolt = sink(file)
    with pytest.raises(RowRefused, match=r"'id': 2.*CHECK constraint failed"):
        bolt.write(1, orders((1, 5), (2, -1)), 0, "t")
    assert (bolt.read_token("t"), written(file)) == (0, [])


def test_without_a_token_only_refused_rows_fail(file: Path) -> None:
    rows = [(1, 5), (2, -1), (3, None), (4, "x"), (5, 7), (6, 2**70)]
    done = run_bolt(sink(file), rows, source_fields=["id", "price"])
    assert written(file) == [(1, 5), (5, 7)]
    assert len(done.failed()) == 4


def test_a_missing_table_or_column_says_what_to_do(file: Path) -> None:
    with pytest.raises(SquallError, match=r"no table 'bills'.*create it"):
        SqlSink(f"sqlite:///{file}", "bills", ["id"]).read_token("t")
    with pytest.raises(SquallError, match="no columns tax; its columns are id, price"):
        SqlSink(f"sqlite:///{file}", "orders", ["id", "tax"]).read_token("t")


def test_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig) as bad:
        SqlSink("no url with hunter2", "t", ["a"])
    assert "hunter2" not in str(bad.value)
    bolt = SqlSink("postgresql://me@db/shop", "t", ["a"], password_variable="SHOP_PASSWORD")
    with pytest.raises(SquallError, match="has no SHOP_PASSWORD"):
        bolt.read_token("t")


def test_without_sqlalchemy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(SquallError, match=r"squall\[sql\]"):
        SqlSink("sqlite://", "t", ["a"])
