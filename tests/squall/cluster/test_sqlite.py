"""A store in a file keeps its values when the file is opened again, and belongs to one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from squall.cluster.read_cache import MOST_BYTES
from squall.cluster.sqlite import InUse, SqliteStore
from squall.cluster.store import StoreError, Unavailable


def test_values_and_versions_are_kept_when_it_is_opened_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "deep" / "store.sqlite")
    store.put("/a/b", b"one")
    version = store.put("/a/b", b"two")
    store.close()
    again = SqliteStore(tmp_path / "deep" / "store.sqlite")
    assert again.get("/a/b") == (b"two", version)
    assert again.put("/a/b", b"three", version) != version
    again.close()


def test_ephemeral_values_of_a_process_that_was_killed_are_gone(tmp_path: Path) -> None:
    script = """
import os, sys
from squall.cluster.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
store.create("/presence/s1", b"x", ephemeral=True)
store.put("/a", b"x")
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store.sqlite")], check=False)
    assert ended.returncode == -9
    store = SqliteStore(tmp_path / "store.sqlite")
    assert store.children("/") == ["a"]
    store.close()


def test_a_second_opener_learns_who_has_the_file_and_the_first_is_not_disturbed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    with pytest.raises(InUse, match=r"store\.sqlite is used by another process"):
        SqliteStore(tmp_path / "store.sqlite")
    store.put("/a", b"x")
    store.close()
    SqliteStore(tmp_path / "store.sqlite").close()


def test_a_file_of_another_kind_is_refused_by_name_and_released(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    file.write_text("this is a letter, and no database at all\n" * 50)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"store\.sqlite is not a store") as caught:
            SqliteStore(file)
        assert not isinstance(caught.value, InUse)


def test_the_end_of_the_first_session_ends_all(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "store.sqlite")
    other = first.session()
    other.put("/a", b"x")
    first.close()
    with pytest.raises(Unavailable, match="closed"):
        other.get("/a")
    other.close()


def test_the_file_is_released_even_if_a_watch_raises(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    store.create("/a", b"x", ephemeral=True)

    def fail(path: str) -> None:
        raise RuntimeError(path)

    store.watch("/", fail)
    with pytest.raises(RuntimeError, match="/a"):
        store.close()
    SqliteStore(tmp_path / "store.sqlite").close()


def test_a_large_value_is_read_from_the_file_on_each_get(tmp_path: Path) -> None:
    large, larger, small = b"x" * (MOST_BYTES + 1), b"y" * (MOST_BYTES + 2), b"z" * MOST_BYTES
    store = SqliteStore(tmp_path / "store.sqlite")
    store.put("/small", small)
    store.put("/large", small)
    store.put("/large", large)
    version = store.put("/large", larger, 1)
    for _ in range(2):
        assert (store.get("/large"), store.get("/small")) == ((larger, version), (small, 0))
        assert sum(len(data) for data, _ in store._saved.values.values()) == len(small)
        store.close()
        store = SqliteStore(tmp_path / "store.sqlite")
    store.put("/large", b"small again")
    assert store.get("/large") == (b"small again", version + 1)
    store.delete("/large")
    assert store.get("/large") is None
    store.close()


def test_a_large_value_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    store.put("/large", b"x" * (MOST_BYTES + 1))
    store._saved.database.execute("DROP TABLE store")
    with pytest.raises(Unavailable, match=r"store\.sqlite fails: no such table"):
        store.get("/large")
    store.close()
