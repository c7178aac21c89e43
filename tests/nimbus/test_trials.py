"""The trial of a new version: when it has proved that it runs, and when the previous version comes back."""

from __future__ import annotations

import pytest

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.records import WorkerReport
from squall.dead_letters.letter import HANDED_OVER
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall.values import Incarnation
from tests.nimbus.transcripts import TWO_VERSIONS, Play, Scenario

ON_TRIAL = TWO_VERSIONS.replace("tasks=3 replace", "tasks=3 count=1 replace").replace(": 1 2 3", ": 1 2 3 4")
UP = """
    @ 5 report words w1 opened
    = nothing changes
"""


def test_a_version_whose_tuples_are_acked_for_ten_seconds_has_proved_that_it_runs(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 emitted=9 acked=5 attempts_failed=4
    = nothing changes
    @ 15 ticks
    = nothing changes
    @ 16 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3 4
    """
    )


@pytest.mark.parametrize(
    ("counted", "settled", "failed"),
    [
        ("emitted=9 acked=5 attempts_failed=5 pending=4", 10, 5),
        ("emitted=1 attempts_failed=4 pending=1", 4, 4),
        ("emitted=10 failed=2 replayed=3 acked=1", 6, 5),
        ("emitted=10 executed=10 raised=5", 10, 5),
    ],
)
def test_a_version_half_of_whose_attempts_fail_is_rolled_back(
    counted: str, settled: int, failed: int, play: Play
) -> None:
    why = f"its tuples fail: of {settled} settled attempts {failed} failed"
    play(
        ON_TRIAL
        + UP.rstrip()
        + f"""
    @ 6 count words w1 {counted}
    = nothing changes
    @ 15 ticks
    = nothing changes
    @ 16 tick
    words FAILED ({why})
      leaving w1 s1/0 (2,0): 1 2 3 4
    @ 17 report words w1 stopped
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: {why}
    """
    )


def test_untracked_tuples_that_are_executed_prove_that_a_version_runs(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 emitted=9 executed=9
    = nothing changes
    @ 16 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3 4
    """
    )


def test_a_trial_goes_on_while_trees_are_open_and_none_has_failed(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 emitted=9 executed=9 pending=9
    = nothing changes
    @ 100 ticks
    = nothing changes
    @ 101 count words w1 emitted=9 acked=9
    = nothing changes
    @ 111 tick
    words ACTIVE
      w1 s1/0 (2,0): 1 2 3 4
    """
    )


def test_a_version_that_emits_nothing_because_its_spout_raises_is_rolled_back(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 errors=9
    = nothing changes
    @ 64 tick
    words FAILED (it emitted nothing, and its code raised 9 errors)
      leaving w1 s1/0 (2,0): 1 2 3 4
    """
    )


def test_another_nimbus_observes_a_trial_from_its_own_beginning(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 emitted=9 attempts_failed=9
    = nothing changes
    @ 14 another nimbus
    words ACTIVE until 74
      w1 s1/0 (2,0): 1 2 3 4
    @ 15 count words w1 emitted=9 attempts_failed=9
    = nothing changes
    @ 24 ticks
    = nothing changes
    @ 25 tick
    words FAILED (its tuples fail: of 9 settled attempts 9 failed)
      leaving w1 s1/0 (2,0): 1 2 3 4
    """
    )


def test_the_third_identical_error_at_a_start_ends_the_trial_at_once(scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    record = scenario.nimbus.topology("words")
    (placed,) = scenario.workers(record.id)

    def dies(attempt: int, reason: str, by: str = "reported") -> str:
        cause = Cause(by, reason=reason, status=77)  # type: ignore[arg-type]
        event = Event(
            "died", topology="words", worker="w1", pid=attempt, cause=cause, attempt=attempt, within_secs=6.0,
            retry_in_secs=2.0,
        )  # fmt: skip
        incarnation = Incarnation(placed.incarnation.version, attempt)
        report = WorkerReport("w1", incarnation, False, False, False, False, None, event=event)
        scenario.nimbus.report("words", "w1", report)
        return scenario.nimbus.topology("words").state

    typo, other = "NameError: wrds", "OSError: no disk"
    states = [dies(1, other), dies(2, typo), dies(3, other), dies(4, other), dies(5, other, "killed")]
    states += [dies(6, typo), dies(7, typo)]
    assert set(states) == {"ACTIVE"}
    assert dies(8, typo) == "FAILED"
    error = scenario.nimbus.topology("words").error
    assert error == (
        f"it failed 3 times in a row at its start: worker w1 ended by itself with status 77: {typo}"
    ), "nothing about another start, which does not come"


def test_an_operator_ends_a_trial_and_the_previous_version_returns(play: Play) -> None:
    play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 rollback words key=mine
    = words-2-2 ends, words-1-0 returns: ACTIVE
    words FAILED (an operator rolled it back)
      leaving w1 s1/0 (2,0): 1 2 3 4
    @ 7 rollback words key=mine
    = words-2-2 ends, words-1-0 returns: ACTIVE
    @ 8 report words w1 stopped
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: an operator rolled it back
    @ 9 rollback words key=mine
    = words-2-2 ends, words-1-0 returns: ACTIVE
    @ 9 rollback words key=yours
    = no trial ends
    """
    )


