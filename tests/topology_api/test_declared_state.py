"""What stands for a declaration in a class whose tasks run does as the declaration does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from topology_api import StatefulBolt, StateError, ValueState
from topology_api.core_choice import CHOICE
from topology_api.declared_state import DeclaredState, declaration_of
from topology_api.state import State, states_of
from worker.state import build
from worker.state.table import StateTable


def new_class() -> type[StatefulBolt]:
    class Counts(StatefulBolt):
        key = "word"
        times = ValueState(int, default=3)

    return Counts


def test_the_first_task_lets_a_class_have_what_python_finds_fast() -> None:
    bolt = new_class()
    declared = vars(bolt)["times"]
    handles = build.handles(StateTable("counts[0]", lambda: 0.0), bolt)
    assert list(handles) == ["times"]
    stands = vars(bolt)["times"]
    assert isinstance(stands, ValueState)
    assert states_of(bolt) == {"times": declared}, "the declaration itself"
    if CHOICE.compiled:
        with pytest.raises(TypeError, match="immutable"):
            type(stands).anything = 1  # type: ignore[attr-defined]
    else:
        assert stands is declared
    build.handles(StateTable("counts[1]", lambda: 0.0), bolt)
    assert vars(bolt)["times"] is stands, "once for all tasks"


def set_value(state: Any) -> None:
    state.value = 1


def set_item(state: Any) -> None:
    state["a"] = 1


def delete_item(state: Any) -> None:
    del state["a"]


USES: list[Callable[[Any], Any]] = [
    lambda state: state.value,
    lambda state: state.append(1),
    lambda state: state["a"],
    lambda state: "a" in state,
    iter,
    len,
    bool,
    set_value,
    set_item,
    delete_item,
]


@pytest.mark.parametrize("use", USES)
def test_a_use_outside_a_task_raises_the_same_error(use: Callable[[Any], Any]) -> None:
    state = vars(new_class())["times"]
    with pytest.raises(StateError) as of_declaration:
        use(state)
    with pytest.raises(StateError) as of_other:
        use(DeclaredState(state))
    assert str(of_other.value) == str(of_declaration.value)


def test_it_says_what_the_declaration_says_and_travels_as_it() -> None:
    state = vars(new_class())["times"]
    stands: Any = DeclaredState(state)
    assert (stands.name, stands.types, stands.default, repr(stands)) == ("times", (int,), 3, repr(state))
    assert isinstance(stands, State) and declaration_of(stands) is state and declaration_of(state) is state
    for protocol in (2, 5):
        assert pickle.dumps(stands, protocol) == pickle.dumps(state, protocol)


def test_a_class_may_use_the_declaration_of_another_one() -> None:
    first = new_class()
    build.handles(StateTable("counts[0]", lambda: 0.0), first)

    class Second(StatefulBolt):
        key = "word"
        times = vars(first)["times"]

    assert list(build.handles(StateTable("second[0]", lambda: 0.0), Second)) == ["times"]
