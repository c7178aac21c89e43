"""Failure and Replay."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from topology_api import Failure, InvalidConfig, Replay


def test_the_default_is_three_attempts_within_a_minute_of_each_other() -> None:
    replay = Replay()
    assert (replay.max_attempts, replay.first_delay, replay.max_delay) == (3, 1.0, 60.0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"first_delay": -1}, "first_delay"),
        ({"first_delay": "1s"}, "first_delay"),
        ({"max_delay": float("inf")}, "max_delay"),
        ({"max_delay": float("nan")}, "max_delay"),
        ({"first_delay": 100}, "max_delay"),
    ],
)
def test_an_unusable_replay_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        Replay(**given)


def test_all_problems_of_a_replay_are_named_at_once() -> None:
    wrong: Any = "x"
    with pytest.raises(InvalidConfig) as caught:
        Replay(wrong, wrong, wrong)
    assert len(caught.value.problems) == 3


def test_a_failure_is_a_plain_value() -> None:
    failure = Failure("timeout", component="count", task=4, attempts=3)
    assert failure == pickle.loads(pickle.dumps(failure))
    assert (failure.reason, failure.error) == ("timeout", None)
    with pytest.raises(AttributeError):
        failure.reason = "lost"  # type: ignore[misc]
