"""What is kept of versions that have ended: which, how many, how much."""

from __future__ import annotations

import pytest

from nimbus.counters.counting import Counters
from nimbus.counters.ended import (
    DAY,
    MOST_BYTES,
    OF_A_NAME,
    OF_ALL,
    EndedVersions,
    bounded,
    kept_versions,
    previous_version,
    too_many,
)
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import EndedVersion
from squall.cluster.registry import Registry
from squall.reports.error_reports import ErrorReport
from squall.values import Incarnation
from tests.nimbus.test_trials import ON_TRIAL
from tests.nimbus.transcripts import Scenario
from tests.squall.cluster.small_records import WORDS

FAILS = """
    @ 5 report words w1 opened
    = nothing changes
    @ 6 count words w1 emitted=9 acked=1 attempts_failed=9
    = nothing changes
    @ 15 ticks
    = nothing changes
    @ 16 tick
    words FAILED (its tuples fail: of 10 settled attempts 9 failed)
      leaving w1 s1/0 (2,0): 1 2 3 4
    @ 17 report words w1 stopped
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: {why}
""".replace("{why}", "its tuples fail: of 10 settled attempts 9 failed")


def ended(name: str, number: int, at: float) -> EndedVersion:
    return EndedVersion(f"{name}-{number}-0", name, "killed", None, 0.0, at, (), "")


def report(number: int, text: str) -> ErrorReport:
    return ErrorReport("words", "count", 2, "execute", text, "words.py:7", (), None, float(number))


class World:
    """A leader's part with a clock that the test sets."""

    def __init__(self, keep_days: float = 7.0) -> None:
        self.registry, self.counters, self.now = Registry(InMemoryStore()), Counters(keep_days), 1000.0
        self.ended = EndedVersions(self.registry, self.counters, lambda: self.now)


def test_the_errors_and_sums_of_a_version_are_kept_where_another_leader_finds_them() -> None:
    world = World()
    counted = WorkerCounters({"count": ComponentCounters(executed=5, errors=1)}, (report(1, "boom"),))
    world.counters.count(WORDS.id, "w1", Incarnation(1, 0), counted)
    world.ended.keep(WORDS, "killed")
    found = previous_version(Registry(world.registry.store), WORDS.name)
    assert found is not None and (found.id, found.how, found.ended) == (WORDS.id, "killed", 1000.0)
    kept = WorkerCounters.from_bytes(found.counters.encode())
    assert kept.components["count"].executed == 5 and kept.reports == (report(1, "boom"),)


def test_a_version_that_has_its_name_again_is_not_the_previous_one() -> None:
    world = World()
    world.ended.keep(WORDS, "replaced")
    world.registry.topologies.put(WORDS)
    assert previous_version(world.registry, WORDS.name) is None


def test_old_versions_are_removed_when_the_next_one_ends() -> None:
    world = World()
    world.registry.ended.put(ended("other", 1, 1000.0))
    world.now += 7 * DAY
    world.ended.keep(WORDS, "killed")
    assert len(kept_versions(world.registry)) == 2
    world.now += 1
    world.ended.keep(WORDS, "killed")
    assert [each.id for each in kept_versions(world.registry)] == [WORDS.id]


def test_with_no_days_nothing_is_kept() -> None:
    world = World(keep_days=0)
    world.ended.keep(WORDS, "killed")
    assert kept_versions(world.registry) == []


def test_a_name_and_the_cluster_keep_a_bounded_number_of_versions() -> None:
    of_one = [ended("words", number, -number) for number in range(OF_A_NAME + 2)]
    assert too_many(of_one, -100.0) == [each.id for each in of_one[OF_A_NAME:]]
    of_all = [ended(f"t{number}", 1, -number) for number in range(OF_ALL + 1)]
    assert too_many(of_all, -1000.0) == [of_all[-1].id]


@pytest.mark.parametrize("size", [100, 5_000, 200_000])
def test_what_is_kept_of_a_version_is_bounded_and_the_newest_errors_stay(size: int) -> None:
    reports = tuple(report(number, f"{number} {'x' * size}") for number in range(40))
    text = bounded(WorkerCounters({"count": ComponentCounters(executed=5)}, reports))
    kept = WorkerCounters.from_bytes(text.encode())
    assert len(text) <= MOST_BYTES and kept.components["count"].executed == 5
    assert kept.reports == reports[len(reports) - len(kept.reports) :]
    assert (size > 100_000) == (not kept.reports)


def test_of_two_versions_the_replaced_one_is_the_previous_one_and_after_a_rollback_the_new_one(
    scenario: Scenario,
) -> None:
    scenario.play(ON_TRIAL)
    first = previous_version(scenario.registry, "words")
    assert first is not None and (first.id, first.how) == ("words-1-0", "replaced")
    assert [place.worker for place in first.placements] == ["w1"]
    scenario.play(FAILS)
    second = previous_version(scenario.registry, "words")
    assert second is not None and (second.id, second.how) == ("words-2-2", "rolled back")
    assert second.error is not None and second.error.startswith("its tuples fail")
    counters = WorkerCounters.from_bytes(second.counters.encode())
    assert counters.components["lines"].acked == 1
