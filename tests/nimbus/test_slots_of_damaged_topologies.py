"""Workers that the store cannot show at the moment keep their slots, and of two owners of a slot one remains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nimbus.leader.master import Nimbus
from nimbus.placement.placing import disputed
from nimbus.placement.scheduler import Slot
from squall.cluster import paths
from squall.cluster.records import Placement
from squall.values import Incarnation
from tests.nimbus.transcripts import Scenario

NONSENSE = b"\x00\xff nonsense"


def damage(scenario: Scenario, path: str) -> Callable[[], None]:
    """Replace the value at a path; return a function that restores it."""
    found = scenario.store.get(path)
    assert found is not None
    scenario.store.put(path, NONSENSE)

    def repair() -> None:
        scenario.store.put(path, found[0])
        scenario.nimbus.tick()

    return repair


def slots_of(scenario: Scenario, topology_id: str) -> dict[str, tuple[str, int]]:
    """Worker -> its slot."""
    return {placed.worker: (placed.supervisor, placed.slot) for placed in scenario.workers(topology_id)}


def a_nimbus_that_never_read_it(scenario: Scenario) -> None:
    scenario.nimbus.close()
    scenario.nimbus = Nimbus(scenario.store, scenario.clock)
    scenario.nimbus.tick()


@pytest.fixture
def one(scenario: Scenario) -> Scenario:
    """A topology in two of four slots."""
    scenario.say("@ 0 supervisor s1 slots=2; supervisor s2 slots=2; submit one tasks=2 workers=2")
    assert slots_of(scenario, "one-1-0") == {"w1": ("s1", 0), "w2": ("s2", 0)}
    return scenario


def test_the_slots_of_an_unreadable_assignment_stay_taken(one: Scenario) -> None:
    repair = damage(one, paths.assignment("one-1-0"))
    one.say("@ 1 submit two tasks=4 workers=4")
    assert slots_of(one, "two-2-1") == {"w1": ("s1", 1), "w2": ("s2", 1)}
    repair()
    one.say("@ 2 tick")
    assert slots_of(one, "one-1-0") == {"w1": ("s1", 0), "w2": ("s2", 0)}
    assert slots_of(one, "two-2-1") == {"w1": ("s1", 1), "w2": ("s2", 1)}


def test_the_slots_of_leaving_workers_stay_taken_while_their_record_is_unreadable(one: Scenario) -> None:
    one.say("@ 1 kill one wait=0")
    damage(one, paths.leaving("one-1-0"))
    one.say("@ 2 submit two tasks=4 workers=4")
    assert slots_of(one, "two-2-2") == {"w1": ("s1", 1), "w2": ("s2", 1)}


def test_of_two_topologies_with_one_slot_the_older_keeps_it(one: Scenario) -> None:
    repair = damage(one, paths.assignment("one-1-0"))
    a_nimbus_that_never_read_it(one)
    one.say("@ 1 submit two tasks=3 workers=3")
    assert slots_of(one, "two-2-1") == {"w1": ("s1", 0), "w2": ("s1", 1), "w3": ("s2", 0)}
    repair()
    assert slots_of(one, "one-1-0") == {"w1": ("s1", 0), "w2": ("s2", 0)}
    assert one.show() == [
        "one ACTIVE",
        "  w1 s1/0 (1,0): 1",
        "  w2 s2/0 (1,0): 2",
        "two ACTIVE",
        "  w2 s1/1 (2,0): 2 3",  # stays
        "  w4 s2/1 (3,0): 1",
        "  leaving w1 s1/0 (2,0): 2",
        "  leaving w3 s2/0 (2,0): 1",
    ]


def test_the_younger_topology_waits_where_there_is_no_other_slot(one: Scenario) -> None:
    one.say("@ 0 lose s2; lose s1; supervisor s1 slots=1")
    repair = damage(one, paths.assignment("one-1-0"))
    a_nimbus_that_never_read_it(one)
    one.say("@ 1 submit two tasks=1")
    assert slots_of(one, "two-2-1") == {"w1": ("s1", 0)}
    repair()
    assert list(slots_of(one, "one-1-0").values()) == [("s1", 0)]
    assert slots_of(one, "two-2-1") == {}
    one.say("@ 2 supervisor s3 slots=1")
    assert list(slots_of(one, "two-2-1").values()) == [("s3", 0)]


def test_the_older_topology_keeps_its_slot_also_when_others_of_its_tasks_have_to_move(one: Scenario) -> None:
    repair = damage(one, paths.assignment("one-1-0"))
    a_nimbus_that_never_read_it(one)
    one.say("@ 1 submit two tasks=1")
    assert slots_of(one, "two-2-1") == {"w1": ("s1", 0)}
    one.registry.supervisors.drop("s2")
    repair()
    assert slots_of(one, "one-1-0") == {"w1": ("s1", 0), "w3": ("s1", 1)}
    assert slots_of(one, "two-2-1") == {}


def test_all_but_the_first_owner_of_a_slot_have_to_leave() -> None:
    def at(*slots: int) -> list[Placement]:
        return [Placement(f"w{slot}", "s1", slot, Incarnation(1, 0), (slot,)) for slot in slots]

    assert disputed([("a", at(0, 1)), ("b", at(1, 2)), ("c", at(1, 2, 3))]) == {
        "b": {Slot("s1", 1)},
        "c": {Slot("s1", 1), Slot("s1", 2)},
    }
    assert disputed([("a", at(0)), ("b", at(1))]) == {}


# Supervisors


def test_a_damaged_record_of_a_supervisor_moves_no_worker(
    one: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    before = one.show()
    damage(one, paths.supervisor("s1"))
    one.say("@ 1 ticks")
    one.say("@ 5 ticks")
    assert one.show() == before
    one.say("@ 6 submit two tasks=4 workers=4")
    assert slots_of(one, "two-2-6") == {"w1": ("s1", 1), "w2": ("s2", 1)}
    told = [each.getMessage() for each in caplog.records if paths.supervisor("s1") in each.getMessage()]
    assert len(told) == 1 and told[0].startswith(
        "a value in the store cannot be read, so its last readable version is used"
    )


def test_a_supervisor_whose_damaged_record_is_removed_is_gone(one: Scenario) -> None:
    damage(one, paths.supervisor("s1"))
    one.say("@ 1 tick")
    one.say("@ 2 lose s1")
    assert slots_of(one, "one-1-0") == {"w2": ("s2", 0), "w3": ("s2", 1)}
    one.store.create(paths.supervisor("s1"), NONSENSE)  # its earlier record does not count any more
    one.say("@ 3 tick")
    assert [record.id for record in one.registry.all_supervisors()] == ["s2"]


def test_a_supervisor_with_a_damaged_record_is_given_up_when_it_is_silent(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1 beats; submit one tasks=1")
    damage(scenario, paths.supervisor("s1"))
    scenario.say("@ 10 ticks")
    assert slots_of(scenario, "one-1-0") == {"w1": ("s1", 0)}
    scenario.say("@ 100 ticks")
    assert slots_of(scenario, "one-1-0") == {}
    assert scenario.store.get(paths.supervisor("s1")) is None
    scenario.say("@ 101 heard s1")
    assert list(slots_of(scenario, "one-1-0").values()) == [("s1", 0)]
