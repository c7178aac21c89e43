"""`build()` refuses a stateful bolt whose key, states or groupings cannot work, and names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from topology_api import (
    BatchBolt,
    Bolt,
    BroadcastState,
    Fields,
    InvalidTopology,
    ListState,
    MapState,
    Spout,
    StateError,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from topology_api.epoch_rules import memory_note, state_in_memory


class Source(Spout):
    outputs = {"default": Fields("a", "b"), "rules": Fields("rule")}

    def next_tuple(self) -> None:
        self.finish()


class Good(StatefulBolt):
    key = ("a", "b")
    count = ValueState(int, default=0)
    row = ListState(int)
    items = MapState(str, int)

    def execute(self, tup: Tuple) -> None:
        self.count.value += 1


def problems(bolt: Bolt, group: Any = None) -> list[str]:
    """Return what `build()` says of a bolt, whose input is grouped by `group` (default: by its key)."""
    builder = TopologyBuilder("t")
    builder.set_spout("source", Source())
    declarer = builder.set_bolt("bolt", bolt)
    if group is None:
        declarer.fields_grouping("source", "a", "b")
    else:
        group(declarer)
    try:
        builder.build()
    except InvalidTopology as error:
        return [problem.removeprefix("bolt 'bolt': ") for problem in error.problems]
    return []


def test_a_key_and_its_grouping_are_accepted() -> None:
    assert problems(Good()) == []
    assert (
        problems(
            Good(), lambda to: to.fields_grouping("source", "a", "b").all_grouping("source", stream="rules")
        )
        == []
    )


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (
            lambda to: to.shuffle_grouping("source"),
            "shuffle_grouping('source') sends equal keys to several tasks",
        ),
        (
            lambda to: to.partial_key_grouping("source", "a", "b"),
            "partial_key_grouping('source') sends equal keys",
        ),
        (
            lambda to: to.fields_grouping("source", "b", "a"),
            "groups by ('b', 'a'), but the bolt's key is ('a', 'b')",
        ),
        (lambda to: to.fields_grouping("source", "a"), "groups by ('a'), but the bolt's key is ('a', 'b')"),
        (
            lambda to: to.all_grouping("source"),
            "no input has a key: group one by fields_grouping(source, 'a', 'b')",
        ),
    ],
)
def test_each_input_is_grouped_by_the_key(group: Any, said: str) -> None:
    found = problems(Good(), group)
    assert len(found) == 1
    assert said in found[0]


class Opaque:
    pass


@dataclass
class Holder:
    part: list[Opaque]


def with_states(**states: object) -> StatefulBolt:
    made = type("Made", (Good,), states)
    return made()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"key": ()}, "key is empty: give the names of the fields that are the key"),
        ({"key": 5}, "key is 5 (int): give the names of the fields"),
        ({"key": ("a", "a")}, "key names a field twice"),
        ({"other": ValueState(Opaque)}, "state 'other': the type Opaque cannot be kept by msgspec"),
        ({"other": MapState(str, Holder)}, "state 'other': the type Opaque cannot be kept by msgspec"),
        ({"other": ValueState(int, default="x")}, "state 'other': the default 'x' is no int"),
        ({"timer_after": 5}, "its timer_after is 5 (int), but that is the name of a method of the API"),
    ],
)
def test_keys_states_and_names_are_checked(attributes: dict[str, object], said: str) -> None:
    found = problems(with_states(**attributes))
    assert found
    assert said in found[0]


def test_what_msgspec_cannot_keep_is_pickled_when_asked() -> None:
    assert problems(with_states(other=ValueState(Opaque, pickled=True))) == []


def test_a_stateful_bolt_is_neither_async_nor_a_batch_bolt_nor_without_state() -> None:
    class Async(Good):
        async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
            pass

    class Batch(BatchBolt, Good):
        def execute_batch(self, tups: object) -> None:
            pass

    class Stateless(StatefulBolt):
        key = ("a", "b")

        def execute(self, tup: Tuple) -> None:
            pass

    assert "execute is async, but state belongs to the key of one tuple at a time" in problems(Async())[0]
    assert any("derives from both StatefulBolt and BatchBolt" in each for each in problems(Batch()))
    assert "declares no state" in problems(Stateless())[0]


def test_a_state_that_no_task_would_find_is_refused() -> None:
    class Made(Good):
        def __init__(self) -> None:
            self.other = ValueState(int, default=0)

    class Plain(Bolt):
        count = ValueState(int, default=0)

        def execute(self, tup: Tuple) -> None:
            self.count.value += 1

    assert problems(Made()) == [
        "self.other = ValueState(...) was made in the constructor: declare it in the body of the class, as "
        "`other = ValueState(...)`"
    ]
    assert problems(Plain()) == [
        "declares the state 'count', but is no StatefulBolt: derive it from StatefulBolt, with a key such as `key = 'sensor'`"
    ]
    with pytest.raises(
        StateError, match="a MapState was made outside the body of a class, such as in prepare"
    ):
        MapState(str, int).get("a")


def test_one_declaration_for_two_states_is_refused() -> None:
    both = ValueState(int, default=0)

    class Twice(Good):
        first = both
        second = both

    class Elsewhere(Good):
        third = both

    assert problems(Twice()) == ["the states 'first' and 'second' are one object: declare two"]
    assert problems(Elsewhere()) == ["the states 'first' and 'third' are one object: declare two"]


def test_a_state_is_used_in_a_running_task_only() -> None:
    uses: list[Callable[[], object]] = [
        lambda: Good().count.value,
        lambda: Good().row.append(1),
        lambda: Good().items["a"],
    ]
    for use in uses:
        with pytest.raises(StateError, match=r"the state '\w+' was used outside a running task"):
            use()
    with pytest.raises(StateError, match="the state 'count' was used outside"):
        Good().count.value = 5
    assert isinstance(Good.count, ValueState)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "count",
            5,
            r"self.count is a ValueState of the class, .* by 5 \(int\): write self.count.value = 5 in execute",
        ),
        (
            "rules",
            "x",
            r"self.rules is a BroadcastState .* by 'x' \(str\): write self.rules.value = 'x' in execute",
        ),
        ("row", [1], r"self.row is a ListState .*: write self.row.append\(x\) in execute"),
        ("items", {}, r"self.items is a MapState .*: write self.items\[key\] = x in execute"),
    ],
)
def test_a_state_is_not_replaced_by_an_assignment_or_deleted(name: str, value: object, text: str) -> None:
    class Sums(Good):
        rules = BroadcastState(str)

        def __init__(self, **values: object) -> None:
            for each, new in values.items():
                setattr(self, each, new)

    with pytest.raises(StateError, match=f"^Sums: {text}$"):
        Sums(**{name: value})
    with pytest.raises(StateError, match=rf"^Sums: self.{name} is a .*: write self.{name}.clear\(\)$"):
        delattr(Sums(), name)
    assert vars(Sums(total=7)) == {"total": 7}


def test_state_in_memory_is_named_unless_a_setting_says_that_it_is_meant() -> None:
    keeps: dict[str, dict[str, object]] = {
        "a": {"class": "Words"},
        "b": {"key": ["word"], "states": {}},
        "c": {},
        "d": {"states": {}},
    }
    assert state_in_memory(keeps, {"topology.state.path": None}, {}, {}) == ["b", "d"]
    assert state_in_memory(keeps, {"topology.state.path": "file:///state"}, {}) == []
    assert state_in_memory(keeps, {"topology.state.path": None}, {}, {"topology.state.path": None}) == []
    assert state_in_memory(keeps, {"topology.state.path": None}, {"topology.state.path": "auto"}) == [
        "b",
        "d",
    ]
    assert memory_note(["b", "d"]) == (
        "the state of 'b', 'd' is in memory and ends with its worker: set topology.state.path (docs/state.md); "
        "if that is meant, set it to null in the topology or by -o"
    )


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: ValueState(int, ttl=0), "ValueState: ttl is 0: give a number of seconds, more than 0"),
        (lambda: ListState(int, pickled="no"), "ListState: pickled is 'no': give True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_checks_its_arguments(declare: Any, said: str) -> None:
    with pytest.raises(InvalidTopology, match=said):
        declare()
