"""Epochs promise: whatever is killed, frozen, moved, lost, doubled or late, every commit holds each emission and each timer
once, sinks show the rows of committed epochs once and in order, and acks and dead letters are those of committed epochs. Each
seed is another topology with another story.
"""

from __future__ import annotations

import pytest

from tests.epochs.epochs_run import run
from tests.soak import soak_of

#: Runs in the fast tests, and in the slow ones.
FEW, MANY = 60, 120


def check_seeds(seeds: range, count: int) -> None:
    """Run this many stories; each must end well."""
    for seed in seeds[:count]:
        found = run(seed)
        assert found.problem is None, str(found)


def test_some_stories_of_epochs_end_well(epoch_seeds: range) -> None:
    check_seeds(epoch_seeds, FEW)


@pytest.mark.slow
def test_many_stories_of_epochs_end_well(epoch_seeds: range, request: pytest.FixtureRequest) -> None:
    check_seeds(epoch_seeds[FEW:] or epoch_seeds, round(MANY * soak_of(request.config)))


def test_a_seed_gives_the_same_story_of_epochs_twice() -> None:
    first, again = run(4711), run(4711)
    assert first.events > 100
    assert (first.events, first.commits) == (again.events, again.commits)
