"""A topology from a backup as it is written into another cluster: its state, its deadlines, and the numbers that follow."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nimbus.submission.restoration import Restoration, as_restored, assignments_above, submissions_above
from squall.cluster.records import TopologyRecord
from squall.values import TopologyState
from tests.squall.cluster.small_records import WORDS

NOW, TIME = 50.0, 1_800_000_000.0


def restoration(inactive: bool = False, waiting: TopologyRecord | None = None, **fields: Any) -> Restoration:
    return Restoration("a key", inactive, replace(WORDS, **fields), waiting, None, (), (), {})


def test_the_record_is_as_it_was_but_for_the_key_that_finds_it_again() -> None:
    restored = as_restored(restoration(), NOW, TIME)
    assert restored.topology == replace(WORDS, submission="a key")


def test_deadlines_begin_again_on_the_clock_of_the_leader() -> None:
    record = as_restored(
        restoration(deadline=7.0, until=8.0, wait=20.0, replaces="words-1-1"), NOW, TIME
    ).topology
    assert (record.deadline, record.until, record.replaces) == (70.0, TIME + 20, "words-1-1")
    assert as_restored(restoration(deadline=7.0, wait=None), NOW, TIME).topology.deadline == 80.0


@pytest.mark.parametrize(
    ("state", "previous", "becomes", "before"),
    [
        ("ACTIVE", None, "INACTIVE", None),
        ("INACTIVE", None, "INACTIVE", None),
        ("COMPLETED", None, "COMPLETED", None),
        ("FAILED", None, "FAILED", None),
        ("REBALANCING", "ACTIVE", "REBALANCING", "INACTIVE"),
        ("REPLACING", "ACTIVE", "REPLACING", "INACTIVE"),
    ],
)
def test_inactive_rests_whatever_would_run(
    state: str, previous: str | None, becomes: str, before: str | None
) -> None:
    waiting = replace(WORDS, id="words-9-9")
    restored = as_restored(
        restoration(True, waiting, state=TopologyState[state], previous=previous), NOW, TIME
    )
    assert (restored.topology.state, restored.topology.previous) == (becomes, before)
    assert restored.waiting is not None and restored.waiting.state == "INACTIVE"


def test_numbers_of_assignments_follow_the_time_or_the_highest_number_that_was_used() -> None:
    assert assignments_above(restoration(version=7), TIME) == TIME
    assert assignments_above(restoration(version=3_500_000_000), TIME) == 3_500_000_000
    assert (
        assignments_above(restoration(waiting=replace(WORDS, version=2_000_000_000)), TIME) == 2_000_000_000
    )
    assert assignments_above(restoration(), 1e15) == 3_000_000_000, "a wrong clock uses up no numbers"


def test_later_submissions_have_higher_numbers() -> None:
    waiting = replace(WORDS, id="words-41-9")
    assert submissions_above(restoration(id="words-7-1", waiting=waiting)) == 41
