"""The target of a tuple is a contract between workers, also of two releases: each key goes to the same task as before, and the
id of a tree contains its place.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.frozen import current_wire
from tests.frozen.frozen_data import load
from tests.frozen.routing_keys import KEYS, ROOTS, TASKS, no_keys
from tests.frozen.routing_runs import routed

FROZEN: dict[str, Any] = load("routes")


def test_every_key_has_its_earlier_hash() -> None:
    assert FROZEN["keys"].keys() == KEYS.keys()
    others = [
        name
        for name, (content, *choices) in FROZEN["keys"].items()
        if [content, choices]
        != [
            current_wire.hash_of_key(KEYS[name]),
            [[*current_wire.two_choices(KEYS[name], tasks)] for tasks in TASKS],
        ]
    ]
    assert not others


def test_every_text_goes_to_its_earlier_task() -> None:
    for name, (content, *choices) in FROZEN["texts"].items():
        key = KEYS[name]
        assert current_wire.hash_of_text(key) == content == FROZEN["keys"][name][0]
        assert [current_wire.choice_of_text(key, tasks) for tasks in TASKS] == choices


@pytest.mark.parametrize("name", FROZEN["no keys"])
def test_earlier_invalid_keys_are_still_invalid(name: str) -> None:
    with pytest.raises(Exception) as refused:
        current_wire.hash_of_key(no_keys()[name])
    assert type(refused.value).__name__ == FROZEN["no keys"][name]


@pytest.mark.parametrize("root", ROOTS, ids=str)
def test_the_id_of_a_tree_contains_its_place(root: tuple[int, int, int]) -> None:
    first, following = FROZEN["roots"][str(root)]
    assert current_wire.first_root(*root) == first
    assert current_wire.next_root(first) == following
    assert current_wire.task_of_root(first) == current_wire.task_of_root(following) == root[0]


def test_by_each_grouping_each_task_gets_the_same_tuples_as_before() -> None:
    assert routed() == FROZEN["runs"]
