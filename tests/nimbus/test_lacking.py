"""Only a Nimbus that answered that it lacks a file counts as one that does; a lost file stops nobody for ever."""

from __future__ import annotations

import pytest

from nimbus.lacking import Answer, Lacking

CODE, WHEELS = "c" * 64, "d" * 64
PATIENCE, LONGER = 30.0, 120.0
NO = Answer("n2")
SILENT = Answer("n2", silent="connection refused")
YES = Answer("n2", frozenset({CODE}), whole=True)
YES_BUT_LACKS_OTHERS = Answer("n2", frozenset({CODE}))
MISSING = {CODE: "words"}
LACKS = f"lacks the file {CODE} of topology 'words'"


@pytest.fixture
def lacking() -> Lacking:
    return Lacking(PATIENCE, LONGER)


def may_lead_at(lacking: Lacking, *answers: Answer) -> float | None:
    """The second at which it would lead, when it hears the same every two seconds."""
    for now in range(0, 600, 2):
        lacking.look(MISSING, answers, float(now))
        if lacking.why_not(MISSING) is None:
            return now
    return None


def test_a_file_that_all_others_lack_is_waited_for_a_while(
    lacking: Lacking, caplog: pytest.LogCaptureFixture
) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"the file {CODE} of topology 'words' is lost: no Nimbus that is there has it." in told


def test_one_that_does_not_answer_is_waited_for_longer_and_named(
    lacking: Lacking, caplog: pytest.LogCaptureFixture
) -> None:
    lacking.look(MISSING, [SILENT, Answer("n3")], 0.0)
    assert lacking.why_not(MISSING) == f"{LACKS}; not answered so far: n2"
    assert may_lead_at(lacking, SILENT, Answer("n3")) == LONGER
    (told,) = [record.getMessage() for record in caplog.records]
    assert "no Nimbus that answers has it; n2 did not answer (connection refused)" in told


def test_once_it_says_that_it_lacks_the_file_too_that_counts(lacking: Lacking) -> None:
    for now in (0.0, 40.0):
        lacking.look(MISSING, [SILENT], now)
        assert lacking.why_not(MISSING) is not None
    lacking.look(MISSING, [NO], 42.0)
    assert lacking.why_not(MISSING) is None


def test_one_that_has_the_file_begins_the_wait_anew_when_it_goes(lacking: Lacking) -> None:
    lacking.look(MISSING, [YES], 0.0)
    lacking.look(MISSING, [YES], 100.0)
    assert lacking.why_not(MISSING) == f"{LACKS}, which n2 has"
    lacking.look(MISSING, [], 101.0)
    assert lacking.why_not(MISSING) == LACKS
    lacking.look(MISSING, [], 101.0 + PATIENCE)
    assert lacking.why_not(MISSING) is None


def test_a_leader_steps_aside_for_one_that_has_what_it_lost_and_lacks_nothing(lacking: Lacking) -> None:
    lacking.look({}, [], 0.0)
    assert lacking.steps_aside() is None
    lacking.look(MISSING, [NO, SILENT], 1.0)
    assert lacking.steps_aside() is None
    lacking.look(MISSING, [YES_BUT_LACKS_OTHERS], 2.0)
    assert lacking.steps_aside() is None, "neither is better than the other"
    lacking.look(MISSING, [YES], 3.0)
    assert lacking.steps_aside() == f"{LACKS}, which n2 has"
    lacking.look({}, [], 4.0)
    assert lacking.steps_aside() is None


@pytest.mark.parametrize("answer", [YES, YES_BUT_LACKS_OTHERS])
def test_one_that_has_the_file_and_never_leads_does_not_keep_the_cluster_without_a_leader(
    lacking: Lacking, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    assert may_lead_at(lacking, answer) == LONGER
    assert lacking.steps_aside() is None, "it would go on for ever"
    assert "cannot be had from n2: this Nimbus may lead without it" in caplog.text


def test_a_file_that_is_lacking_since_the_last_look_counts(lacking: Lacking) -> None:
    lacking.look({}, [], 0.0)
    assert lacking.why_not({WHEELS: "other"}) == f"lacks the file {WHEELS} of topology 'other'"


def test_a_file_that_was_lost_before_and_came_meanwhile_is_waited_for_anew(lacking: Lacking) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    lacking.look({}, [], 50.0)
    lacking.look(MISSING, [NO], 60.0)
    assert lacking.why_not(MISSING) == LACKS


def test_a_file_is_lost_when_it_was_waited_for_and_nobody_has_it(lacking: Lacking) -> None:
    for answer, lost in ((NO, set(MISSING)), (YES_BUT_LACKS_OTHERS, set())):
        lacking.look(MISSING, [answer], 0.0)
        assert lacking.lost() == set()
        lacking.look(MISSING, [answer], LONGER)
        assert lacking.lost() == lost
        lacking.look({}, [], LONGER)
        assert lacking.lost() == set()


def test_one_that_has_the_file_now_and_then_and_never_leads_is_not_waited_for_without_end(
    lacking: Lacking,
) -> None:
    now = 0.0
    while now < 20 * LONGER and (now == 0.0 or lacking.why_not(MISSING) is not None):
        lacking.look(MISSING, [YES_BUT_LACKS_OTHERS if now % 120.0 < 60.0 else SILENT], now)
        now += 2.0
    assert LONGER < now < 10 * LONGER


def test_one_that_comes_with_the_lost_file_should_lead_after_all(lacking: Lacking) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    lacking.look(MISSING, [YES], 100 * LONGER)
    assert lacking.steps_aside() == f"{LACKS}, which n2 has"
