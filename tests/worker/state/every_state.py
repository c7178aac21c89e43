"""A bolt with one state of each kind, and random calls of it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from topology_api import BroadcastState, ListState, MapState, StatefulBolt, ValueState


class Everything(StatefulBolt):
    """One state of each kind, of immutable and of mutable types, with and without a ttl."""

    key = "k"
    value = ValueState(int, default=0)
    items = ValueState(list[int], default=[])
    short = ValueState(str, ttl=5)
    row = ListState(int)
    rows = ListState(dict[str, int])
    brief = ListState(int, ttl=5)
    map = MapState(str, int)
    maps = MapState(str, list[int])
    passing = MapState(str, int, ttl=5)
    whole = BroadcastState(int, default=0)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(-3, 3)
#: The steps of each state.
FAMILIES = {
    "value": (
        st.tuples(st.just("value"), NUMBERS),
        st.tuples(st.just("value.clear"), NUMBERS),
    ),
    "items": (
        st.tuples(st.just("items.append"), NUMBERS),
        st.tuples(st.just("items="), NUMBERS),
    ),
    "short": (st.tuples(st.just("short"), NUMBERS),),
    "row": (
        st.tuples(st.just("row.append"), NUMBERS),
        st.tuples(st.just("row.pop"), NUMBERS),
        st.tuples(st.just("row.last"), NUMBERS),
        st.tuples(st.just("row.set"), NUMBERS),
        st.tuples(st.just("row.clear"), NUMBERS),
    ),
    "rows": (
        st.tuples(st.just("rows.append"), NUMBERS),
        st.tuples(st.just("rows.change"), NUMBERS),
    ),
    "brief": (
        st.tuples(st.just("brief.append"), NUMBERS),
        st.tuples(st.just("brief.reverse"), NUMBERS),
    ),
    "map": (
        st.tuples(st.just("map.set"), NAMES, NUMBERS),
        st.tuples(st.just("map.pop"), NAMES),
        st.tuples(st.just("map.clear"), NAMES),
    ),
    "maps": (st.tuples(st.just("maps.change"), NAMES, NUMBERS),),
    "passing": (
        st.tuples(st.just("passing.set"), NAMES, NUMBERS),
        st.tuples(st.just("passing.get"), NAMES),
    ),
    "whole": (st.tuples(st.just("whole"), NUMBERS),),
}
STEPS = st.one_of([step for family in FAMILIES.values() for step in family])
KEYS = st.sampled_from(["x", 1, (1, "y"), float("nan"), [1]])
CALLS = st.lists(
    st.tuples(KEYS, st.lists(STEPS, max_size=6), st.booleans(), st.sampled_from([0.0, 1.0, 3.0])), max_size=12
)


def apply(states: dict[str, Any], step: tuple[Any, ...]) -> None:
    """Do one step on the handles, as user code does it."""
    what, argument = step[0], step[1]
    if what == "value":
        states["value"].value += argument
    elif what == "value.clear":
        states["value"].clear()
    elif what == "items.append":
        states["items"].value.append(argument)
    elif what == "items=":
        states["items"].value = [argument]
    elif what == "short":
        states["short"].value = str(argument)
    elif what == "row.append":
        states["row"].append(argument)
    elif what == "row.pop" and states["row"]:
        states["row"].pop(0)
    elif what == "row.last" and states["row"]:
        del states["row"][-1]
    elif what == "row.set" and states["row"]:
        states["row"][-1] = argument
    elif what == "row.clear":
        states["row"].clear()
    elif what == "rows.append":
        states["rows"].append({"n": argument})
    elif what == "rows.change" and states["rows"]:
        states["rows"][0]["n"] += argument
    elif what == "brief.append":
        states["brief"].append(argument)
    elif what == "brief.reverse":
        states["brief"].reverse()
    elif what == "map.set":
        states["map"][argument] = step[2]
    elif what == "map.pop":
        states["map"].pop(argument, None)
    elif what == "map.clear":
        states["map"].clear()
    elif what == "maps.change":
        states["maps"].setdefault(argument, []).append(step[2])
    elif what == "passing.set":
        states["passing"][argument] = step[2]
    elif what == "passing.get":
        states["passing"].get(argument)
    elif what == "whole":
        states["whole"].value = argument
