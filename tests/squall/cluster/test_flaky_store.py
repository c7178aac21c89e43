"""The store that fails on purpose fails exactly where the test says."""

from __future__ import annotations

import pytest

from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Unavailable
from tests.flaky_store import AFTER, BEFORE, FlakyStore


def test_a_write_that_fails_before_changes_nothing_and_one_that_fails_after_is_done() -> None:
    store = FlakyStore(InMemoryStore())
    store.put("/a", b"1")
    store.fail_write(2, BEFORE)
    store.fail_write(3, AFTER)
    store.put("/a", b"2")
    for data in (b"3", b"4"):
        with pytest.raises(Unavailable, match="put of /a"):
            store.put("/a", data)
    assert store.get("/a") == (b"4", 2)
    assert [(call.path, call.write) for call in store.failed] == [("/a", 3), ("/a", 4)]


def test_a_store_that_is_away_answers_no_request_and_calls_no_watch() -> None:
    inner = InMemoryStore()
    store = FlakyStore(inner)
    told: list[str] = []
    store.watch("/", told.append)
    store.away = True
    inner.put("/a", b"1")
    with pytest.raises(Unavailable):
        store.get("/a")
    store.away = False
    inner.put("/a", b"2")
    assert told == ["/a"]
