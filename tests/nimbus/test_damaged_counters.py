"""Nonsense in the store's counters does not block submissions, and no number in use is given again."""

from __future__ import annotations

import pytest

from squall.cluster import paths
from tests.nimbus.transcripts import Scenario


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_submission_and_a_move_continue_above_all_numbers(scenario: Scenario, how: str) -> None:
    for line in ("supervisor s1 slots=2", "submit one tasks=2 workers=2", "supervisor s2 slots=2"):
        scenario.say(f"@ 0 {line}")
    for name in ("submissions", "assignments"):
        if how == "damaged":
            scenario.store.put(paths.counter(name), b"\x00 nonsense")
        else:
            scenario.store.delete(paths.counter(name))
    scenario.say("@ 1 submit two tasks=1")
    assert [record.id for record in scenario.registry.all_topologies()] == ["one-1-0", "two-2-1"]
    scenario.say("@ 2 lose s1")
    assert scenario.show() == [
        "one ACTIVE",
        "  w3 s2/1 (3,0): 1 2",
        "two ACTIVE",
        "  w1 s2/0 (2,0): 1",
    ]
