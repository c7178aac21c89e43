"""A store in a file whose disk fails: it is closed nevertheless, and a failed open is reported in one sentence."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from squall.cluster.sqlite import SqliteStore
from squall.cluster.store import StoreError


def test_a_store_whose_disk_fails_when_it_is_closed_leaves_nothing_of_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    store.put("/a", b"x")
    store.create("/b", b"x", ephemeral=True)
    database = store._saved.database

    class Full:
        close = database.close

        def executemany(self, *_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store._saved, "database", Full())
    store.close()
    assert "disk is full" in caplog.text
    again = SqliteStore(tmp_path / "store.sqlite")
    assert again.children("/") == ["a"]
    again.close()


def test_an_impossible_place_for_a_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(StoreError, match=r"file/store\.sqlite is not a store that can be opened"):
        SqliteStore(tmp_path / "file" / "store.sqlite")
