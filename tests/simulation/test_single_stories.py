"""Single stories of a cluster in simulated time, each written on purpose: random ones find them rarely, or have found them.

Must not know: how time is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.cluster import paths
from tests.simulation.checks import Watcher, problems_at_rest
from tests.simulation.process_table import in_place_of_real_ones
from tests.simulation.run import quiet
from tests.simulation.world import Settings, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two Nimbuses and two machines, not started yet."""
    made = World("told", tmp_path, Settings(candidates=2, machines=2, slots=2))
    watcher = Watcher(made)
    made.server.observer = watcher
    made.processes.on_start = watcher.started
    made.line.after_event = watcher.step
    with quiet(), in_place_of_real_ones(made.processes):
        yield made


def pids(world: World) -> set[int]:
    """The running workers."""
    return {process.pid for process in world.processes.all()}


def test_a_store_that_comes_back_empty_ends_no_worker_and_makes_no_leader(world: World) -> None:
    world.begin()
    world.line.run(5)
    world.submit("alpha", 2, 2, 3)
    world.line.run(20)
    there = pids(world)
    assert len(there) == 3
    world.server.lose_everything()
    world.line.run(100)
    assert pids(world) == there
    assert world.server.store.get(paths.LEADER) is None and world.registry.all_topologies() == []
    world.server.find_everything()
    world.line.run(130)
    assert pids(world) == there
    assert problems_at_rest(world) == []


def test_daemons_that_are_killed_over_an_empty_store_still_end_no_worker(world: World) -> None:
    world.begin()
    world.line.run(5)
    world.submit("alpha", 2, 2, 3)
    world.line.run(20)
    there = pids(world)
    world.server.lose_everything()
    world.line.run(25)
    for name in ("h1", "h2"):
        world.agents[name].die()
        world.start_agent(name)
    for name in ("n1", "n2"):
        world.candidates[name].die()
        world.start_candidate(name)
    world.line.run(60)
    assert pids(world) == there
    world.server.find_everything()
    world.line.run(100)
    assert pids(world) == there
    assert problems_at_rest(world) == []


def test_a_leader_without_keys_yields_to_a_nimbus_that_comes_back_with_them(world: World) -> None:
    world.start_candidate("n1")
    world.start_agent("h1")
    world.line.run(5)
    world.submit("alpha", 1, 1, 1)
    world.line.run(10)
    world.candidates["n1"].die()
    world.start_candidate("n2")
    world.start_agent("h2")
    world.line.run(40)
    assert world.leader is world.candidates["n2"]
    world.start_candidate("n1")
    world.line.run(50)
    world.machines["h1"].lose_power()
    world.agents["h1"].die()
    world.line.run(100)
    assert [process.machine.name for process in world.processes.all()] == ["h2"]


def test_twenty_deaths_of_a_supervisor_cost_no_worker(world: World) -> None:
    world.begin()
    world.line.run(5)
    world.submit("alpha", 2, 2, 4)
    world.line.run(15)
    there = pids(world)
    assert len(there) == 4
    for turn in range(20):
        world.agents["h1"].die()
        world.line.run(world.line.now + 0.1 * turn)
        world.start_agent("h1")
        world.line.run(world.line.now + 0.3)
    world.line.run(world.line.now + 10)
    assert pids(world) == there
    assert problems_at_rest(world) == []


def test_the_slots_of_a_temporarily_damaged_assignment_are_not_given_away(world: World) -> None:
    world.begin()
    world.line.run(5)
    alpha = world.submit("alpha", 2, 2, 3)
    world.line.run(20)
    there = pids(world)
    repair = world.server.damage(paths.assignment(alpha.answer.id))
    world.submit("beta", 2, 2, 3)
    world.line.run(40)
    assert len(pids(world)) == 4 and pids(world) > there
    repair()
    world.line.run(60)
    assert len(pids(world)) == 4 and pids(world) > there
    assert problems_at_rest(world) == []


@pytest.mark.parametrize("what", [paths.assignment, paths.leaving])
def test_a_slot_that_a_new_leader_gives_away_unknowingly_ends_with_one_topology(
    world: World, what: Callable[[str], str]
) -> None:
    world.begin()
    world.line.run(5)
    alpha = world.submit("alpha", 2, 2, 3)
    world.line.run(20)
    there = pids(world)
    if what is paths.leaving:
        next(world.processes.all()).freeze(30)
        world.ask("rebalance", "alpha", lambda nimbus: nimbus.rebalance("alpha", 2, wait_secs=0))
        while world.server.store.get(what(alpha.answer.id)) is None:
            world.line.run(world.line.now + 0.02)
    repair = world.server.damage(what(alpha.answer.id))
    for name in ("n1", "n2"):
        world.candidates[name].die()
        world.start_candidate(name)
    world.line.run(40)
    beta = world.submit("beta", 2, 2, 4)
    world.line.run(60)
    assert world.registry.assignments.get(beta.answer.id) is not None
    repair()
    world.line.run(120)
    assert problems_at_rest(world) == []
    if what is paths.assignment:
        assert pids(world) > there  # the older one's workers go on


def test_a_supervisors_record_damaged_while_it_is_down_moves_none_of_its_workers(
    world: World,
) -> None:
    world.begin()
    world.line.run(5)
    world.submit("alpha", 2, 2, 2)
    world.line.run(20)
    there = pids(world)
    world.agents["h1"].die()
    world.server.damage(paths.supervisor("h1"))
    world.line.run(24)
    assert pids(world) == there
    world.start_agent("h1")
    world.line.run(50)
    assert pids(world) == there
    assert problems_at_rest(world) == []


def test_a_machine_that_cannot_start_workers_gives_their_tasks_up_until_it_can(world: World) -> None:
    world.begin()
    world.line.run(5)
    world.submit("alpha", 2, 2, 2)
    world.line.run(20)
    assert {process.machine.name for process in world.processes.all()} == {"h1", "h2"}
    lives = next(process for process in world.processes.all() if process.machine.name == "h2")
    world.machines["h1"].full = True
    world.machines["h1"].lose_power()
    world.line.run(40)
    assert {process.machine.name for process in world.processes.all()} == {"h2"}
    assert lives.alive, "its neighbour is not disturbed"
    (record,) = [each for each in world.registry.all_supervisors() if each.cannot_start]
    assert record.id == "h1" and "No space left" in record.cannot_start
    world.submit("beta", 1, 1, 1)
    world.line.run(60)
    assert {process.machine.name for process in world.processes.all()} == {"h2"}
    world.machines["h1"].full = False
    world.line.run(160)
    assert not any(each.cannot_start for each in world.registry.all_supervisors())
    assert {process.machine.name for process in world.processes.all()} == {"h1", "h2"}, "beta runs there"
    assert problems_at_rest(world) == []
