"""How work leaves a drained supervisor, as transcripts; `transcripts.py` says how to read them."""

from __future__ import annotations

import pytest

from nimbus.placement.supervisors import NoSuchSupervisor
from tests.nimbus.transcripts import Play, Scenario


def test_topologies_leave_a_drained_supervisor_after_their_drain_one_after_another(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=1; submit two tasks=1
        one ACTIVE
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
        @ 1 supervisor s2 slots=2
        = nothing changes
        @ 2 drain s1
        one REBALANCING until 32
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
        @ 3 report one w1 drained
        one ACTIVE
          w2 s2/0 (3,0): 1
          leaving w1 s1/0 (1,0): 1
        two REBALANCING until 33
          w1 s1/1 (2,0): 1
        @ 4 report two w1 drained
        one ACTIVE
          w2 s2/0 (3,0): 1
          leaving w1 s1/0 (1,0): 1
        two ACTIVE
          w2 s2/1 (4,0): 1
          leaving w1 s1/1 (2,0): 1
        @ 100 tick
        = nothing changes
    """)


def test_a_drained_supervisor_gets_no_new_tasks_until_it_is_undrained(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2
        = nothing changes
        @ 0 drain s1
        = nothing changes
        @ 0 drain s1
        = nothing changes
        @ 1 submit words tasks=1
        words ACTIVE
        @ 2 another nimbus
        = nothing changes
        @ 3 undrain s1
        words ACTIVE
          w1 s1/0 (1,0): 1
    """)


def test_tasks_without_another_place_stay_on_a_drained_supervisor_until_there_is_one(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 drain s1
        = nothing changes
        @ 2 rebalance words
        words REBALANCING until 32
          w1 s1/0 (1,0): 1 2
        @ 3 report words w1 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 4 supervisor s2 slots=1
        words REBALANCING until 34
          w1 s1/0 (1,0): 1 2
    """)


def test_workers_on_a_drained_supervisor_stay_until_their_turn_when_other_tasks_are_placed(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=1; supervisor s2 slots=1; submit two tasks=2 workers=2
        one ACTIVE
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
          w2 s2/0 (2,0): 2
        @ 0 supervisor s3 slots=1
        = nothing changes
        @ 1 drain s1
        one REBALANCING until 31
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
          w2 s2/0 (2,0): 2
        @ 2 lose s2
        one REBALANCING until 31
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
          w3 s3/0 (3,0): 2
    """)


def test_workers_that_wait_on_a_drained_supervisor_count_towards_the_wanted_number(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=1; supervisor s2 slots=1; submit two tasks=4 workers=2
        one ACTIVE
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1 3
          w2 s2/0 (2,0): 2 4
        @ 1 supervisor s3 slots=3; drain s1; lose s2
        one REBALANCING until 31
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1 3
          w3 s3/0 (3,0): 2 4
    """)


def test_a_worker_that_waits_on_a_drained_supervisor_takes_tasks_without_another_place(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=1; supervisor s2 slots=2; submit two tasks=2 workers=2
        one ACTIVE
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
          w2 s2/0 (2,0): 2
        @ 1 drain s1; lose s2
        one REBALANCING until 31
          w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1 2
    """)


def test_a_topology_whose_other_host_is_lost_keeps_its_workers_on_the_drained_one(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s2/0 (1,0): 2
        @ 1 lose s2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 2 drain s1
        = nothing changes
    """)


@pytest.mark.parametrize("on", [True, False])
def test_an_unknown_supervisor_is_refused(scenario: Scenario, on: bool) -> None:
    with pytest.raises(NoSuchSupervisor, match="there is no supervisor 's9': `squall supervisors` lists"):
        scenario.nimbus.drain("s9", on)
    assert scenario.nimbus.registry.drained_supervisors() == set()


def test_a_lost_drained_supervisor_can_be_undrained(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1")
    scenario.nimbus.drain("s1")
    scenario.say("@ 1 lose s1")
    assert scenario.nimbus.registry.drained_supervisors() == {"s1"}
    scenario.nimbus.drain("s1", on=False)
    assert scenario.nimbus.registry.drained_supervisors() == set()
