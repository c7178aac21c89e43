"""The registry skips unreadable records, forgets values that a failed write may have changed, and finds all parts of a
topology.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import (
    NimbusRecord,
    SupervisorRecord,
)
from squall.cluster.registry import Registry, name_of, number_of
from squall.cluster.store import Exists, Unavailable
from squall.values import TopologyState
from tests.flaky_store import AFTER, BEFORE, FlakyStore
from tests.squall.cluster.small_records import PLACED, REPORT, WORDS

OTHER = replace(WORDS, id="other-2-0", name="other")


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def registry(store: InMemoryStore) -> Registry:
    registry = Registry(store)
    registry.topologies.create(WORDS)
    registry.topologies.create(OTHER)
    return registry


@pytest.mark.parametrize(
    "path", [paths.topology("words"), paths.assignment("words-1-0"), paths.leaving("words-1-0")]
)
def test_an_unreadable_topology_is_skipped_and_named(
    path: str, store: InMemoryStore, registry: Registry
) -> None:
    assert registry.all_topologies() == [WORDS, OTHER] and registry.bad == {}
    store.put(path, b"nonsense")
    assert registry.all_topologies() == [OTHER]
    assert list(registry.bad) == ["words"] and path in registry.bad["words"]
    store.delete(path)
    registry.all_topologies()
    assert registry.bad == {}


def test_a_record_under_the_name_of_another_is_bad(store: InMemoryStore, registry: Registry) -> None:
    found = store.get(paths.topology("words"))
    assert found is not None
    store.put(paths.topology("other"), found[0])
    assert registry.all_topologies() == [WORDS]
    assert registry.bad == {"other": "/topologies/other holds the record of 'words'"}


def test_an_unreadable_report_counts_as_none_and_is_overwritten(
    store: InMemoryStore, registry: Registry
) -> None:
    store.put(paths.report("words-1-0", "w1"), b"nonsense")
    assert registry.report("words-1-0", "w1") is None
    assert registry.reports("words-1-0") == {}
    registry.save_report("words-1-0", REPORT)
    assert registry.reports("words-1-0") == {"w1": REPORT}


def test_an_unreadable_supervisor_or_nimbus_is_absent(
    store: InMemoryStore, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.supervisors.put(SupervisorRecord("s1", "a", 1))
    registry.nimbuses.put(NimbusRecord("n1", "http://n1", "a"))
    for path in (paths.supervisor("s2"), paths.nimbus("n2")):
        store.put(path, b"nonsense")
    for _ in range(2):
        assert [record.id for record in registry.all_supervisors()] == ["s1"]
        assert [record.id for record in registry.all_nimbuses()] == ["n1"]
    assert len(caplog.records) == 2
    registry.supervisors.put(SupervisorRecord("s2", "b", 1))
    assert [record.id for record in registry.all_supervisors()] == ["s1", "s2"]


@pytest.mark.parametrize("how", [BEFORE, AFTER])
def test_after_a_failed_write_the_value_is_read_again(how: str) -> None:
    store = FlakyStore(InMemoryStore())
    registry = Registry(store)
    registry.topologies.create(WORDS)
    store.fail_write(1, how)
    changed = replace(WORDS, state=TopologyState.INACTIVE)
    with pytest.raises(Unavailable):
        registry.topologies.update(WORDS, changed)
    now = registry.topologies.get("words")
    assert now == (changed if how == AFTER else WORDS)
    assert now is not None
    registry.topologies.update(now, changed)
    assert registry.topologies.get("words") == changed


@pytest.mark.parametrize("how", [BEFORE, AFTER])
def test_a_number_is_given_once_though_the_call_for_it_timed_out(how: str) -> None:
    store = FlakyStore(InMemoryStore())
    registry = Registry(store)
    given = [registry.next_number("assignments")]
    store.fail_write(1, how)
    with pytest.raises(Unavailable):
        registry.next_number("assignments")
    given += [registry.next_number("assignments") for _ in range(3)]
    assert len(set(given)) == 4


def test_waiting_and_replaced_versions_are_stored_beside_the_one_that_has_the_name(
    registry: Registry,
) -> None:
    newer = replace(WORDS, id="words-3-0")
    registry.replacements.create(newer)
    with pytest.raises(Exists):
        registry.replacements.create(newer)
    registry.replaced.put(WORDS)
    registry.replaced.put(WORDS)
    assert (registry.replacements.get("words"), registry.replacements.names()) == (newer, ["words"])
    assert (registry.replaced.get("words"), registry.replaced.names()) == (WORDS, ["words"])
    registry.replacements.drop("words")
    registry.replaced.drop("words")
    assert registry.replacements.get("words") is registry.replaced.get("words") is None
    registry.replaced.drop("words")


def test_drained_supervisors_are_known_until_they_are_undrained(registry: Registry) -> None:
    registry.save_drained("s1")
    registry.save_drained("a/b")
    assert registry.drained_supervisors() == {"s1", "a/b"}
    registry.remove_drained("s1")
    registry.remove_drained("s1")
    assert registry.drained_supervisors() == {"a/b"}


def test_all_parts_of_a_topology_are_found_and_removed(store: InMemoryStore, registry: Registry) -> None:
    registry.assignments.write(PLACED)
    registry.leaving.write(replace(PLACED, topology_id="words-9-0"))
    registry.save_report("words-5-0", REPORT)
    registry.save_sealed_keys("words-6-0", "s1", b"sealed")
    registry.save_sealed_keys(paths.OPERATOR, "n1", b"sealed")
    store.put(paths.description("words-7-0"), b"{}")
    assert registry.known_ids() == {f"words-{number}-0" for number in (1, 5, 6, 7, 9)}
    assert registry.placed_ids() == {"words-1-0", "words-9-0"}
    for topology_id in registry.known_ids():
        registry.remove_all_of(topology_id)
    assert registry.known_ids() == set()
    assert registry.sealed_keys(paths.OPERATOR, "n1") == b"sealed"
    assert registry.assignments.get("words-1-0") is None
    registry.assignments.write(PLACED)
    assert registry.assignments.get("words-1-0") == PLACED


def test_the_places_of_a_topologys_workers_are_removed_last(store: InMemoryStore, registry: Registry) -> None:
    """A process that dies in the middle leaves slots taken rather than two workers in one."""
    registry.assignments.write(PLACED)
    registry.leaving.write(PLACED)
    registry.save_report("words-1-0", REPORT)
    registry.save_sealed_keys("words-1-0", "s1", b"sealed")
    store.put(paths.description("words-1-0"), b"{}")
    removed: list[str] = []
    store.watch("/", removed.append)
    registry.remove_all_of("words-1-0")
    assert set(removed[-2:]) == {paths.assignment("words-1-0"), paths.leaving("words-1-0")}
    assert len(removed) == 5


def test_a_name_may_contain_all_permitted_characters() -> None:
    assert (name_of("a-b-12-5"), number_of("a-b-12-5")) == ("a-b", 12)
    assert (name_of("x"), number_of("x")) == ("x", 0)
