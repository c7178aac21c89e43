"""What is kept of a version that lost its name to another one, and for how long."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from nimbus.files.housekeeping import kept_files, needed_files
from nimbus.lifecycle.versions import EarlierVersions, earlier_versions
from squall.cluster import paths
from squall.cluster.blobs import get_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import HowReplaced, TopologyRecord
from squall.cluster.registry import Registry
from tests.nimbus.transcripts import TWO_VERSIONS, Scenario
from tests.squall.cluster.small_records import WORDS


class World:
    """A leader's part with a clock that the test sets."""

    def __init__(self, most: int = 5) -> None:
        self.registry, self.now = Registry(InMemoryStore()), 1000.0
        self.versions = EarlierVersions(self.registry, most, lambda: self.now)

    def keeps(self, number: int, how: HowReplaced = "replaced", name: str = "words") -> None:
        """Keep a version that ends one second after the one before."""
        self.now += 1
        self.versions.keep(_version(number, name), how)

    def sweep(self, present: int, name: str = "words") -> set[str]:
        return self.versions.sweep({name: f"{name}-{present}-0"}, ())


def _version(number: int, name: str = "words") -> TopologyRecord:
    return replace(WORDS, id=f"{name}-{number}-0", name=name, files={"code": f"{number}"})


def test_a_version_that_was_replaced_keeps_its_bundle_and_its_files_and_nothing_else(
    scenario: Scenario,
) -> None:
    scenario.play(TWO_VERSIONS)
    scenario.say("@ 5 report words w1 opened")
    scenario.say("@ 64 ticks")
    (version,) = earlier_versions(scenario.registry, "words", "words-2-2")
    assert (version.id, version.how, version.error) == ("words-1-0", "replaced", None)
    assert scenario.registry.known_ids() == {"words-1-0", "words-2-2"}
    assert scenario.registry.known_ids(paths.OF_RUNNING) == {"words-2-2"}
    assert get_bundle(scenario.store, "words-1-0").name == "words"


def test_a_version_that_was_rolled_back_is_kept_with_the_reason(scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    scenario.say("@ 5 report words w1 crash=ValueError; report words w1 stopped crash=ValueError")
    (version,) = earlier_versions(scenario.registry, "words", scenario.nimbus.topology("words").id)
    assert (version.id, version.how, version.error) == ("words-2-2", "rolled back", "ValueError")
    assert scenario.registry.versions.names() == ["words-2-2"], (
        "the version that has the name is no earlier one"
    )


def test_a_kill_removes_them(scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    scenario.say("@ 5 report words w1 opened; kill words wait=0; report words w1 stopped")
    assert scenario.store.children("/") == ["cluster", "counters", "ended", "supervisors"]


def test_those_that_ended_last_are_kept() -> None:
    world = World(most=2)
    for number in (1, 3, 2):
        world.keeps(number)
    assert world.sweep(present=4) == {"words-2-0", "words-3-0"}
    assert [each.id for each in earlier_versions(world.registry, "words", None)] == ["words-2-0", "words-3-0"]


def test_a_version_that_has_its_name_again_takes_no_place() -> None:
    world = World(most=1)
    world.keeps(1)
    world.keeps(2, "rolled back")
    assert world.sweep(present=2) == {"words-1-0"}


def test_with_a_limit_of_none_nothing_is_kept() -> None:
    world = World(most=0)
    world.keeps(1)
    assert world.registry.versions.names() == []


def test_versions_of_names_that_no_topology_has_are_removed_unless_a_record_cannot_be_read() -> None:
    world = World()
    world.keeps(1)
    world.keeps(1, name="other")
    assert world.versions.sweep({}, {"other"}) == {"other-1-0"}
    assert world.registry.versions.names() == ["other-1-0"]


def test_a_version_that_cannot_be_read_counts_as_the_oldest_and_may_need_any_file() -> None:
    world = World(most=2)
    for number in (1, 2):
        world.keeps(number)
    world.registry.store.put(paths.below(paths.VERSIONS, "words-9-0"), b"garbage")
    assert world.versions.sweep({"words": "words-10-0"}, ()) == {"words-1-0", "words-2-0"}
    world.registry.store.put(paths.below(paths.VERSIONS, "words-9-0"), b"garbage")
    assert kept_files(world.registry) == ({"1": "words", "2": "words"}, {"words"})


def test_the_files_of_earlier_versions_are_kept_but_no_leader_waits_for_them() -> None:
    world = World()
    world.keeps(1)
    world.registry.topologies.put(_version(2))
    assert needed_files(world.registry) == ({"2": "words"}, set())
    assert kept_files(world.registry) == ({"1": "words", "2": "words"}, set())


@pytest.mark.parametrize("left", [paths.KEYS, paths.FORMER, paths.REPORTS])
def test_a_new_leader_removes_what_a_kept_version_left_behind(left: str, scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    scenario.say("@ 5 report words w1 opened")
    scenario.say("@ 64 ticks")
    scenario.store.put(f"{paths.below(left, 'words-1-0')}/n1", b"left")
    scenario.say("@ 65 another nimbus")
    assert scenario.registry.known_ids(paths.OF_RUNNING) == {"words-2-2"}
    assert get_bundle(scenario.store, "words-1-0").name == "words"


def test_a_version_without_the_options_that_daemons_calculate_with_is_unreadable() -> None:
    world = World()
    world.keeps(1)
    path = paths.below(paths.VERSIONS, "words-1-0")
    found = world.registry.store.get(path)
    assert found is not None
    body = json.loads(found[0])
    del body["conf"]["topology.workers"]
    world.registry.store.put(path, json.dumps(body).encode())
    assert earlier_versions(world.registry, "words", None) == []
