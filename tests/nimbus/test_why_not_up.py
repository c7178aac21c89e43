"""A list of topologies gives the reason why an ACTIVE one is not up, until its workers are up."""

from __future__ import annotations

import pytest

from nimbus.counters.counting import Counters
from nimbus.http.views import Views
from squall.api.answers import HeldUp
from squall.cluster.records import WorkerReport
from squall.values import Incarnation
from tests.nimbus.transcripts import Scenario

DIED = "note=it-died-of-signal-9"


@pytest.fixture
def scenario() -> Scenario:
    """A topology of two workers."""
    scenario = Scenario()
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2; report words w1 opened")
    return scenario


def held_up(scenario: Scenario) -> object:
    """The reason in the list of topologies."""
    (listed,) = Views(scenario.store, Counters(), scenario.clock.now).topologies()
    return listed.held_up


def test_a_starting_topology_is_not_held_up(scenario: Scenario) -> None:
    assert held_up(scenario) is None
    scenario.say("@ 1 report words w2")
    assert held_up(scenario) is None


def test_workers_that_die_or_wait_are_counted_and_the_first_one_has_its_reason(scenario: Scenario) -> None:
    scenario.say("@ 1 report words w2 waits note=its-environment-is-being-built")
    assert held_up(scenario) == HeldUp(1, "its-environment-is-being-built")
    scenario.say(f"@ 2 report words w1 incarnation=1,1 {DIED}")
    assert held_up(scenario) == HeldUp(2, "it-died-of-signal-9")


def test_a_topology_that_is_up_again_is_not_held_up_by_earlier_reports(scenario: Scenario) -> None:
    scenario.say(f"@ 1 report words w1 incarnation=1,1 {DIED}")
    scenario.say(f"@ 2 report words w1 incarnation=1,1 opened {DIED}")
    assert held_up(scenario) is None


def test_reports_of_an_earlier_worker_of_that_name_hold_nothing_up(scenario: Scenario) -> None:
    (record,) = scenario.registry.all_topologies()
    for version, why in ((0, None), (1, HeldUp(1, "it died"))):
        report = WorkerReport("w2", Incarnation(version, 5), False, False, False, False, None, note="it died")
        scenario.registry.save_report(record.id, report)
        assert held_up(scenario) == why


@pytest.mark.parametrize("command", ["deactivate", "kill"])
def test_a_topology_that_is_not_to_run_is_not_held_up(scenario: Scenario, command: str) -> None:
    scenario.say(f"@ 1 report words w1 incarnation=1,1 {DIED}; {command} words")
    assert held_up(scenario) is None
