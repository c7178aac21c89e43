"""Reading state from another thread leaves the running call alone."""

from __future__ import annotations

from topology_api import ListState, MapState, StatefulBolt, ValueState
from worker.state import contents
from worker.state.build import handles
from worker.state.table import StateTable


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
