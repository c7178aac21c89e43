"""Whichever write Nimbus dies at, or gets a timeout for, the cluster reaches the state that it would have reached anyway."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from squall.cluster import paths
from tests.nimbus.lives import LIVES, WAYS, Life
from tests.nimbus.transcripts import Scenario


@pytest.mark.parametrize("name", LIVES)
def test_a_life_without_faults_is_as_written(name: str) -> None:
    life = Life()
    LIVES[name](life)
    assert life.store.failed == []
    assert life.store.writes > 20


#: The usual run takes the ways in turn, one for each write, and begins at another one for each life.
IN_TURN = "in turn"


@pytest.mark.slow
@pytest.mark.parametrize("way", [IN_TURN, *(pytest.param(way, marks=pytest.mark.soak) for way in WAYS)])
@pytest.mark.parametrize("name", LIVES)
def test_whichever_write_fails_every_topology_reaches_its_end_with_nothing_left(name: str, way: str) -> None:
    whole = Life()
    LIVES[name](whole)
    ways = [*WAYS] if way == IN_TURN else [way]
    for write in range(1, whole.store.writes + 1):
        fails = ways[(write + [*LIVES].index(name)) % len(ways)]
        life = Life(write, fails)
        try:
            LIVES[name](life)
        except AssertionError as error:
            raise AssertionError(f"write {write}, {life.store.failed}: {fails}") from error
        assert len(life.store.failed) == 1


def test_a_change_of_workers_that_was_begun_and_is_no_longer_wanted_is_undone(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2; report words w1 opened")
    (record,), before = scenario.registry.all_topologies(), scenario.show()
    assignment = scenario.registry.assignments.get(record.id)
    assert assignment is not None
    # Nimbus was about to move its workers, and died after the first write.
    scenario.registry.leaving.write(assignment)
    scenario.say("@ 3 another nimbus")
    assert scenario.show() == before
    assert scenario.registry.report(record.id, "w1") is not None


def test_a_record_that_is_ahead_of_its_assignment_gets_one_though_no_task_moves(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2")
    (record,), before = scenario.registry.all_topologies(), scenario.show()
    # Nimbus was about to move its workers, and died after the second write.
    ahead = scenario.registry.next_number("assignments")
    scenario.registry.topologies.update(record, replace(record, version=ahead))
    scenario.say("@ 3 another nimbus")
    (after,), assignment = scenario.registry.all_topologies(), scenario.registry.assignments.get(record.id)
    assert assignment is not None and assignment.version == after.version > ahead
    assert scenario.show() == before, "the same workers, incarnations and tasks"


def test_remains_of_a_topology_that_was_unreadable_for_a_while_are_removed_afterwards(
    scenario: Scenario,
) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2")
    path, orphan = paths.topology("words"), paths.description("words-7-0")
    found = scenario.store.get(path)
    assert found is not None
    scenario.store.put(orphan, b"of a submission that was never finished")
    scenario.store.put(path, b"garbage")
    scenario.say("@ 3 another nimbus")
    assert scenario.store.get(orphan) is not None, "it may belong to that topology"
    scenario.store.put(path, found[0])
    scenario.say("@ 100 ticks")
    assert scenario.store.get(orphan) is None
    assert scenario.store.children(paths.bundle(scenario.registry.all_topologies()[0].id)) != []


def test_a_new_nimbus_moves_no_task_of_an_uneven_topology_until_it_is_rebalanced(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; supervisor s2 slots=2; submit words tasks=6 workers=3")
    (record,) = scenario.registry.all_topologies()
    assignment = scenario.registry.assignments.get(record.id)
    assert assignment is not None
    # An earlier release gave a worker that is alone on its host twice what it gave to workers that share one.
    alone, *others = assignment.placements
    uneven = [(1, 3, 5), (2, 6), (4,)]
    placements = (replace(each, tasks=tasks) for each, tasks in zip((alone, *others), uneven, strict=True))
    scenario.registry.assignments.update(assignment, replace(assignment, placements=tuple(placements)))
    scenario.play("""
        @ 1 another nimbus
        words ACTIVE
          w1 s1/0 (1,0): 1 3 5
          w2 s2/0 (1,0): 2 6
          w3 s2/1 (1,0): 4
        @ 2 supervisor s3 slots=4
        = nothing changes
        @ 3 another nimbus
        = nothing changes
        @ 4 lose s1
        words ACTIVE
          w2 s2/0 (1,0): 2 6
          w3 s2/1 (1,0): 4 5
          w4 s3/0 (2,0): 1 3
        @ 5 rebalance words wait=0
        words ACTIVE
          w1 s2/0 (3,0): 1 4
          w5 s3/0 (3,0): 2 5
          w6 s3/1 (3,0): 3 6
          leaving w2 s2/0 (1,0): 2 6
          leaving w3 s2/1 (1,0): 4 5
          leaving w4 s3/0 (2,0): 1 3
    """)
