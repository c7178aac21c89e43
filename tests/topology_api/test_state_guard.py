"""No state can be replaced or deleted, whatever the bolt's class looks like; other attributes can, as in every class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

from local_cluster.testing import run_bolt
from topology_api import (
    Bolt,
    BroadcastState,
    InvalidTopology,
    ListState,
    MapState,
    StateError,
    StatefulBolt,
    Tuple,
    ValueState,
)
from topology_api.core_choice import CHOICE
from topology_api.state import State, states_of


class Counting(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)
    last = ListState(str)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.seen = 1 + getattr(self, "seen", 0)
        self.last += [tup["word"]]  # type: ignore[operator]


class Tracing:
    """A mix-in that notes what is set and deleted."""

    noted: list[str]

    def __setattr__(self, name: str, value: object) -> None:
        vars(self).setdefault("noted", []).append(f"={name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        vars(self).setdefault("noted", []).append(f"-{name}")
        super().__delattr__(name)


class TracingBolt(Tracing, Bolt):
    pass


class TracedFirst(Tracing, Counting):
    pass


class TracedLast(Counting, Tracing):
    pass


class TracedBetween(Counting, TracingBolt):
    pass


class WithSlots(Counting):
    __slots__ = ("extra",)


class Inherits(Counting):
    more = MapState(str, int)


@dataclass
class Data(Counting):
    limit: int = 3


class OwnSetter(Counting):
    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        return 5


ALL = (Counting, TracedFirst, TracedLast, TracedBetween, WithSlots, Inherits, Data, OwnSetter)
KINDS = (State, ValueState, ListState, MapState, BroadcastState)


@pytest.mark.parametrize("kind", ALL)
def test_a_state_can_be_neither_replaced_nor_deleted(kind: type[Counting]) -> None:
    bolt = kind()
    with pytest.raises(StateError) as replaced:
        bolt.times = 5  # type: ignore[assignment]
    assert str(replaced.value) == (
        f"{kind.__name__}: self.times is a ValueState of the class, and cannot be replaced by 5 (int): write "
        "self.times.value = 5 in execute"
    )
    with pytest.raises(StateError, match=r"replaced by None.*: write self\.last\.append\(x\) in execute"):
        bolt.last = None  # type: ignore[assignment]
    with pytest.raises(
        StateError, match=r"self\.times is a ValueState .* cannot be deleted: write self\.times\.clear"
    ):
        del bolt.times
    assert isinstance(bolt.times, ValueState)
    assert bolt.times is kind.times is states_of(kind)["times"]


def test_the_states_of_a_subclass_are_guarded_too() -> None:
    with pytest.raises(
        StateError, match=r"Inherits: self\.more is a MapState .* write self\.more\[key\] = x"
    ):
        Inherits().more = {}  # type: ignore[assignment]


@pytest.mark.parametrize("kind", ALL)
def test_other_attributes_are_set_and_deleted(kind: type[Any]) -> None:
    bolt = kind()
    bolt.extra = 1
    bolt.extra += 1
    assert bolt.extra == 2
    del bolt.extra
    if kind is not OwnSetter:
        assert not hasattr(bolt, "extra")
    with pytest.raises(AttributeError, match="extra"):
        del bolt.extra
    if isinstance(bolt, Tracing):
        assert bolt.noted == ["=extra", "=extra", "-extra", "-extra"]


@pytest.mark.parametrize("kind", ALL)
def test_states_count_whatever_the_class_looks_like(kind: type[Counting]) -> None:
    run = run_bolt(kind(), [("a",), ("a",), ("b",)], source_fields="word")
    assert not run.failed()
    assert run.keys() == ["a", "b"]


class Reuses(Counting):
    """Uses the name of a state for something else, which is its own right."""

    times: Any = None

    @property
    def last(self) -> Any:
        return vars(self).get("kept")

    @last.setter
    def last(self, value: object) -> None:
        vars(self)["kept"] = value


def test_a_name_that_is_no_state_of_this_class_is_free() -> None:
    bolt = Reuses()
    bolt.times = 5
    bolt.last = 6
    assert (bolt.times, bolt.last) == (5, 6)
    del bolt.times
    assert bolt.times is None


class Replaces(StatefulBolt):
    key = "word"

    def execute(self, tup: Tuple) -> None:
        self.added = 5


def test_a_state_that_the_class_got_after_it_was_made_is_guarded_in_a_task() -> None:
    Replaces.added = ValueState(int)  # type: ignore[assignment] # as cloudpickle does; Python does not call __set_name__
    run = run_bolt(Replaces(), [("a",)], source_fields="word")
    assert "self.added is a ValueState of the class, and cannot be replaced by 5" in run.errors[0].render()


@dataclass(frozen=True)
class Frozen(StatefulBolt):
    """Python sets its fields without the bolt's class."""

    key = "word"
    times = ValueState(int, default=0)
    hidden: int | None = None

    def __post_init__(self) -> None:
        if self.hidden is not None:
            object.__setattr__(self, "times", self.hidden)


def test_a_value_that_hides_a_state_is_refused_before_anything_runs() -> None:
    with pytest.raises(
        InvalidTopology, match=r"self\.times = 5 in the constructor hides the state 'times' of the class"
    ):
        run_bolt(Frozen(5), [("a",)], source_fields="word")


@pytest.mark.parametrize(
    "use", [lambda: Counting.times.value, lambda: Counting.last[0], lambda: Counting().times.value]
)
def test_a_declaration_has_no_value(use: Callable[[], object]) -> None:
    with pytest.raises(StateError, match="was used outside a running task"):
        use()


@pytest.mark.parametrize("kind", KINDS)
def test_python_can_specialise_the_reading_of_a_state(kind: type[State]) -> None:
    assert not any(hasattr(kind, name) for name in ("__get__", "__set__", "__delete__"))
    if CHOICE.compiled:
        with pytest.raises(TypeError, match="immutable type"):
            kind.kinds = 3
    assert type(cloudpickle.loads(cloudpickle.dumps(Counting.times))) is ValueState
