"""A registry never overwrites a value that it has not read, and gives no number twice."""

from __future__ import annotations

import json
import threading

import pytest
from msgspec.structs import replace

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import (
    FORMAT,
    BadRecord,
    NimbusRecord,
    SupervisorRecord,
)
from squall.cluster.registry import Registry
from squall.cluster.store import Conflict, Exists
from squall.values import TopologyState
from tests.squall.cluster.small_records import PLACED, REPORT, WORDS


def test_a_name_is_taken_once() -> None:
    store = InMemoryStore()
    Registry(store).topologies.create(WORDS)
    with pytest.raises(Exists):
        Registry(store).topologies.create(replace(WORDS, id="words-2-0"))
    assert Registry(store).topologies.get("words") == WORDS


@pytest.fixture
def behind() -> Registry:
    """A registry that has written a topology, which another one has killed since."""
    mine = Registry(InMemoryStore())
    mine.topologies.create(WORDS)
    yours = Registry(mine.store)
    read = yours.topologies.get("words")
    assert read is not None
    yours.topologies.update(read, replace(read, state=TopologyState.KILLED))
    return mine


def test_a_topology_changed_by_another_registry_since_is_not_overwritten(behind: Registry) -> None:
    with pytest.raises(Conflict):
        behind.topologies.update(WORDS, replace(WORDS, state=TopologyState.INACTIVE))
    assert behind.topologies.get("words") == replace(WORDS, state=TopologyState.KILLED)
    with pytest.raises(Conflict, match="read earlier"):
        behind.topologies.update(WORDS, replace(WORDS, state=TopologyState.INACTIVE))
    with pytest.raises(Conflict):
        behind.topologies.remove(WORDS)
    assert Registry(behind.store).topologies.get("words") == replace(WORDS, state=TopologyState.KILLED)


def test_a_topology_changed_by_another_registry_since_is_not_removed(behind: Registry) -> None:
    with pytest.raises(Conflict):
        behind.topologies.remove(WORDS)
    assert Registry(behind.store).topologies.get("words") == replace(WORDS, state=TopologyState.KILLED)


def test_a_record_that_was_removed_and_made_again_is_read_again() -> None:
    store = InMemoryStore()
    mine, yours = Registry(store), Registry(store)
    yours.topologies.create(WORDS)
    assert mine.topologies.get("words") == WORDS
    yours.topologies.remove(WORDS)
    assert mine.topologies.get("words") is None
    yours.topologies.create(replace(WORDS, id="words-2-0"))
    assert mine.topologies.get("words") == replace(WORDS, id="words-2-0")


def test_an_unchanged_record_is_decoded_once() -> None:
    registry = Registry(InMemoryStore())
    registry.topologies.create(WORDS)
    assert registry.topologies.get("words") is registry.topologies.get("words")


def test_topologies_come_in_the_order_of_submission() -> None:
    registry = Registry(InMemoryStore())
    for number, name in enumerate(["zebra", "ant", "cat"]):
        registry.topologies.create(replace(WORDS, id=f"{name}-{number}-5", name=name, submitted=number))
    assert [record.name for record in registry.all_topologies()] == ["zebra", "ant", "cat"]


def test_an_assignment_without_workers_counts_as_none() -> None:
    registry = Registry(InMemoryStore())
    registry.assignments.write(PLACED)
    registry.leaving.write(PLACED)
    assert (registry.assignments.get("words-1-0"), registry.leaving.get("words-1-0")) == (PLACED, PLACED)
    registry.assignments.write(replace(PLACED, placements=()))
    registry.leaving.write(replace(PLACED, placements=()))
    assert (registry.assignments.get("words-1-0"), registry.leaving.get("words-1-0")) == (None, None)


def test_reports_are_kept_by_worker_and_forgotten() -> None:
    registry = Registry(InMemoryStore())
    other = replace(REPORT, worker="w2")
    registry.save_report("words-1-0", REPORT)
    registry.save_report("words-1-0", other)
    assert registry.reports("words-1-0") == {"w1": REPORT, "w2": other}
    registry.remove_report("words-1-0", "w1")
    assert registry.reports("words-1-0") == {"w2": other}


