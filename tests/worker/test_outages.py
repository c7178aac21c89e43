"""The verdicts on failures: what counts against a tuple, and when a bolt task is down."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.transport.frames import COUNTS, DEADLY, DIED, HUNG, OPEN, FailureClaim
from topology_api import Failure, Replay
from worker.tasks.probing import Probing
from worker.tracking.outages import DOWN_SECS, FailureHistory, Outages

STORE, OTHER = 7, 8


def raised(task: int | None = STORE, error: str = "it is away") -> Failure:
    return Failure("failed", "store", task, error, OPEN)


def waiting(give_up_secs: float | None = 3600.0) -> Outages:
    return Outages(waits=True, give_up_secs=give_up_secs)


def fail(outages: Outages, *histories: FailureHistory, at: float, task: int = STORE) -> bool:
    """Fail these tuples at one time; return whether the task is down then."""
    for history in histories:
        outages.failed(history, raised(task), at)
    return outages.is_down(task)


def fresh(outages: Outages, count: int) -> list[FailureHistory]:
    return [outages.begin() for _ in range(count)]


def test_a_failure_counts_when_its_task_succeeds_with_another_tuple() -> None:
    outages = waiting()
    poison = outages.begin()
    fail(outages, poison, at=0.0)
    assert poison.counted == 0 and not outages.spent(poison, 1, 0.0)
    assert outages.recovered(STORE, None) == [poison]
    assert poison.counted == 1 and outages.spent(poison, 1, 0.0) and not outages.spent(poison, 2, 0.0)


def test_the_success_of_the_tuple_itself_counts_against_no_attempt_of_it() -> None:
    outages = waiting()
    slow, other = fresh(outages, 2)
    fail(outages, slow, other, at=0.0)
    assert outages.recovered(STORE, slow) == [other]
    assert (slow.counted, other.counted) == (0, 1)


def test_the_success_of_another_task_is_no_evidence() -> None:
    outages = waiting()
    poison = outages.begin()
    fail(outages, poison, at=0.0)
    assert outages.recovered(OTHER, None) == [] and poison.counted == 0


def test_a_success_counts_once_however_often_the_tuple_has_failed_before() -> None:
    outages = waiting()
    first = outages.begin()
    for at in (0.0, 1.0, 3.0, 7.0):
        fail(outages, first, at=at)
    outages.recovered(STORE, None)
    assert first.counted == 1


def test_further_failures_of_a_suspect_count_at_once_and_are_no_evidence() -> None:
    outages = waiting()
    suspects = fresh(outages, 3)
    fail(outages, *suspects, at=0.0)
    outages.recovered(STORE, None)
    assert not fail(outages, *suspects, at=1.0) and not fail(outages, *suspects, at=20.0)
    assert [each.counted for each in suspects] == [3, 3, 3] and not outages.is_down(STORE)


def test_three_tuples_over_five_seconds_without_a_success_show_that_a_task_is_down() -> None:
    outages = waiting()
    one, two, three, four = fresh(outages, 4)
    assert not fail(outages, one, two, three, at=10.0)
    assert not fail(outages, four, at=10.0 + DOWN_SECS - 0.1)
    assert fail(outages, one, at=10.0 + DOWN_SECS)
    assert outages.is_down(STORE) and outages.watched() == [STORE]
    assert fail(outages, two, at=100.0), "the task is to pause, since it may be another process by now"
    assert outages.recovered(STORE, None) == []
    assert [each.counted for each in (one, two, three, four)] == [0, 0, 0, 0]
    assert outages.watched() == [] and not outages.is_down(STORE)


def test_two_tuples_are_too_few_for_a_verdict() -> None:
    outages = waiting()
    one, two = fresh(outages, 2)
    for at in range(0, 600, 10):
        assert not fail(outages, one, two, at=float(at))


def test_a_success_between_begins_the_evidence_again() -> None:
    outages = waiting()
    tuples = fresh(outages, 6)
    fail(outages, *tuples[:3], at=0.0)
    outages.recovered(STORE, None)
    assert not fail(outages, *tuples[3:], at=6.0), "their failures span no time yet"
    assert fail(outages, *tuples[3:], at=11.0)


def test_a_suspect_is_not_charged_while_others_show_that_the_task_is_down() -> None:
    outages = waiting()
    suspect, *others = fresh(outages, 4)
    fail(outages, suspect, at=0.0)
    outages.recovered(STORE, None)
    fail(outages, *others, at=1.0)
    fail(outages, *others, at=6.0)
    fail(outages, suspect, at=7.0)
    assert suspect.counted == 1


def test_a_burst_charges_no_tuple_and_is_no_verdict() -> None:
    outages = waiting(give_up_secs=100.0)
    suspect, *others = fresh(outages, 4)
    fail(outages, suspect, at=0.0)
    outages.recovered(STORE, None)
    fail(outages, *others, suspect, at=1.0)
    outages.had_burst(STORE, 0)
    assert outages.recovered(STORE, None) == []
    assert [each.counted for each in (suspect, *others)] == [1, 0, 0, 0]
    assert outages.spent(others[0], 3, 101.0), "a tuple that fails in bursts for good comes to an end"


def test_bursts_are_counted_with_the_tuples_of_other_spout_tasks() -> None:
    outages = waiting()
    one, two = fresh(outages, 2)
    fail(outages, one, at=0.0)
    outages.had_burst(STORE, 1)
    assert outages.recovered(STORE, None) == [one], "two tuples are too few"
    fail(outages, two, at=1.0)
    outages.had_burst(STORE, 2)
    assert outages.recovered(STORE, None) == []


def test_the_verdict_of_the_bolt_task_holds_for_a_spout_task_with_one_tuple() -> None:
    outages = waiting()
    alone = outages.begin()
    fail(outages, alone, at=0.0)
    assert outages.claim(STORE, 2.0) == FailureClaim(1, 2.0, "it is away")
    outages.went_down(STORE, 6.0)
    fail(outages, alone, at=7.0)
    assert outages.is_down(STORE) and outages.undecided() is None
    assert outages.recovered(STORE, None) == [] and alone.counted == 0
    assert outages.claim(STORE, 8.0) is None


def test_tuples_without_a_verdict_are_known_with_their_time_and_their_failure() -> None:
    outages = waiting(give_up_secs=100.0)
    one, two = fresh(outages, 2)
    assert outages.undecided() is None
    fail(outages, one, at=10.0)
    fail(outages, two, at=20.0)
    found = outages.undecided()
    assert found is not None and (found.tuples, found.since, found.until) == (2, 10.0, 110.0)
    assert found.failure.error == "it is away"
    outages.end(one)
    found = outages.undecided()
    assert found is not None and (found.tuples, found.since) == (1, 20.0)
    outages.recovered(STORE, None)
    assert outages.undecided() is None


def test_failures_in_an_outage_make_the_next_pauses_no_longer() -> None:
    outages, replay = waiting(), Replay(first_delay=1.0)
    history, *others = fresh(outages, 3)
    for at in (0.0, 2.0, 5.0):
        fail(outages, history, *others, at=at)
    assert 0.75 <= outages.delay(replay, 4, history) <= 1.0
    assert 45.0 <= outages.delay(replay, 60, history) <= 60.0, "a tuple that fails for long is tried seldom"


def test_failures_that_no_task_can_be_blamed_for_count_at_once() -> None:
    outages = waiting()
    for failure in (
        Failure("failed", "store", STORE, "bad row", COUNTS),
        Failure("timeout", None, None, None, OPEN),
    ):
        history = outages.begin()
        outages.failed(history, failure, 0.0)
        assert history.counted == 1
    assert outages.recovered(STORE, None) == []


def lost(root: int) -> Failure:
    return Failure("lost", "store", STORE, "its worker is gone", root)


def died(root: int, reason: str = DIED) -> Failure:
    return Failure(reason, "store", STORE, "died of SIGSEGV", root)


def test_a_tuple_that_is_lost_with_a_worker_is_never_charged_for_that() -> None:
    outages = waiting(give_up_secs=100.0)
    history = outages.begin()
    for root in range(1, 50):
        outages.failed(history, lost(root), 60.0 * root)
    assert history.counted == 0 and history.excused == 49
    assert not outages.spent(history, 1, 1e6) and outages.watched() == []


def test_two_deaths_in_a_call_with_a_tuple_are_enough_and_neighbours_are_not_charged() -> None:
    outages = waiting()
    killer, neighbour = fresh(outages, 2)
    for root in (11, 13):
        outages.failed(killer, lost(root), float(root))
        outages.failed(neighbour, lost(root + 1), float(root))
        assert not outages.spent(killer, 100, 20.0)
        assert outages.died(died(root), root + 0.5) is killer
    assert outages.spent(killer, 100, 20.0) and killer.excused == 0
    assert killer.last == Failure("lost", "store", STORE, "died of SIGSEGV", OPEN)
    assert not outages.spent(neighbour, 1, 20.0)
    assert not outages.spent(killer, None, 20.0), "Replay(max_attempts=None) is without end"


@pytest.mark.parametrize("waits", [True, False])
def test_a_tuple_that_was_not_executed_for_its_deaths_is_given_up_at_once(waits: bool) -> None:
    outages = Outages(waits, None)
    killer = outages.begin()
    outages.failed(killer, lost(DEADLY), 0.0)
    assert outages.spent(killer, 100, 0.0) and killer.last == lost(DEADLY) and outages.watched() == []


def test_while_a_version_is_on_trial_it_is_tried_again() -> None:
    outages = waiting()
    outages.on_trial = True
    killer = outages.begin()
    outages.failed(killer, lost(DEADLY), 0.0)
    assert not outages.spent(killer, 1, 0.0)


def test_a_death_is_charged_once_and_only_for_a_loss_that_is_known() -> None:
    outages = waiting()
    killer = outages.begin()
    outages.failed(killer, lost(11), 0.0)
    assert outages.died(died(12), 1.0) is None
    assert outages.died(died(11), 1.0) is killer and outages.died(died(11), 1.0) is None
    assert killer.deaths == killer.counted == 1


def test_a_loss_of_long_ago_is_forgotten() -> None:
    outages = waiting()
    early, late = fresh(outages, 2)
    outages.failed(early, lost(11), 0.0)
    outages.failed(late, lost(12), 1000.0)
    assert outages.died(died(11), 1000.0) is None and outages.died(died(12), 1000.0) is late


def test_a_call_that_hung_until_its_worker_was_ended_waits_for_a_verdict() -> None:
    outages = waiting()
    slow = outages.begin()
    outages.failed(slow, lost(11), 0.0)
    assert outages.died(died(11, HUNG), 1.0) is slow and slow.counted == 0
    assert outages.watched() == [STORE]
    assert outages.recovered(STORE, None) == [slow] and slow.counted == 1


def test_calls_that_hang_for_three_tuples_show_that_a_task_is_down() -> None:
    outages = waiting()
    for number, history in enumerate(fresh(outages, 3)):
        outages.failed(history, lost(number + 1), 300.0 * number)
        outages.died(died(number + 1, HUNG), 300.0 * number + 1)
    assert outages.is_down(STORE)


def test_every_loss_counts_where_outages_do_not_matter() -> None:
    outages = Outages(waits=False, give_up_secs=None)
    history = outages.begin()
    outages.failed(history, lost(11), 0.0)
    assert history.counted == 1 and outages.died(died(11), 1.0) is None and history.counted == 1


def test_a_timeout_at_a_task_that_is_down_does_not_count() -> None:
    outages = waiting()
    tuples = fresh(outages, 3)
    fail(outages, *tuples, at=0.0)
    fail(outages, *tuples, at=5.0)
    held = outages.begin()
    outages.failed(held, Failure("timeout", "store", STORE, None, OPEN), 35.0)
    assert held.counted == 0


def test_a_bad_row_counts_even_while_its_task_is_down() -> None:
    outages = waiting()
    tuples = fresh(outages, 3)
    fail(outages, *tuples, at=0.0)
    fail(outages, *tuples, at=5.0)
    bad = outages.begin()
    outages.failed(bad, Failure("failed", "store", STORE, "bad row", COUNTS), 6.0)
    assert bad.counted == 1 and outages.is_down(STORE)


def test_without_a_verdict_a_tuple_is_given_up_after_its_time() -> None:
    outages = waiting(give_up_secs=100.0)
    alone = outages.begin()
    fail(outages, alone, at=10.0)
    assert not outages.spent(alone, 3, 109.0) and outages.spent(alone, 3, 110.0)
    assert not outages.spent(alone, None, 1e9), "Replay(max_attempts=None) is without end"
    patient = waiting(give_up_secs=None)
    fail(patient, alone, at=10.0)
    assert not patient.spent(alone, 3, 1e9)


def test_the_time_without_a_verdict_begins_again_after_each_verdict() -> None:
    outages = waiting(give_up_secs=100.0)
    tuples = fresh(outages, 3)
    fail(outages, *tuples, at=0.0)
    fail(outages, *tuples, at=50.0)
    assert not outages.spent(tuples[0], 3, 500.0), "its task is down: that is a verdict"
    outages.recovered(STORE, None)
    fail(outages, tuples[0], at=600.0)
    assert not outages.spent(tuples[0], 3, 699.0) and outages.spent(tuples[0], 3, 700.0)


def test_every_failure_counts_where_outages_do_not_matter() -> None:
    outages = Outages(waits=False, give_up_secs=3600.0)
    tuples = fresh(outages, 5)
    for at in (0.0, 10.0, 20.0):
        assert not fail(outages, *tuples, at=at)
    assert [each.counted for each in tuples] == [3] * 5 and not outages.watched()


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 4.0)), max_size=40), st.booleans())
def test_an_outage_costs_no_tuple_an_attempt(failures: list[tuple[int, float]], long: bool) -> None:
    """Whatever fails in an outage: if the verdict is "down" nothing counts, else each tuple pays once at most."""
    outages = waiting()
    tuples = fresh(outages, 5)
    now = 0.0
    for index, pause in failures:
        now += pause * (10 if long else 1)
        fail(outages, tuples[index], at=now)
    was_down = outages.is_down(STORE)
    outages.recovered(STORE, None)
    assert all(each.counted <= (0 if was_down else 1) for each in tuples)
    assert outages.watched() == []


@pytest.mark.parametrize("waits", [True, False])
def test_no_failure_counts_while_a_version_is_on_trial(waits: bool) -> None:
    outages = Outages(waits, give_up_secs=1.0)
    outages.on_trial = True
    poison, *others = fresh(outages, 5)
    for second in range(20):
        assert not fail(outages, poison, *others, at=float(second)), "no task is down by a trial's evidence"
        outages.failed(poison, Failure("failed", "store", STORE, "a bad row", COUNTS), second)
    assert not outages.spent(poison, 1, 100.0) and outages.watched() == []
    assert outages.attempts_failed == 20 * 6 and poison.excused == 40
    outages.on_trial = False
    outages.failed(poison, Failure("failed", "store", STORE, "a bad row", COUNTS), 21.0)
    assert outages.spent(poison, 1, 21.0)


def test_probes_of_a_task_that_is_down_come_after_pauses_that_double_up_to_a_minute() -> None:
    probing = Probing(100.0, Random(7))
    pauses = [probing.due - 100.0]
    for _ in range(8):
        now = probing.due
        probing.failed(now)
        pauses.append(probing.due - now)
    promised = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert all(0.75 * most <= pause <= most for pause, most in zip(pauses, promised)), pauses
