"""How another version takes over a name, and how the previous one comes back; `transcripts.py` says how to read transcripts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nimbus.counters.counting import Counters
from nimbus.files.housekeeping import needed_files
from nimbus.http.views import Views
from nimbus.lifecycle.replacing import step_due
from nimbus.submission.submission import Submission
from squall.api.versions import StandbyVersion
from squall.cluster import paths
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry
from squall.values import TopologyState
from tests.nimbus.transcripts import TWO_VERSIONS, Play, Scenario, a_topology
from topology_api.options import defaults


def test_another_version_takes_over_when_the_previous_one_has_drained_and_its_workers_are_gone(
    scenario: Scenario,
) -> None:
    scenario.play(
        TWO_VERSIONS
        + """
    @ 5 report words w1 opened
    = nothing changes
    @ 63 ticks
    = nothing changes
    @ 64 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3
    @ 100 tick
    = nothing changes
    """
    )
    assert scenario.registry.known_ids(paths.OF_RUNNING) == {"words-2-2"}
    assert scenario.store.children(paths.REPLACEMENTS) == scenario.store.children(paths.REPLACED) == []


def test_the_previous_version_is_kept_before_another_has_its_name(scenario: Scenario) -> None:
    kept: list[bool] = []

    def look(path: str) -> None:
        registry = Registry(scenario.store)
        record = registry.topologies.get("words")
        if record is not None and record.replaces is not None:
            kept.append(registry.replaced.get("words") is not None)

    scenario.store.watch(paths.topology("words"), look)
    scenario.play(TWO_VERSIONS)
    assert kept and all(kept)


def test_a_version_that_fails_is_rolled_back_and_the_previous_one_runs_again(scenario: Scenario) -> None:
    scenario.play(
        TWO_VERSIONS
        + """
    @ 5 report words w1 crash=ValueError
    words FAILED (ValueError)
      leaving w1 s1/0 (2,0): 1 2 3
    @ 6 report words w1 stopped crash=ValueError
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: ValueError
    @ 100 tick
    = nothing changes
    """
    )
    assert scenario.registry.known_ids(paths.OF_RUNNING) == {"words-1-0"}
    assert scenario.nimbus.topology("words").id == "words-1-0"


def test_a_version_that_is_not_up_in_time_is_rolled_back(play: Play) -> None:
    play(
        TWO_VERSIONS
        + """
    @ 63 tick
    = nothing changes
    @ 64 tick
    words FAILED (it was not up within 60 s of taking over; its workers w1 had not opened their tasks)
      leaving w1 s1/0 (2,0): 1 2 3
    @ 65 report words w1 stopped
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: it was not up within 60 s of taking over; its workers w1 had not opened their tasks
    """  # noqa: E501
    )


def test_a_version_without_a_slot_is_rolled_back_and_waits_for_one_like_any_other(play: Play) -> None:
    play("""
    @ 0 submit words tasks=1 inactive
    words INACTIVE
    @ 1 submit words tasks=2 replace
    words ACTIVE until 61
    @ 61 tick
    words INACTIVE
      note: the version words-2-1 was rolled back, and words-1-0 has the name again: it was not up within 60 s of taking over; there was no slot for it
    @ 62 supervisor s1 slots=1
    words INACTIVE
      w1 s1/0 (1,0): 1
      note: the version words-2-1 was rolled back, and words-1-0 has the name again: it was not up within 60 s of taking over; there was no slot for it
    """)  # noqa: E501


def test_the_time_for_building_the_environment_does_not_count(play: Play) -> None:
    play(
        TWO_VERSIONS
        + """
    @ 5 report words w1 waits
    = nothing changes
    @ 33 tick
    = nothing changes
    @ 34 tick
    words ACTIVE until 94
      w1 s1/0 (2,0): 1 2 3
    @ 64 ticks
    words ACTIVE until 124
      w1 s1/0 (2,0): 1 2 3
    @ 70 report words w1
    = nothing changes
    @ 123 ticks
    = nothing changes
    @ 124 tick
    words FAILED (it was not up within 60 s of taking over; its workers w1 had not opened their tasks)
      leaving w1 s1/0 (2,0): 1 2 3
    """
    )


def test_the_trial_of_an_inactive_version_begins_when_it_is_activated(play: Play) -> None:
    play("""
    @ 0 supervisor s1 slots=2; submit words tasks=2
    words ACTIVE
      w1 s1/0 (1,0): 1 2
    @ 2 submit words tasks=3 replace inactive wait=0
    words REPLACING until 2
      leaving w1 s1/0 (1,0): 1 2
    @ 4 report words w1 stopped
    words INACTIVE until 64
      w1 s1/0 (2,0): 1 2 3
    @ 5 report words w1
    words INACTIVE
      w1 s1/0 (2,0): 1 2 3
    @ 500 tick
    = nothing changes
    @ 501 activate words
    words ACTIVE until 561
      w1 s1/0 (2,0): 1 2 3
    @ 502 report words w1 opened
    = nothing changes
    @ 561 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3
    """)


def test_a_drain_for_a_replacement_ends_at_its_deadline(play: Play) -> None:
    play("""
    @ 0 supervisor s1 slots=1; submit words tasks=1
    words ACTIVE
      w1 s1/0 (1,0): 1
    @ 2 submit words tasks=1 replace wait=5
    words REPLACING until 7
      w1 s1/0 (1,0): 1
    @ 7 tick
    words REPLACING until 7
      leaving w1 s1/0 (1,0): 1
    """)


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_an_ended_version_is_replaced_at_once_and_comes_back_unchanged(
    state: str, scenario: Scenario
) -> None:
    end = {"COMPLETED": "ended", "FAILED": "crash=Boom"}[state]
    error = {"COMPLETED": "", "FAILED": " (Boom)"}[state]
    scenario.play(f"""
    @ 0 supervisor s1 slots=1; submit words tasks=1
    words ACTIVE
      w1 s1/0 (1,0): 1
    @ 1 report words w1 opened {end}
    words {state}{error}
      leaving w1 s1/0 (1,0): 1
    @ 2 report words w1 stopped
    words {state}{error}
    @ 3 submit words tasks=2 replace
    words ACTIVE until 63
      w1 s1/0 (2,0): 1 2
    @ 4 report words w1 crash=Worse
    words FAILED (Worse)
      leaving w1 s1/0 (2,0): 1 2
    @ 5 report words w1 stopped
    words {state}{error}
      note: the version words-2-3 was rolled back, and words-1-0 has the name again: Worse
    """)


def test_replacing_a_missing_topology_submits_it(play: Play) -> None:
    play("""
    @ 0 submit words tasks=1 replace wait=7
    words ACTIVE
    """)


def test_a_replacement_that_is_impossible_now_is_refused_and_leaves_nothing(scenario: Scenario) -> None:
    scenario.play(
        TWO_VERSIONS
        + """
    @ 5 submit words tasks=1 replace
    ! NotProved: cannot replace topology 'words': it has just replaced the previous version and is on trial; it is rolled back if its workers are not up within 59 s or its tuples fail: try again when the trial has ended, or end it with `squall rollback words` (a kill would remove the previous version as well)
    @ 5 rebalance words workers=2
    ! NotProved: cannot rebalance topology 'words': it has just replaced the previous version and is on trial; it is rolled back if its workers are not up within 59 s or its tuples fail: try again when the trial has ended, or end it with `squall rollback words` (a kill would remove the previous version as well)
    @ 5 deactivate words
    words INACTIVE until 64
      w1 s1/0 (2,0): 1 2 3
    @ 6 activate words
    words ACTIVE until 64
      w1 s1/0 (2,0): 1 2 3
    @ 7 report words w1 opened
    = nothing changes
    @ 64 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3
    @ 65 submit words tasks=1 replace
    words REPLACING until 95
      w1 s1/0 (2,0): 1 2 3
    @ 65 submit words tasks=1 replace
    ! IllegalTransition: cannot replace topology 'words': it is REPLACING; possible now: kill
    @ 65 submit words tasks=1
    ! NameTaken: a topology named 'words' exists already: kill it first, or submit under another name
    @ 66 kill words
    words KILLED until 96
      w1 s1/0 (2,0): 1 2 3
    @ 66 submit words tasks=1 replace
    ! IllegalTransition: cannot replace topology 'words': it is KILLED; possible now: kill
    """  # noqa: E501
    )
    scenario.say("@ 100 tick")
    assert scenario.registry.known_ids(paths.OF_RUNNING) == {"words-2-2"}


def test_another_nimbus_waits_for_the_proof_for_the_whole_time_again(play: Play) -> None:
    play(
        TWO_VERSIONS
        + """
    @ 50 another nimbus
    words ACTIVE until 110
      w1 s1/0 (2,0): 1 2 3
    @ 109 tick
    = nothing changes
    """
    )


@pytest.mark.parametrize("where", ["replacement", "replaced"])
def test_an_unreadable_version_does_not_stop_other_topologies(where: str, scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; submit words tasks=1")
    if where == "replacement":
        scenario.say("@ 1 submit words tasks=2 replace")
        scenario.store.put(paths.replacement("words"), b"nonsense")
        scenario.nimbus.tick()
        assert scenario.nimbus.topology("words").state == "ACTIVE"
        assert scenario.nimbus.topology("words").id == "words-1-0"
    else:
        scenario.say("@ 1 submit words tasks=2 replace wait=0; report words w1 stopped")
        scenario.store.put(paths.replaced("words"), b"nonsense")
        scenario.say("@ 3 report words w1 crash=Boom")
        assert scenario.nimbus.topology("words").state == "FAILED"
        assert scenario.nimbus.topology("words").id == "words-2-1"
    scenario.say("@ 4 kill words wait=0; report words w1 stopped")
    assert scenario.store.children("/") == ["cluster", "counters", "ended", "supervisors"]


def test_each_unreadable_version_is_reported_once(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; submit words tasks=1")
    for told, path in enumerate((paths.replacement("words"), paths.replaced("words")), 1):
        scenario.store.put(path, b"nonsense")
        scenario.say(f"@ {told} tick")
        notes = scenario.nimbus.topology("words").notes
        assert [path in note.text for note in notes] == [False] * (told - 1) + [True]


def test_a_topology_that_had_drained_for_a_lost_version_drains_again_when_it_has_to(
    scenario: Scenario,
) -> None:
    scenario.say("@ 0 supervisor s1 slots=2; submit words tasks=2 workers=2; submit words tasks=1 replace")
    scenario.say("@ 1 report words w1 drained")
    scenario.registry.replacements.drop("words")
    scenario.play("""
    @ 2 tick
    words ACTIVE
      w1 s1/0 (1,0): 1
      w2 s1/1 (1,0): 2
      note: the version that was to replace words-1-0 is gone
    @ 3 kill words
    words KILLED until 33
      w1 s1/0 (1,0): 1
      w2 s1/1 (1,0): 2
      note: the version that was to replace words-1-0 is gone
    @ 4 report words w2 drained
    = nothing changes
    @ 5 report words w1 drained
    words KILLED until 33
      leaving w1 s1/0 (1,0): 1
      leaving w2 s1/1 (1,0): 2
      note: the version that was to replace words-1-0 is gone
    """)


def test_a_version_that_has_taken_over_is_not_moved_before_it_has_proved_itself(play: Play) -> None:
    play("""
    @ 0 supervisor s1 slots=1; submit words tasks=1
    words ACTIVE
      w1 s1/0 (1,0): 1
    @ 1 submit words tasks=2 workers=2 replace wait=0; report words w1 stopped
    words ACTIVE until 61
      w1 s1/0 (2,0): 1 2
    @ 2 supervisor s2 slots=1
    = nothing changes
    @ 3 report words w1 opened
    = nothing changes
    @ 61 tick
    words REBALANCING until 91
      w1 s1/0 (2,0): 1 2
    """)


def test_a_version_that_was_up_and_gets_more_to_open_has_to_prove_that_too(play: Play) -> None:
    play("""
    @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=1
    words ACTIVE
      w1 s1/0 (1,0): 1
    @ 1 submit words tasks=2 workers=2 replace wait=0; report words w1 stopped
    words ACTIVE until 61
      w1 s1/0 (2,0): 1
      w2 s2/0 (2,0): 2
    @ 2 report words w1 opened version=2
    = nothing changes
    @ 3 lose s2
    words ACTIVE until 61
      w1 s1/0 (2,0): 1 2
    @ 60 report words w1 opened version=3
    = nothing changes
    @ 61 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2
    """)


def test_while_a_version_waits_for_its_slots_no_other_topology_is_spread_over_them(play: Play) -> None:
    play("""
    @ 0 supervisor s1 slots=2; submit one tasks=1; submit two tasks=2 workers=2
    one ACTIVE
      w1 s1/0 (1,0): 1
    two ACTIVE
      w1 s1/1 (2,0): 1 2
    @ 1 submit one tasks=2 workers=2 replace
    one REPLACING until 31
      w1 s1/0 (1,0): 1
    two ACTIVE
      w1 s1/1 (2,0): 1 2
    @ 2 supervisor s2 slots=1
    = nothing changes
    """)


def test_files_of_versions_that_wait_or_may_come_back_are_in_use(scenario: Scenario) -> None:
    conf = defaults() | {"topology.workers": 1}
    files = [{"code": letter * 64} for letter in "abc"]
    submit = scenario.nimbus.submit
    submit(Submission(a_topology("other", 1), conf, {}, files={"wheels": "d" * 64}))
    submit(Submission(a_topology("words", 1), conf, {}, files=files[0]))
    scenario.say("@ 0 supervisor s1 slots=3")
    submit(Submission(a_topology("words", 1), conf, {}, files=files[1], replace=True))
    assert set(needed_files(scenario.registry)[0]) == {letter * 64 for letter in "abd"}
    scenario.say("@ 1 kill words wait=0; report words w1 stopped")
    assert set(needed_files(scenario.registry)[0]) == {"d" * 64}


def test_a_version_waits_while_the_previous_one_is_being_rebalanced(scenario: Scenario) -> None:
    scenario.say("@ 0 supervisor s1 slots=1; submit words tasks=1; rebalance words workers=1")
    record = scenario.nimbus.topology("words")
    assert record.state == "REBALANCING"
    waiting = TopologyRecord("words-9-0", "words", TopologyState.ACTIVE, None, {}, {}, (), 0, None, None, 0.0)
    assert step_due(scenario.nimbus._steps.view(record), waiting, None, 0.0) is None


def test_a_version_on_trial_makes_room_for_no_other(scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    waiting = replace(scenario.nimbus.topology("words"), id="words-9-0", replaces=None)
    view = scenario.nimbus._steps.view(scenario.nimbus.topology("words"))
    assert step_due(view, waiting, None, 5.0) == "drop_waiting"


def test_a_version_that_failed_on_trial_accepts_no_other_which_would_be_dropped_unseen(
    scenario: Scenario,
) -> None:
    scenario.play(
        TWO_VERSIONS
        + """
    @ 5 report words w1 crash=Worse
    words FAILED (Worse)
      leaving w1 s1/0 (2,0): 1 2 3
    @ 6 submit words tasks=1 replace
    ! NotProved: cannot replace topology 'words': it has just replaced the previous version and failed; it is rolled back when its workers are gone: try again then (a kill would remove the previous version as well)
    """  # noqa: E501
    )


def test_a_status_says_that_the_trial_of_an_inactive_version_is_suspended(
    scenario: Scenario,
) -> None:
    views = Views(scenario.store, Counters(), scenario.clock.now)
    scenario.say(
        "@ 0 supervisor s1 slots=2; submit words tasks=2; submit words tasks=3 replace inactive wait=0"
    )
    scenario.say("@ 4 report words w1 stopped")
    parts = ("lines",)
    assert views.topology("words").stands_by == StandbyVersion("words-1-0", 60.0, components=parts)
    scenario.say("@ 5 report words w1")
    assert views.topology("words").stands_by == StandbyVersion("words-1-0", 0.0, True, parts)
    assert views.topologies()[0].stands_by == StandbyVersion("words-1-0", 0.0, suspended=True)
    scenario.say("@ 6 activate words")
    assert views.topology("words").stands_by == StandbyVersion("words-1-0", 60.0, components=parts)


def test_a_status_shows_the_previous_version_and_the_wanted_number_of_workers(
    scenario: Scenario,
) -> None:
    views = Views(scenario.store, Counters(), scenario.clock.now)
    scenario.play(TWO_VERSIONS)
    scenario.clock.move_to(14)
    assert views.topology("words").stands_by == StandbyVersion("words-1-0", 50.0, components=("lines",))
    assert views.topologies()[0].stands_by == StandbyVersion("words-1-0", 50.0)
    scenario.say("@ 15 report words w1 opened; tick")
    assert views.topology("words").stands_by is not None
    scenario.say("@ 64 tick")
    assert views.topology("words").stands_by is None
    scenario.say("@ 65 rebalance words workers=9")
    assert views.topology("words").workers_wanted == 9
