"""A source that delivered a wrong file is not asked for it for a while, and a silent one is asked last."""

from __future__ import annotations

import pytest

from squall.clock import ManualClock
from squall.packages.file_sources import MOST_SECS, SILENT_SECS, WRONG_SECS, FileSources

GOOD, BAD = "0" * 64, "f" * 64
BOTH = ("n1", "n2")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def sources(clock: ManualClock) -> FileSources:
    return FileSources(clock.now)


def test_a_source_that_delivers_a_wrong_file_is_reported_with_both_hashes_and_asked_later(
    sources: FileSources, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert not sources.delivered("n1", GOOD, BAD)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("n1 delivered") and GOOD in told and BAD in told
    assert sources.order(GOOD, BOTH) == ["n2"] and sources.wrong("n1") == {GOOD}
    assert sources.order(BAD, BOTH) == ["n1", "n2"], "it is still used for other files"
    clock.move_to(clock.now() + WRONG_SECS)
    assert sources.order(GOOD, BOTH) == ["n1", "n2"]


def test_each_wrong_file_postpones_the_next_request_further_but_not_for_ever(
    sources: FileSources, clock: ManualClock
) -> None:
    waits = []
    for _ in range(10):
        sources.delivered("n1", GOOD, BAD)
        began = clock.now()
        while not sources.order(GOOD, ("n1",)):
            clock.move_to(clock.now() + 1)
        waits.append(clock.now() - began)
    assert waits[:3] == [WRONG_SECS, 2 * WRONG_SECS, 4 * WRONG_SECS] and waits[-1] == MOST_SECS


def test_a_source_that_delivers_the_right_file_again_is_trusted_again(sources: FileSources) -> None:
    sources.delivered("n1", GOOD, BAD)
    assert sources.delivered("n1", GOOD, GOOD)
    assert sources.order(GOOD, BOTH) == ["n1", "n2"] and not sources.wrong("n1")


def test_a_source_that_did_not_answer_is_asked_last_for_a_while(
    sources: FileSources, clock: ManualClock
) -> None:
    sources.is_silent("n1")
    assert sources.order(GOOD, BOTH) == ["n2", "n1"]
    clock.move_to(clock.now() + SILENT_SECS)
    assert sources.order(GOOD, BOTH) == ["n1", "n2"]
    sources.is_silent("n1")
    sources.delivered("n1", GOOD, GOOD)
    assert sources.order(GOOD, BOTH) == ["n1", "n2"]
