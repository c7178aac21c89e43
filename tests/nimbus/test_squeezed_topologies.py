"""A topology with too few slots is squeezed into them, and spread again, once, when there are more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.cluster.records import SupervisorRecord
from tests.nimbus.transcripts import Play, Scenario


def test_a_squeezed_topology_is_drained_and_spread_when_slots_come(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 supervisor s2 slots=4
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2
        @ 2 report words w1 drained
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s2/0 (2,0): 2
          leaving w1 s1/0 (1,0): 1 2
        @ 3 supervisor s3 slots=4
        = nothing changes
    """)


def test_a_topology_whose_supervisor_comes_back_has_its_former_number_of_workers(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=2 workers=2 inactive
        words INACTIVE
          w1 s1/0 (1,0): 1
          w2 s2/0 (1,0): 2
        @ 1 lose s2
        words INACTIVE
          w1 s1/0 (1,0): 1 2
        @ 9 supervisor s2 slots=1
        words REBALANCING until 39
          w1 s1/0 (1,0): 1 2
        @ 10 report words w1 drained
        words INACTIVE
          w2 s1/0 (3,0): 1
          w3 s2/0 (3,0): 2
          leaving w1 s1/0 (1,0): 1 2
    """)


def test_slots_that_disappear_before_the_drain_is_over_leave_everything_unchanged(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 supervisor s2 slots=1
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2
        @ 2 lose s2
        = nothing changes
        @ 3 report words w1 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 4 tick
        = nothing changes
    """)


def test_squeezed_topologies_are_spread_one_after_another_and_none_in_vain(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=2 workers=1
        one ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 submit two tasks=3 workers=2
        one ACTIVE
          w1 s1/0 (1,0): 1 2
        two ACTIVE
          w1 s1/1 (2,0): 1 2 3
        @ 2 rebalance one workers=2
        one REBALANCING until 32
          w1 s1/0 (1,0): 1 2
        two ACTIVE
          w1 s1/1 (2,0): 1 2 3
        @ 3 supervisor s2 slots=1
        = nothing changes
        @ 4 report one w1 drained
        one ACTIVE
          w2 s1/0 (3,0): 1
          w3 s2/0 (3,0): 2
          leaving w1 s1/0 (1,0): 1 2
        two ACTIVE
          w1 s1/1 (2,0): 1 2 3
        @ 5 report one w1 stopped
        one ACTIVE
          w2 s1/0 (3,0): 1
          w3 s2/0 (3,0): 2
        two ACTIVE
          w1 s1/1 (2,0): 1 2 3
        @ 6 tick
        = nothing changes
    """)


def test_a_topology_on_hosts_of_unequal_size_has_its_wanted_workers_at_once(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=3; submit words tasks=4 workers=4
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s2/0 (1,0): 2
          w3 s2/1 (1,0): 3
          w4 s2/2 (1,0): 4
        @ 1 supervisor s2 slots=4
        = nothing changes
    """)


def test_a_host_that_comes_back_with_fewer_slots_leaves_a_topology_one_worker_per_slot(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=2; supervisor s2 slots=2; submit words tasks=1 count=2 workers=3
        words ACTIVE
          w1 s1/0 (1,0): 2
          w2 s1/1 (1,0): 3
          w3 s2/0 (1,0): 1
        @ 1 lose s1
        words ACTIVE
          w3 s2/0 (1,0): 1 3
          w4 s2/1 (2,0): 2
        @ 2 supervisor s1 slots=1
        words REBALANCING until 32
          w3 s2/0 (1,0): 1 3
          w4 s2/1 (2,0): 2
        @ 3 report words w3 opened drained; report words w4 opened drained
        words ACTIVE
          w1 s1/0 (3,0): 1
          w2 s2/0 (3,0): 2
          w5 s2/1 (3,0): 3
          leaving w3 s2/0 (1,0): 1 3
          leaving w4 s2/1 (2,0): 2
    """)


def test_a_host_that_loses_slots_between_two_checks_costs_no_worker(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; supervisor s2 slots=2; submit words tasks=1 count=2 workers=3
        words ACTIVE
          w1 s1/0 (1,0): 2
          w2 s1/1 (1,0): 3
          w3 s2/0 (1,0): 1
        @ 1 supervisor s1 slots=1
        words ACTIVE
          w1 s1/0 (1,0): 2
          w3 s2/0 (1,0): 1
          w4 s2/1 (2,0): 3
          leaving w2 s1/1 (1,0): 3
    """)


SLOTS = st.integers(0, 4)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5), st.integers(1, 8)), min_size=1, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), SLOTS, min_size=1), min_size=1, max_size=6),
)
def test_spreading_ends_with_as_many_workers_as_a_new_topology_would_have(
    topologies: list[tuple[int, int, int]], changes: list[dict[str, int]]
) -> None:
    scenario = Scenario()
    for number, (tasks, count, workers) in enumerate(topologies):
        scenario.say(f"@ 0 submit t{number} tasks={tasks} count={count} workers={workers}")
    registry = scenario.registry
    for slots in changes:
        for supervisor, number in slots.items():
            registry.supervisors.put(SupervisorRecord(supervisor, supervisor, number))
        scenario.say("@ 0 tick")
        versions = [record.version for record in registry.all_topologies()]
        rounds = 0
        while _drain(scenario):
            rounds += 1
            assert rounds <= len(topologies), "a topology was rebalanced twice after one change"
        after = [record.version for record in registry.all_topologies()]
        assert sum(now != was for now, was in zip(after, versions, strict=True)) <= rounds
        _check_nothing_is_squeezed_without_need(scenario)


def _drain(scenario: Scenario) -> bool:
    """Let every worker of the rebalanced topologies drain, and let the leaving ones be gone."""
    found = False
    for record in scenario.registry.all_topologies():
        if record.state == "REBALANCING":
            found = True
            scenario.workers_drain(record)
        scenario.workers_go(record)
    return found


def _check_nothing_is_squeezed_without_need(scenario: Scenario) -> None:
    """Check that a rebalance by hand would give no topology more workers than it has."""
    registry = scenario.registry
    slots = {(record.id, slot) for record in registry.all_supervisors() for slot in range(record.slots)}
    used = []
    for record in registry.all_topologies():
        used += [(placed.supervisor, placed.slot) for placed in scenario.workers(record.id)]
        assert record.state == "ACTIVE"
    assert len(used) == len(set(used))
    assert set(used) <= slots
    for record in registry.all_topologies():
        before = scenario.workers(record.id)
        if not before:
            continue
        scenario.nimbus.rebalance(record.name)
        _drain(scenario)
        assert 0 < len(scenario.workers(record.id)) <= len(before)
        while _drain(scenario):
            pass
