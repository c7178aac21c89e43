"""A topology that never emitted anything is not drained: its environment cannot be built, or its `open` hangs.

Workers that are up or may have been are waited for, and so are workers of which nothing is known.
"""

from __future__ import annotations

import pytest

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.values import Incarnation
from tests.nimbus.transcripts import Play, Scenario


def count(scenario: Scenario, worker: str, emitted: int, incarnation: tuple[int, int] = (1, 0)) -> None:
    """The supervisor reports the counters of a worker of "words"."""
    (record,) = scenario.registry.all_topologies()
    counters = WorkerCounters({"lines": ComponentCounters(emitted=emitted)}, number=1)
    scenario.nimbus.count(record.id, worker, Incarnation(*incarnation), counters.to_bytes())


def has_workers(scenario: Scenario) -> bool:
    """Whether the workers of "words" have not been asked to leave."""
    (record,) = scenario.registry.all_topologies()
    return bool(scenario.workers(record.id))


def test_a_kill_does_not_wait_for_a_worker_that_never_opened_its_tasks(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 report words w1 waits; report words w2
        = nothing changes
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 6.9 tick
        = nothing changes
        @ 7 tick
        words KILLED until 35
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        @ 8 report words w1 stopped; report words w2 stopped
        no topology
    """)


def test_a_rebalance_and_a_replacement_do_not_wait_for_one_either(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2; report words w1
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 5 rebalance words workers=2
        words REBALANCING until 35
          w1 s1/0 (1,0): 1 2
        @ 7 tick
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s1/1 (2,0): 2
          leaving w1 s1/0 (1,0): 1 2
        @ 8 report words w2; report words w3; report words w1 stopped
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s1/1 (2,0): 2
        @ 9 submit words tasks=1 replace
        words REPLACING until 39
          w2 s1/0 (2,0): 1
          w3 s1/1 (2,0): 2
        @ 11 tick
        words REPLACING until 39
          leaving w2 s1/0 (2,0): 1
          leaving w3 s1/1 (2,0): 2
    """)


def test_the_next_tick_is_due_when_workers_could_have_answered_and_then_at_the_deadline(
    scenario: Scenario,
) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; submit words tasks=1; report words w1 opened; kill words")
    assert scenario.nimbus.due == 2
    scenario.say("@ 2 tick")
    assert scenario.nimbus.due == 30
    scenario.say("@ 3 kill words wait=1")
    assert scenario.nimbus.due == 4


def test_a_worker_of_which_nothing_is_known_is_waited_for_until_it_is(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=2; report words w1
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 20 tick
        = nothing changes
        @ 21 report words w2
        words KILLED until 35
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
    """)


def test_a_worker_that_proves_to_be_up_is_waited_for(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1; report words w1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1
        @ 6 report words w1 opened
        = nothing changes
        @ 34 tick
        = nothing changes
        @ 34 report words w1 opened drained
        words KILLED until 35
          leaving w1 s1/0 (1,0): 1
    """)


@pytest.mark.parametrize("emitted", [None, 1, 0], ids=["unknown", "something", "nothing"])
def test_a_worker_whose_earlier_process_was_up_is_waited_for_unless_it_emitted_nothing(
    scenario: Scenario, emitted: int | None
) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; submit words tasks=1; report words w1 opened")
    if emitted is not None:
        count(scenario, "w1", emitted)
    scenario.say("@ 1 report words w1 incarnation=1,1")
    scenario.say("@ 5 kill words")
    scenario.say("@ 34 ticks")
    assert has_workers(scenario) == (emitted != 0)
    scenario.say("@ 35 tick")
    assert not has_workers(scenario)


@pytest.mark.parametrize("emitted", [None, 1, 0], ids=["unknown", "something", "nothing"])
def test_tuples_from_a_worker_that_is_up_to_one_that_is_not_are_waited_for(
    scenario: Scenario, emitted: int | None
) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2")
    scenario.say("@ 1 report words w1 opened; report words w2")
    if emitted is not None:
        count(scenario, "w1", emitted)
    scenario.say("@ 5 kill words")
    scenario.say("@ 8 ticks")
    assert has_workers(scenario), "w1 is up, and has not drained"
    scenario.say("@ 9 report words w1 opened drained")
    assert has_workers(scenario) == (emitted != 0)
    scenario.say("@ 35 tick")
    assert not has_workers(scenario)


def test_a_new_leader_waits_until_it_could_have_learned_who_is_up(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1; report words w1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1
        @ 6 another nimbus
        words KILLED until 36
          w1 s1/0 (1,0): 1
        @ 7.9 tick
        = nothing changes
        @ 8 tick
        words KILLED until 36
          leaving w1 s1/0 (1,0): 1
    """)


def test_a_new_leader_does_not_take_missing_reports_for_idle_workers(
    scenario: Scenario,
) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2")
    scenario.say("@ 1 report words w1 opened; report words w2 incarnation=1,1")
    count(scenario, "w1", 0)
    count(scenario, "w2", 0)
    scenario.say("@ 5 kill words; another nimbus; report words w1 opened drained")
    scenario.say("@ 10 ticks")
    assert has_workers(scenario)
    count(scenario, "w1", 0)
    count(scenario, "w2", 0)
    scenario.say("@ 11 report words w2 incarnation=1,2")
    assert not has_workers(scenario)
