"""A value is cached until it changes or is too old, only while changes are reported, and never when a
change overtook the read.
"""

from __future__ import annotations

import pytest

from squall.clock import ManualClock
from squall.cluster.read_cache import MOST_BYTES, ReadCache

VALUE, CHILDREN = ReadCache.VALUE, ReadCache.CHILDREN


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> ReadCache:
    cache = ReadCache(clock, 8.0)
    cache.open()
    return cache


def learn(cache: ReadCache, kind: str, path: str, answer: object = "x") -> None:
    cache.keep(cache.begin(kind, path), answer)


def known(cache: ReadCache, kind: str, path: str) -> bool:
    return cache.find(kind, path) is not None


def test_an_answer_is_cached_for_some_seconds(cache: ReadCache, clock: ManualClock) -> None:
    learn(cache, VALUE, "/a", (b"x", 3))
    found = cache.find(VALUE, "/a")
    assert found is not None and found.answer == (b"x", 3)
    assert not known(cache, CHILDREN, "/a")
    clock.move_to(7.9)
    assert known(cache, VALUE, "/a")
    clock.move_to(8.0)
    assert not known(cache, VALUE, "/a")


def test_an_absent_value_is_cached_too(cache: ReadCache) -> None:
    learn(cache, VALUE, "/a", None)
    found = cache.find(VALUE, "/a")
    assert found is not None and found.answer is None


def test_a_change_drops_the_value_and_the_names_at_and_above_it_and_nothing_else(cache: ReadCache) -> None:
    kept = [(VALUE, "/a"), (VALUE, "/a/b/c"), (CHILDREN, "/"), (VALUE, "/a/bb"), (CHILDREN, "/a/bb")]
    dropped = [(VALUE, "/a/b"), (CHILDREN, "/a/b"), (CHILDREN, "/a")]
    for kind, path in kept + dropped:
        learn(cache, kind, path)
    cache.changed("/a/b")
    assert [each for each in kept + dropped if known(cache, *each)] == kept


def test_an_own_write_drops_everything_above_too(cache: ReadCache) -> None:
    kept = [(VALUE, "/b"), (VALUE, "/a/b/c/d")]
    dropped = [(VALUE, "/a/b/c"), (CHILDREN, "/a/b"), (VALUE, "/a"), (CHILDREN, "/a"), (CHILDREN, "/")]
    for kind, path in kept + dropped:
        learn(cache, kind, path)
    cache.wrote("/a/b/c")
    assert [each for each in kept + dropped if known(cache, *each)] == kept


def test_an_answer_overtaken_by_a_change_is_not_cached(cache: ReadCache) -> None:
    asked = cache.begin(VALUE, "/a")
    cache.changed("/a")
    cache.keep(asked, "old")
    assert not known(cache, VALUE, "/a")


def test_of_two_simultaneous_reads_the_later_answer_is_cached(cache: ReadCache) -> None:
    early = cache.begin(VALUE, "/a")
    cache.changed("/a")
    late = cache.begin(VALUE, "/a")
    cache.keep(early, "old")
    assert not known(cache, VALUE, "/a")
    cache.keep(late, "new")
    found = cache.find(VALUE, "/a")
    assert found is not None and found.answer == "new"


def test_nothing_is_cached_while_changes_are_not_reported(cache: ReadCache) -> None:
    learn(cache, VALUE, "/a")
    before = cache.begin(VALUE, "/b")
    cache.close()
    learn(cache, VALUE, "/c")
    during = cache.begin(VALUE, "/d")
    assert not any(known(cache, VALUE, path) for path in ("/a", "/c"))
    cache.open()
    cache.keep(before, "old")
    cache.keep(during, "old")
    assert not any(known(cache, VALUE, path) for path in ("/a", "/b", "/c", "/d"))
    learn(cache, VALUE, "/a")
    assert known(cache, VALUE, "/a")
    cache.drop_all()
    assert not known(cache, VALUE, "/a")


def test_big_values_are_not_cached_and_old_ones_are_removed(cache: ReadCache, clock: ManualClock) -> None:
    cache.keep(cache.begin(VALUE, "/big"), b"", MOST_BYTES + 1)
    assert len(cache._known) == 0
    learn(cache, VALUE, "/a")
    clock.move_to(5.0)
    learn(cache, VALUE, "/b")
    cache.purge()
    assert len(cache._known) == 2
    clock.move_to(8.0)
    cache.purge()
    assert len(cache._known) == 1
