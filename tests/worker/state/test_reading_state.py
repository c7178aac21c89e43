"""Reading state from another thread leaves the running call alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topology_api import ListState, MapState, StatefulBolt, ValueState
from worker.state import contents
from worker.state.build import handles
from worker.state.key_search import KeySearch
from worker.state.keys import canonical
from worker.state.live import key_in
from worker.state.plain_values import PlainValueHandle
from worker.state.readable import json_form
from worker.state.table import StateTable
from worker.state.timers import KeyTimers


class Bolt(StatefulBolt):
    key = ("key",)
    count = ValueState(int, default=7)
    items = MapState(str, list[int], ttl=10)
    last = ListState(int, ttl=10)


def test_a_read_in_the_middle_of_a_call_changes_neither_its_key_nor_what_it_undoes() -> None:
    now = [0.0]
    table = StateTable("here", lambda: now[0])
    states = handles(table, Bolt)
    contents.write(states, "a", {"count": 1, "items": {"x": [1]}, "last": [1, 2]})
    contents.write(states, "b", {"count": 2})
    table.begin("b")
    states["count"].value = 3  # type: ignore[attr-defined]
    before = contents.read(states, "a")
    assert before == {"count": 1, "items": {"x": [1]}, "last": [1, 2]}
    assert table.key == "b"
    states["count"].value += 1  # type: ignore[attr-defined]
    assert contents.read(states, "b")["count"] == 4
    table.undo()
    assert contents.read(states, "b") == {"count": 2, "items": {}, "last": []}
    before["items"]["x"].append(2)
    assert contents.read(states, "a")["items"] == {"x": [1]}, "what was read is a copy"
    now[0] = 10.0
    assert contents.read(states, "a") == {"count": 1, "items": {}, "last": []}, "their time is over"
    assert contents.read(states, "c")["count"] == 7
    assert contents.has_state(states, "a") and not contents.has_state(states, "c")


@pytest.mark.parametrize("key", ["text", (1, 2)])
def test_a_key_of_values_is_found_before_and_after_a_marker_and_in_the_middle(key: Any) -> None:
    table = StateTable("here", lambda: 0.0)
    states = {"count": handles(table, Bolt)["count"]}
    handle = states["count"]
    assert isinstance(handle, PlainValueHandle)
    timers = KeyTimers(table)
    contents.write(states, key, {"count": 1})
    steps: list[Callable[[], object]] = [
        lambda: None,
        handle.begin_epoch,
        lambda: handle.at_marker_of(handle.every_cell(), 0, 9, 1),
    ]
    for step in steps:
        step()
        search = KeySearch(json_form(key), states, timers)
        while not search.step():
            pass
        # A text is no object of a class, so it is found without a search.
        assert list(search.found) == ([] if isinstance(key, str) else [canonical(key)])
        assert key_in(states, timers, canonical(key)) == canonical(key)
        asked = _EqualTo(key)
        assert key_in(states, timers, asked) is not asked, "the key that the state has"


class _EqualTo:
    """Equal to a key, and another object."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return bool(other == self.key)

    def __hash__(self) -> int:
        return hash(self.key)
