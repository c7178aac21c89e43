"""A new leader cannot read the records of some supervisors: their tasks stay, until silence decides."""

from __future__ import annotations

import pytest

from nimbus.counters.counting import Counters
from nimbus.http.views import Views
from squall.cluster import paths
from squall.cluster.records import SupervisorRecord
from tests.nimbus.transcripts import Scenario

NONSENSE = b"\x00\xff nonsense"


@pytest.fixture
def one(scenario: Scenario) -> Scenario:
    """A topology in two of four slots; the record of one of its supervisors is damaged, and a new Nimbus leads."""
    for line in ("supervisor s1 slots=2 beats", "supervisor s2 slots=2", "submit one tasks=2 workers=2"):
        scenario.say(f"@ 0 {line}")
    scenario.store.put(paths.supervisor("s1"), NONSENSE)
    scenario.say("@ 1 another nimbus")
    return scenario


RUNS = ["one ACTIVE", "  w1 s1/0 (1,0): 1", "  w2 s2/0 (1,0): 2"]


def test_tasks_on_an_unreadable_supervisor_stay(one: Scenario) -> None:
    one.say("@ 20 ticks")
    assert one.show() == RUNS
    assert one.store.get(paths.supervisor("s1")) == (NONSENSE, 1)


def test_an_unreadable_supervisor_gets_no_new_tasks(one: Scenario) -> None:
    one.say("@ 2 submit two tasks=4 workers=4")
    assert one.show() == [*RUNS, "two ACTIVE", "  w1 s2/1 (2,0): 1 2 3 4"]


def test_a_task_that_has_to_move_moves_and_the_others_stay(one: Scenario) -> None:
    one.say("@ 2 supervisor s3 slots=1")
    one.say("@ 3 lose s2")
    assert one.show() == ["one ACTIVE", "  w1 s1/0 (1,0): 1", "  w3 s3/0 (2,0): 2"]


def test_a_silent_unreadable_supervisor_is_given_up(one: Scenario) -> None:
    one.say("@ 200 ticks")
    assert one.show() == ["one ACTIVE", "  w2 s2/0 (1,0): 2", "  w3 s2/1 (2,0): 1"]
    assert one.store.get(paths.supervisor("s1")) is None
    one.say("@ 201 heard s1")
    assert one.store.get(paths.supervisor("s1")) is None, "its heartbeat identifies it"


def test_an_unreadable_supervisor_that_is_heard_keeps_its_workers(one: Scenario) -> None:
    for moment in range(10, 300, 10):
        one.say(f"@ {moment} heard s1")
    assert one.show() == RUNS


def test_a_supervisor_whose_record_is_repaired_is_as_before(one: Scenario) -> None:
    one.registry.supervisors.put(SupervisorRecord("s1", "s1", 2, beats=True))
    one.say("@ 2 submit two tasks=2 workers=2")
    assert one.show() == [*RUNS, "two ACTIVE", "  w1 s1/1 (2,0): 1", "  w2 s2/1 (2,0): 2"]


def test_a_supervisor_that_leaves_while_it_is_read_is_gone(scenario: Scenario) -> None:
    scenario.store.put(paths.supervisor("s1"), NONSENSE)
    scenario.registry.all_supervisors()
    assert scenario.registry.unread_supervisors == {"s1"}
    scenario.store.delete(paths.supervisor("s1"))
    children = scenario.store.children
    scenario.store.children = lambda path: ["s1"] if path == paths.SUPERVISORS else children(path)  # type: ignore[method-assign]
    assert scenario.registry.all_supervisors() == []
    assert scenario.registry.unread_supervisors == set()


def test_its_workers_are_shown_unchanged_and_it_may_be_drained(one: Scenario) -> None:
    one.say("@ 2 report one w1 opened")
    one.say("@ 2 report one w2 opened")
    views = Views(one.store, Counters(), one.clock.now)
    assert [worker.state for worker in views.workers(views.record("one"))] == ["RUNNING", "RUNNING"]
    assert views.statuses.status("one").workers == 2
    one.say("@ 3 drain s1")
    assert one.registry.drained_supervisors() == {"s1"}
