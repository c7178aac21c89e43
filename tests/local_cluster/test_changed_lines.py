"""An error about a value that is changed behind its state names the line that changes it, and no other."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster.changed_lines import ChangedLines, is_of_user
from local_cluster.testing import Pause, ScriptedSpout, complete_topology, run_bolt
from topology_api import StateError, StatefulBolt, TopologyBuilder, Tuple, ValueState


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Tests run without a debugger or coverage, which would hide the lines."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def append(numbers: list[int]) -> int:
    numbers.append(1)  # in a function
    return 0


def count(numbers: list[int]) -> Iterator[int]:
    yield 1
    numbers.append(1)  # in a generator
    yield 2


class Keeps(StatefulBolt):
    """Keeps a list outside of its state, and changes it in the way that a tuple says."""

    key = "how"
    numbers = ValueState(list[int], default=[])

    def execute(self, tup: Tuple) -> None:
        how, own = tup["how"], [0]
        if how == "read":
            self.kept = self.numbers.value
            self.kept += [3, 2, 1]
        elif how == "here":
            own.append(1)
            self.kept.append(1)  # here
            self.kept.append(2)
        elif how == "item":
            self.kept[0] = 7  # item
        elif how == "function":
            own.append(append(self.kept))
            own.append(2)
        elif how == "after a function":
            self.kept.append(len(own))  # after a function
        elif how == "generator":
            own += count(self.kept)
        elif how == "library":
            random.Random(7).shuffle(self.kept)  # library
        elif how == "raises":
            self.kept.append(1)
            raise ValueError("nothing is kept")
        elif how == "own":
            self.numbers.value.append(1)
            self.kept.append(1)  # own
        elif how == "timer":
            self.timer_after(1, name="later")

    def on_timer(self, name: str, at: float) -> None:
        self.kept.append(1)  # timer


def line_of(comment: str) -> int:
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"  # {comment}"))


def error_of(*hows: str) -> str:
    with pytest.raises(StateError) as found:
        run_bolt(Keeps(), [(how,) for how in hows], source_fields="how")
    return str(found.value)


@pytest.mark.parametrize(
    ("how", "comment"),
    [
        ("here", "here"),
        ("item", "item"),
        ("function", "in a function"),
        ("after a function", "after a function"),
        ("generator", "in a generator"),
        ("library", "library"),
        ("own", "own"),
    ],
)
def test_the_line_that_changes_a_value_behind_its_state_is_named(how: str, comment: str) -> None:
    error = error_of("read", how)
    line = line_of(comment)
    assert f"state 'numbers', key 'read', in place, in line {line} of {__file__} (" in error
    assert f"# {comment}), without reading it from self.numbers" in error


def test_the_line_of_a_timer_is_named() -> None:
    with pytest.raises(
        StateError, match=rf"on_timer\(\) changed .*, in line {line_of('timer')} of {__file__}"
    ):
        run_bolt(Keeps(), [("read",), ("timer",), Pause(2)], source_fields="how")


@pytest.mark.parametrize("path", [None, "file://{}/state"])
def test_the_line_is_named_in_a_topology_with_and_without_epochs(path: str | None, tmp_path: Path) -> None:
    builder = TopologyBuilder("keeps")
    builder.set_spout("hows", ScriptedSpout("how", [("read",), ("here",)]))
    builder.set_bolt("keeps", Keeps()).fields_grouping("hows", "how")
    conf = {"topology.state.path": path and path.format(tmp_path)}
    with pytest.raises(StateError, match=rf"execute\(\) changed .*, in line {line_of('here')} of {__file__}"):
        complete_topology(builder.build(), conf=conf)


def test_no_line_of_a_later_call_is_named_for_a_change_of_one_that_raised() -> None:
    error = error_of("read", "raises", "nothing")
    assert "key 'read', in place, without reading it" in error


def test_a_test_that_is_traced_already_is_left_alone_and_the_error_says_why_the_line_is_missing() -> None:
    traced: list[str] = []

    def tracer(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_name == "execute" and frame.f_code.co_filename == __file__:
            traced.append(event)
            return tracer
        return tracer

    sys.settrace(tracer)
    try:
        error = error_of("read", "here")
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert "call" in traced
    assert (
        "in place (its line is not known, since a debugger or a coverage tool traces this test), without"
        in error
    )


def test_comparisons_end_after_a_bounded_number() -> None:
    values = {"a": [1, 2]}
    lines = ChangedLines[str]({"a": b"[1, 2]"}, lambda place: repr(values[place]).encode(), left=5)

    def call() -> None:
        for _ in range(100):
            pass
        values["a"].append(3)

    lines.run(call)
    assert lines.left <= 0 and lines.text("a") == ""
    lines.run(call)
    assert "too many calls or too large values" in lines.text("a")
    assert sys.gettrace() is None


def test_code_of_the_user_is_distinguished_from_libraries() -> None:
    assert is_of_user(__file__) and is_of_user("<stdin>")
    assert not is_of_user(random.__file__) and not is_of_user("<frozen importlib._bootstrap>")
    assert not is_of_user(inspect.getfile(ChangedLines)) and is_of_user(pytest.__file__)