def test_a_supervisor_exists_until_it_leaves() -> None:
    registry = Registry(InMemoryStore())
    registry.supervisors.put(SupervisorRecord("s2", "b", 1))
    registry.supervisors.put(SupervisorRecord("s1", "a", 1))
    registry.supervisors.put(SupervisorRecord("s1", "a", 2))
    assert [(record.id, record.slots) for record in registry.all_supervisors()] == [("s1", 2), ("s2", 1)]
    registry.supervisors.drop("s1")
    assert [record.id for record in registry.all_supervisors()] == ["s2"]


def test_topologies_are_written_as_every_registered_daemon_reads_them() -> None:
    registry = Registry(InMemoryStore())

    def format_of_words() -> tuple[int, bool]:
        data, _ = registry.store.get(paths.topology("words")) or (b"{}", 0)
        body = json.loads(data)
        assert Registry(registry.store).topologies.get("words") == record
        return body["format"], "topology.workers" in body["component_confs"]["lines"]

    record = replace(WORDS, component_confs={"lines": {**WORDS.conf, "own": 1}})
    registry.supervisors.put(SupervisorRecord("s1", "a", 1, reads=FORMAT))
    registry.topologies.create(record)
    assert format_of_words() == (6, False)
    registry.nimbuses.put(NimbusRecord("n1", "http://a:1", "a"))  # of an earlier build
    registry.topologies.write(record)
    assert format_of_words() == (5, True)
    registry.nimbuses.put(NimbusRecord("n1", "http://a:1", "a", reads=FORMAT))
    registry.supervisors.put(SupervisorRecord("s2", "b", 1))
    registry.topologies.write(record)
    assert format_of_words() == (5, True)
    registry.supervisors.drop("s2")
    registry.topologies.write(record)
    assert format_of_words() == (6, False)


def test_invalid_bytes_are_not_taken_for_a_missing_record() -> None:
    store = InMemoryStore()
    store.put(paths.topology("words"), b"{}")
    with pytest.raises(BadRecord):
        Registry(store).topologies.get("words")


def test_no_number_is_given_twice_whichever_registry_asks() -> None:
    store = InMemoryStore()
    numbers: list[int] = []

    def ask() -> None:
        registry = Registry(store)
        for _ in range(50):
            numbers.append(registry.next_number("assignments"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(numbers) == list(range(1, 201))
    assert Registry(store).next_number("submissions") == 1


def test_nothing_is_kept_of_a_topology_that_another_registry_removed() -> None:
    store = InMemoryStore()
    mine, yours = Registry(store), Registry(store)
    mine.topologies.create(WORDS)
    mine.assignments.write(PLACED)
    mine.save_report(WORDS.id, REPORT)
    assert yours.all_topologies() == [WORDS] and yours.reports(WORDS.id) == {"w1": REPORT}
    mine.remove_all_of(WORDS.id)
    mine.topologies.remove(WORDS)
    assert yours.all_topologies() == []
    assert not yours._known.by_path


def test_nothing_is_kept_of_a_topology_whose_name_another_one_has_by_now() -> None:
    store = InMemoryStore()
    mine, yours = Registry(store), Registry(store)
    mine.topologies.create(WORDS)
    mine.assignments.write(PLACED)
    assert yours.all_topologies() == [WORDS]
    mine.remove_all_of(WORDS.id)
    mine.topologies.remove(WORDS)
    again = replace(WORDS, id="words-2-0")
    mine.topologies.create(again)
    assert yours.all_topologies() == [again]
    assert list(yours._known.by_path) == [paths.topology("words")]


def test_topologies_of_the_same_instant_are_in_the_order_of_their_submission() -> None:
    registry = Registry(InMemoryStore())
    for number, name in ((9, "late"), (10, "early-in-the-alphabet"), (2, "zebra")):
        registry.topologies.create(replace(WORDS, id=f"{name}-{number}-0", name=name))
    assert [record.name for record in registry.all_topologies()] == ["zebra", "late", "early-in-the-alphabet"]


def test_sealed_keys_are_read_as_they_were_saved_and_removed_completely() -> None:
    registry = Registry(InMemoryStore())
    assert registry.sealed_keys("words-1-0", "s1") is None
    for sealed in (b"sealed", b"sealed again"):
        registry.save_sealed_keys("words-1-0", "s1", sealed)
        assert registry.sealed_keys("words-1-0", "s1") == sealed
    registry.save_sealed_keys("words-1-0", "a/b", b"for another")
    assert registry.sealed_keys("words-1-0", "a/b") == b"for another"
    registry.remove_keys("words-1-0")
    registry.remove_keys("words-1-0")
    assert registry.store.children("/") == []