@pytest.mark.parametrize("version", ["1", "words-1-0"])
def test_the_version_on_standby_may_be_named(version: str, scenario: Scenario) -> None:
    scenario.play(TWO_VERSIONS)
    assert scenario.nimbus.end_trial("words", "2", "a key") is None, "that is the one on trial"
    assert scenario.nimbus.topology("words").state == "ACTIVE"
    assert scenario.nimbus.end_trial("words", version, "a key") is not None
    assert scenario.nimbus.topology("words").state == "FAILED"


def test_an_inactive_version_on_trial_is_rolled_back_by_an_operator_after_any_time(play: Play) -> None:
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
    @ 5 rebalance words
    ! NotProved: cannot rebalance topology 'words': it has just replaced the previous version and is on trial, which begins at `squall activate words`; it is rolled back if its workers are not up within 59 s: try again when the trial has ended, or end it with `squall rollback words` (a kill would remove the previous version as well)
    @ 5 report words w1
    words INACTIVE
      w1 s1/0 (2,0): 1 2 3
    @ 500 submit words tasks=3 replace
    ! NotProved: cannot replace topology 'words': it has just replaced the previous version and is on trial, which begins at `squall activate words`: try again when the trial has ended, or end it with `squall rollback words` (a kill would remove the previous version as well)
    @ 501 rollback words
    = words-2-2 ends, words-1-0 returns: ACTIVE
    words FAILED (an operator rolled it back)
      leaving w1 s1/0 (2,0): 1 2 3
    """)  # noqa: E501


def test_a_version_that_failed_its_trial_by_itself_needs_no_other_rollback(play: Play) -> None:
    play(
        TWO_VERSIONS
        + """
    @ 5 report words w1 crash=Worse
    words FAILED (Worse)
      leaving w1 s1/0 (2,0): 1 2 3
    @ 6 rollback words key=mine
    = words-2-2 ends, words-1-0 returns: ACTIVE
    @ 7 another nimbus
    = nothing changes
    @ 8 report words w1 stopped
    words ACTIVE
      w1 s1/0 (3,0): 1 2
      note: the version words-2-2 was rolled back, and words-1-0 has the name again: Worse
    @ 9 rollback words key=mine
    = words-2-2 ends, words-1-0 returns: ACTIVE
    """
    )


def test_a_rollback_says_how_many_tuples_were_pending(scenario: Scenario) -> None:
    scenario.play(
        ON_TRIAL
        + UP.rstrip()
        + """
    @ 6 count words w1 emitted=9 attempts_failed=9
    = nothing changes
    @ 16 ticks
    words FAILED (its tuples fail: of 9 settled attempts 9 failed)
      leaving w1 s1/0 (2,0): 1 2 3 4
    """
    )
    record = scenario.nimbus.topology("words")
    spout = ComponentCounters(emitted=9, failed=9, failures={HANDED_OVER: 7, "stopped": 2})
    counted = WorkerCounters({"lines": spout}, number=9)
    scenario.nimbus.counters.count(record.id, "w1", Incarnation(2, 0), counted)
    stopped = WorkerReport("w1", Incarnation(2, 0), True, False, False, True, None)
    scenario.nimbus.report("words", "w1", stopped)
    (event,) = [note.fact for note in scenario.nimbus.topology("words").notes]
    assert (event.kind, event.version, event.count) == ("rolled_back", record.id, 7)
    assert "was rolled back (7 tuples were pending), and" in sentence(event)
