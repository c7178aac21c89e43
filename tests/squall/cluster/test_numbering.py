"""A damaged or lost counter continues above every number in use, and reports that once."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.numbering import ASSIGNMENTS, SUBMISSIONS, next_number, raise_to
from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport, encode
from squall.cluster.store import Store, Unavailable
from squall.values import Incarnation, TopologyState
from tests.flaky_store import AFTER, FlakyStore
from topology_api.options import defaults

NONSENSE = [b"many", b"\x00\xff", b"-7", b"1e3", b"9" * 5000, b"\xd9\xa3"]
RECORD = TopologyRecord(
    "words-1-0", "words", TopologyState.ACTIVE, None, defaults(), {}, (), 0, None, None, 0.0
)
PLACED = Assignment("words-1-0", 1, (Placement("w1", "s1", 0, Incarnation(1, 0), (1,)),))
REPORT = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


#: Where a number 41 may be in use, by its kind: a path, and the value.
PLACES = {
    (SUBMISSIONS, "a record"): (paths.topology("x"), encode(replace(RECORD, id="x-y-41-1700000000"))),
    (SUBMISSIONS, "one that waits"): (paths.replacement("x"), encode(replace(RECORD, id="x-41-17"))),
    (SUBMISSIONS, "the one before"): (paths.replaced("x"), encode(replace(RECORD, id="x-41-17"))),
    (SUBMISSIONS, "what it replaces"): (paths.topology("x"), encode(replace(RECORD, replaces="x-41-1"))),
    (SUBMISSIONS, "a newer format"): (paths.topology("x"), b'{"format": 99, "id": "x-41-17", "size": 77}'),
    (SUBMISSIONS, "an assignment"): (paths.assignment("a/b-41-17"), b"nonsense"),
    (SUBMISSIONS, "a worker to go"): (paths.leaving("x-41-17"), b"nonsense"),
    (SUBMISSIONS, "a report"): (paths.report("x-41-17", "w1"), b"nonsense"),
    (SUBMISSIONS, "keys"): (paths.sealed_keys("x-41-17", "s1"), b"nonsense"),
    (SUBMISSIONS, "a bundle"): (paths.pickle("x-41-17", "spout"), b"nonsense"),
    (ASSIGNMENTS, "a record"): (paths.topology("x"), encode(replace(RECORD, version=41))),
    (ASSIGNMENTS, "one that waits"): (paths.replacement("x"), encode(replace(RECORD, version=41))),
    (ASSIGNMENTS, "the one before"): (paths.replaced("x"), encode(replace(RECORD, version=41))),
    (ASSIGNMENTS, "an assignment"): (paths.assignment("x-1-1"), encode(replace(PLACED, version=41))),
    (ASSIGNMENTS, "a worker"): (
        paths.leaving("x-1-1"),
        encode(replace(PLACED, placements=(replace(PLACED.placements[0], incarnation=Incarnation(41, 0)),))),
    ),
    (ASSIGNMENTS, "a former worker"): (paths.former("x-1-1"), encode(replace(PLACED, version=41))),
    (ASSIGNMENTS, "a report"): (
        paths.report("x-1-1", "w1"),
        encode(replace(REPORT, incarnation=Incarnation(41, 900))),
    ),
    (ASSIGNMENTS, "half a record"): (paths.topology("x"), b'{"version": 41, "tasks": [[77, "a", 1'),
}


@pytest.mark.parametrize("place", PLACES, ids=" in ".join)
def test_a_damaged_counter_continues_above_a_number_in_use_anywhere(
    place: tuple[str, str], store: InMemoryStore
) -> None:
    name, (path, data) = place[0], PLACES[place]
    store.put(path, data)
    store.put(paths.counter(name), b"nonsense")
    assert [next_number(store, name) for _ in range(3)] == [42, 43, 44]


@pytest.mark.parametrize("data", NONSENSE, ids=range(len(NONSENSE)))
def test_a_counter_with_any_content_is_repaired_and_reported_once(
    data: bytes, store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(paths.assignment("words-1-0"), encode(PLACED))
    store.put(paths.counter(ASSIGNMENTS), data)
    assert [next_number(store, ASSIGNMENTS) for _ in range(2)] == [2, 3]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("/counters/assignments held b") and told.endswith("above every number in use")


def test_a_value_that_only_looks_like_a_number_in_use_does_not_exhaust_a_counter(
    store: InMemoryStore,
) -> None:
    largest = 10**15 - 1
    conf = {**defaults(), "version": largest, "phone": f"0049-{largest}-1"}
    store.put(paths.topology("words"), encode(replace(RECORD, conf=conf)))
    for name in (SUBMISSIONS, ASSIGNMENTS):
        store.put(paths.counter(name), b"nonsense")
        assert [next_number(store, name) for _ in range(3)] == [largest + 1, largest + 2, largest + 3]


def test_a_lost_counter_begins_above_the_numbers_in_use(
    store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(paths.assignment("words-1-0"), encode(PLACED))
    assert next_number(store, ASSIGNMENTS) == 2
    assert "/counters/assignments held nothing" in caplog.text


def test_the_first_number_of_a_cluster_is_1_without_a_report(
    store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert [next_number(store, name) for name in (SUBMISSIONS, ASSIGNMENTS)] == [1, 1]
    assert not caplog.records


def test_a_number_that_an_operator_wrote_counts(store: InMemoryStore) -> None:
    store.put(paths.counter(SUBMISSIONS), b" 17\n")
    assert next_number(store, SUBMISSIONS) == 18


def test_a_counter_behind_its_callers_last_number_does_not_go_back(store: InMemoryStore) -> None:
    store.put(paths.counter(ASSIGNMENTS), b"3")
    assert next_number(store, ASSIGNMENTS, above=8) == 9
    assert next_number(store, ASSIGNMENTS, above=8) == 10


@pytest.mark.parametrize(("held", "follows"), [(None, 101), (b"7", 101), (b"500", 502), (b"nonsense", 101)])
def test_a_raised_counter_continues_above_that_number_and_never_goes_back(
    store: InMemoryStore, held: bytes | None, follows: int
) -> None:
    if held is not None:
        store.put(paths.counter(ASSIGNMENTS), held)
    raise_to(store, ASSIGNMENTS, 100)
    assert next_number(store, ASSIGNMENTS) == follows


def test_a_repair_that_timed_out_gives_no_number_twice(store: InMemoryStore) -> None:
    flaky = FlakyStore(store)
    store.put(paths.counter(ASSIGNMENTS), b"nonsense")
    flaky.fail_write(1, AFTER)
    with pytest.raises(Unavailable):
        next_number(flaky, ASSIGNMENTS)
    assert [next_number(flaky, ASSIGNMENTS) for _ in range(2)] == [2, 3]


def test_two_that_repair_a_counter_at_once_get_different_numbers(store: InMemoryStore) -> None:
    store.put(paths.counter(ASSIGNMENTS), b"nonsense")
    other: list[int] = []

    class Meanwhile(FlakyStore):
        def children(self, path: str) -> list[str]:
            if not other:
                other.append(next_number(store, ASSIGNMENTS))
            return super().children(path)

    racing: Store = Meanwhile(store)
    assert [*other, next_number(racing, ASSIGNMENTS)] == [2] and other == [1]
