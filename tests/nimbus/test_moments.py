"""Moments shown to users: by the wall clock that all hosts share, whichever clock the leading Nimbus has."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nimbus.counters.counting import Counters
from nimbus.http.views import Views
from nimbus.leader.master import Nimbus
from squall.clock import ManualClock
from tests.nimbus.transcripts import Scenario

TODAY = 1_790_000_000.0
"""The wall clock's time at second 0 of the scenario."""


class WallClock:
    """A wall clock that advances with the clock of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def now(self) -> float:
        return TODAY + self._scenario.clock.now()


@pytest.fixture
def wall_clock(scenario: Scenario) -> WallClock:
    """The scenario's Nimbus has a clock that began with its host, and a wall clock beside it."""
    wall_clock = WallClock(scenario)
    scenario.nimbus.close()
    scenario.nimbus = Nimbus(scenario.store, scenario.clock, wall_clock=wall_clock.now)
    return wall_clock


@pytest.fixture
def views(scenario: Scenario, wall_clock: WallClock) -> Views:
    """The answers of a Nimbus on another host: it has the store and the wall clock, but not the leader's clock."""
    return Views(scenario.store, Counters(), wall_clock.now)


def in_state(views: Views, name: str = "words") -> tuple[str, float, float]:
    """(state, seconds in it, seconds since it was submitted), as shown by both answers."""
    one, (summary,) = views.topology(name), views.topologies()
    assert (one.state, one.state_secs, one.uptime_secs) == (
        summary.state,
        summary.state_secs,
        summary.uptime_secs,
    )
    return summary.state, summary.state_secs, summary.uptime_secs


def two_versions(scenario: Scenario) -> None:
    """At second 4 the second version has taken over, and has 60 seconds to come up."""
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2")
    scenario.say("@ 1 report words w1 opened")
    scenario.say("@ 2 submit words tasks=3 replace")
    scenario.say("@ 3 report words w1 opened drained")
    scenario.say("@ 4 report words w1 stopped")


def seconds_kept(views: Views) -> float:
    """The seconds for which the previous version is still kept."""
    told = views.topology("words").stands_by
    assert told is not None and (told.id, told.components) == ("words-1-1790000000", ("lines",))
    assert views.topologies()[0].stands_by == replace(told, components=None)
    return told.secs


def test_a_standby_nimbus_shows_how_long_the_previous_version_is_kept(
    scenario: Scenario, views: Views
) -> None:
    two_versions(scenario)
    assert seconds_kept(views) == 60.0
    scenario.clock.move_to(14.0)
    assert seconds_kept(views) == 50.0
    scenario.clock.move_to(500.0)  # the leader is unavailable
    assert seconds_kept(views) == 0.0


def test_the_time_is_right_while_another_nimbus_leads_by_its_own_clock(
    scenario: Scenario, wall_clock: WallClock, views: Views
) -> None:
    two_versions(scenario)
    scenario.clock.move_to(24.0)
    scenario.nimbus.close()
    scenario.nimbus = Nimbus(scenario.store, ManualClock(77_000.0), wall_clock=wall_clock.now)
    assert seconds_kept(views) == 60.0, "it waits for the whole time again"
    scenario.clock.move_to(34.0)
    assert seconds_kept(views) == 50.0


def test_the_time_is_right_when_the_deadline_is_postponed_for_preparations(
    scenario: Scenario, views: Views
) -> None:
    two_versions(scenario)
    scenario.say("@ 5 report words w1 waits")
    scenario.say("@ 34 tick")
    assert seconds_kept(views) == 60.0


def test_the_time_passes_while_the_topology_is_inactive(scenario: Scenario, views: Views) -> None:
    two_versions(scenario)
    scenario.say("@ 10 deactivate words")
    assert seconds_kept(views) == 54.0
    assert in_state(views) == ("INACTIVE", 0.0, 8.0)


def test_time_in_a_state_begins_when_it_is_reached_and_age_with_the_submission(
    scenario: Scenario, views: Views
) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2; report words w1 opened")
    scenario.clock.move_to(100.0)
    assert in_state(views) == ("ACTIVE", 100.0, 100.0)
    scenario.say("@ 100 deactivate words")
    scenario.say("@ 105 deactivate words")
    assert in_state(views) == ("INACTIVE", 5.0, 105.0)
    scenario.say("@ 110 rebalance words")
    scenario.clock.move_to(112.0)
    assert in_state(views) == ("REBALANCING", 2.0, 112.0)
    scenario.say("@ 120 report words w1 drained")
    scenario.clock.move_to(121.0)
    assert in_state(views) == ("INACTIVE", 1.0, 121.0)
    scenario.say("@ 130 kill words")
    scenario.say("@ 140 kill words wait=90")
    assert in_state(views) == ("KILLED", 10.0, 140.0)


def test_a_crash_and_a_completion_start_a_new_state(scenario: Scenario, views: Views) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=1; submit others tasks=1")
    scenario.say("@ 20 report words w1 crash=Boom; report others w1 ended")
    scenario.clock.move_to(23.0)
    told = {each.name: (each.state, each.state_secs) for each in views.topologies()}
    assert told == {"words": ("FAILED", 3.0), "others": ("COMPLETED", 3.0)}


def test_a_version_that_takes_over_or_comes_back_starts_a_new_state(scenario: Scenario, views: Views) -> None:
    two_versions(scenario)
    assert in_state(views) == ("ACTIVE", 0.0, 2.0)
    scenario.say("@ 9 report words w1 crash=Boom")
    scenario.say("@ 10 report words w1 stopped crash=Boom")
    scenario.clock.move_to(11.0)
    assert in_state(views) == ("ACTIVE", 1.0, 11.0)


def test_a_note_has_the_time_of_its_event(scenario: Scenario, views: Views) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=1")
    scenario.say("@ 7 report words w1 note=SIGKILL")
    scenario.say("@ 9 report words w1 note=SIGSEGV incarnation=1,1")
    told = views.topology("words")
    assert dict(zip(told.notes, told.note_times, strict=True)) == {
        "SIGKILL": TODAY + 7,
        "SIGSEGV": TODAY + 9,
    }
