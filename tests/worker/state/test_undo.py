"""A call of a stateful bolt is all or nothing: after any calls, some of which raise, the states are those of a model that ran
only the calls that returned.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings

from tests.worker.state.every_state import CALLS, Clock, Everything, apply
from worker.state import build, contents
from worker.state.keys import canonical
from worker.state.table import StateHandle, StateTable


class Model:
    """The same states as plain Python values: name -> key -> value, and the times of writing where there is a ttl."""

    def __init__(self) -> None:
        self.value: dict[Any, int] = {}
        self.items: dict[Any, list[int]] = {}
        self.short: dict[Any, tuple[str, float]] = {}
        self.row: dict[Any, list[int]] = {}
        self.rows: dict[Any, list[dict[str, int]]] = {}
        self.brief: dict[Any, list[tuple[int, float]]] = {}
        self.map: dict[Any, dict[str, int]] = {}
        self.maps: dict[Any, dict[str, list[int]]] = {}
        self.passing: dict[Any, dict[str, tuple[int, float]]] = {}
        self.whole = 0

    def read(self, key: Any, now: float) -> dict[str, Any]:
        text, written = self.short.get(key, (None, now))
        return {
            "value": self.value.get(key, 0),
            "items": self.items.get(key, []),
            "short": text if now - written < 5 else None,
            "row": self.row.get(key, []),
            "rows": self.rows.get(key, []),
            "brief": [each for each, time in self.brief.get(key, []) if now - time < 5],
            "map": self.map.get(key, {}),
            "maps": self.maps.get(key, {}),
            "passing": {
                item: part for item, (part, time) in self.passing.get(key, {}).items() if now - time < 5
            },
            "whole": self.whole,
        }


def apply_to_model(model: Model, key: Any, step: tuple[Any, ...], now: float) -> None:
    """Do the same step on the model."""
    what, argument = step[0], step[1]
    if what == "value":
        model.value[key] = model.value.get(key, 0) + argument
    elif what == "value.clear":
        model.value.pop(key, None)
    elif what == "items.append":
        model.items.setdefault(key, []).append(argument)
    elif what == "items=":
        model.items[key] = [argument]
    elif what == "short":
        model.short[key] = str(argument), now
    elif what == "row.append":
        model.row.setdefault(key, []).append(argument)
    elif what == "row.pop" and model.row.get(key):
        model.row[key].pop(0)
    elif what == "row.last" and model.row.get(key):
        model.row[key].pop()
    elif what == "row.set" and model.row.get(key):
        model.row[key][-1] = argument
    elif what == "row.clear":
        model.row.pop(key, None)
    elif what == "rows.append":
        model.rows.setdefault(key, []).append({"n": argument})
    elif what == "rows.change" and model.rows.get(key):
        model.rows[key][0]["n"] += argument
    elif what == "brief.append":
        model.brief.setdefault(key, []).append((argument, now))
    elif what == "brief.reverse":
        model.brief[key] = [each for each in model.brief.get(key, []) if now - each[1] < 5][::-1]
    elif what == "map.set":
        model.map.setdefault(key, {})[argument] = step[2]
    elif what == "map.pop":
        model.map.get(key, {}).pop(argument, None)
    elif what == "map.clear":
        model.map.pop(key, None)
    elif what == "maps.change":
        model.maps.setdefault(key, {}).setdefault(argument, []).append(step[2])
    elif what == "passing.set":
        model.passing.setdefault(key, {})[argument] = step[2], now
    elif what == "whole":
        model.whole = argument


@given(CALLS)
@settings(max_examples=200, deadline=None)
def test_only_calls_that_return_change_anything(
    calls: list[tuple[Any, list[tuple[Any, ...]], bool, float]],
) -> None:
    clock, model = Clock(), Model()
    table = StateTable("component 'everything' (task 1)", clock.now)
    states: dict[str, StateHandle] = build.handles(table, Everything)
    met = []
    for key, steps, returns, seconds in calls:
        clock.time += seconds
        plain = canonical(key)
        met.append(key)
        changed = deepcopy(model)
        table.begin(plain)
        table.for_all = True
        for step in steps:
            apply(states, step)
            apply_to_model(changed, plain, step, clock.time)
        if returns:
            table.commit()
            model = changed
        else:
            table.undo()
        table.end()
        for each in met:
            assert contents.read(states, each) == model.read(canonical(each), clock.time)
    expected = {
        key
        for key in map(canonical, met)
        if model.read(key, clock.time) != {**Model().read(key, clock.time), "whole": model.whole}
    }
    assert expected <= set(contents.keys_of(states))


def test_a_slice_of_an_empty_list_can_be_deleted() -> None:
    table = StateTable("component 'every' (task 1)", Clock().now)
    states: dict[str, Any] = build.handles(table, Everything)
    table.begin("a")
    for name in ("row", "brief"):
        del states[name][:2]
        states[name].append(1)
    table.commit()
    assert contents.read(states, "a")["brief"] == contents.read(states, "a")["row"] == [1]
