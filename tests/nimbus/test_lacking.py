"""A Nimbus counts as lacking a file only if it has said so; a lost file does not block leadership for ever."""

from __future__ import annotations

import pytest

from nimbus.files.missing_files import Inventory, MissingFiles

CODE, WHEELS = "c" * 64, "d" * 64
PATIENCE, LONGER = 30.0, 120.0
NO = Inventory("n2")
SILENT = Inventory("n2", silent="connection refused")
YES = Inventory("n2", frozenset({CODE}), whole=True)
YES_BUT_LACKS_OTHERS = Inventory("n2", frozenset({CODE}))
MISSING = {CODE: "words"}
LACKS = f"lacks the file {CODE} of topology 'words'"


@pytest.fixture
def lacking() -> MissingFiles:
    return MissingFiles(PATIENCE, LONGER)


def may_lead_at(lacking: MissingFiles, *answers: Inventory) -> float | None:
    """The second at which it would lead if it got the same answer every two seconds."""
    for now in range(0, 600, 2):
        lacking.update(MISSING, answers, float(now))
        if lacking.why_not(MISSING) is None:
            return now
    return None


def test_a_file_that_all_others_lack_is_waited_for_a_while(
    lacking: MissingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"the file {CODE} of topology 'words' is lost: none of the present Nimbuses has it." in told


def test_a_nimbus_that_does_not_answer_is_waited_for_longer_and_named(
    lacking: MissingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    lacking.update(MISSING, [SILENT, Inventory("n3")], 0.0)
    assert lacking.why_not(MISSING) == f"{LACKS}; no answer yet from n2"
    assert may_lead_at(lacking, SILENT, Inventory("n3")) == LONGER
    (told,) = [record.getMessage() for record in caplog.records]
    assert "no Nimbus that answers has it; n2 did not answer (connection refused)" in told


def test_its_later_answer_that_it_lacks_the_file_counts(lacking: MissingFiles) -> None:
    for now in (0.0, 40.0):
        lacking.update(MISSING, [SILENT], now)
        assert lacking.why_not(MISSING) is not None
    lacking.update(MISSING, [NO], 42.0)
    assert lacking.why_not(MISSING) is None


def test_a_nimbus_with_the_file_restarts_the_wait_when_it_disappears(lacking: MissingFiles) -> None:
    lacking.update(MISSING, [YES], 0.0)
    lacking.update(MISSING, [YES], 100.0)
    assert lacking.why_not(MISSING) == f"{LACKS}, which n2 has"
    lacking.update(MISSING, [], 101.0)
    assert lacking.why_not(MISSING) == LACKS
    lacking.update(MISSING, [], 101.0 + PATIENCE)
    assert lacking.why_not(MISSING) is None


def test_a_leader_steps_aside_for_one_that_has_its_lost_files_and_lacks_nothing(
    lacking: MissingFiles,
) -> None:
    lacking.update({}, [], 0.0)
    assert lacking.steps_aside() is None
    lacking.update(MISSING, [NO, SILENT], 1.0)
    assert lacking.steps_aside() is None
    lacking.update(MISSING, [YES_BUT_LACKS_OTHERS], 2.0)
    assert lacking.steps_aside() is None, "neither is better than the other"
    lacking.update(MISSING, [YES], 3.0)
    assert lacking.steps_aside() == f"{LACKS}, which n2 has"
    lacking.update({}, [], 4.0)
    assert lacking.steps_aside() is None


@pytest.mark.parametrize("answer", [YES, YES_BUT_LACKS_OTHERS])
def test_a_nimbus_that_has_the_file_and_never_leads_does_not_leave_the_cluster_without_a_leader(
    lacking: MissingFiles, answer: Inventory, caplog: pytest.LogCaptureFixture
) -> None:
    assert may_lead_at(lacking, answer) == LONGER
    assert lacking.steps_aside() is None, "this could continue for ever"
    assert "cannot be fetched from n2: this Nimbus may lead without it" in caplog.text


def test_a_file_that_went_missing_since_the_last_check_counts(lacking: MissingFiles) -> None:
    lacking.update({}, [], 0.0)
    assert lacking.why_not({WHEELS: "other"}) == f"lacks the file {WHEELS} of topology 'other'"


def test_a_file_that_was_lost_came_back_and_is_lost_again_is_waited_for_again(lacking: MissingFiles) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    lacking.update({}, [], 50.0)
    lacking.update(MISSING, [NO], 60.0)
    assert lacking.why_not(MISSING) == LACKS


def test_a_file_is_lost_when_the_wait_is_over_and_no_nimbus_has_it(lacking: MissingFiles) -> None:
    for answer, lost in ((NO, set(MISSING)), (YES_BUT_LACKS_OTHERS, set())):
        lacking.update(MISSING, [answer], 0.0)
        assert lacking.lost() == set()
        lacking.update(MISSING, [answer], LONGER)
        assert lacking.lost() == lost
        lacking.update({}, [], LONGER)
        assert lacking.lost() == set()


def test_a_nimbus_that_has_the_file_at_times_and_never_leads_is_not_waited_for_endlessly(
    lacking: MissingFiles,
) -> None:
    now = 0.0
    while now < 20 * LONGER and (now == 0.0 or lacking.why_not(MISSING) is not None):
        lacking.update(MISSING, [YES_BUT_LACKS_OTHERS if now % 120.0 < 60.0 else SILENT], now)
        now += 2.0
    assert LONGER < now < 10 * LONGER


def test_a_nimbus_that_brings_the_lost_file_should_lead_after_all(lacking: MissingFiles) -> None:
    assert may_lead_at(lacking, NO) == PATIENCE
    lacking.update(MISSING, [YES], 100 * LONGER)
    assert lacking.steps_aside() == f"{LACKS}, which n2 has"
