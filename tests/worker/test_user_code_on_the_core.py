"""Users see the same of the core whether it is compiled or not: tracebacks, signatures, debuggers, odd errors.

These tests run with either core.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from local_cluster.testing import BoltRun, complete_topology, run_bolt
from topology_api import (
    Bolt,
    EmitError,
    FailTuple,
    Fields,
    Spout,
    Stream,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)

ROOT = Path(__file__).resolve().parents[2]
#: The findings of components, which are pickled by reference, so running instances write here too.
FOUND: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_found() -> None:
    FOUND.clear()


class Asks(Bolt):
    """Calls a function of this module with itself and the tuple, and keeps its result or exception."""

    outputs = {"default": Fields("a"), "straight": Stream(Fields("a"), direct=True)}

    def __init__(self, call: Callable[[Any, Tuple], object]) -> None:
        self.call = call

    def execute(self, tup: Tuple) -> None:
        try:
            FOUND.append(self.call(self, tup))
        except Exception as error:
            FOUND.append(error)


def answer(call: Callable[[Any, Tuple], object]) -> Any:
    """The result or exception of a function that is called in `execute`, with the bolt and a tuple of the values 1 and "x"."""
    run = run_bolt(Asks(call), [(1, "x")], source_fields=("a", "b"))
    assert not run.errors, run.errors[0].render()
    return FOUND[-1]


# Tuples


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_protocol_pickles_a_tuple(protocol: int) -> None:
    error = answer(lambda bolt, tup: pickle.dumps(tup, protocol))
    assert (type(error), str(error)) == (
        TypeError,
        "a Tuple cannot be pickled: keep or emit its values (tup.values)",
    )


@pytest.mark.parametrize(
    "how",
    [copy.copy, copy.deepcopy, lambda tup: copy.deepcopy([tup]), lambda tup: pickle.dumps({"a": [tup]})],
)
def test_a_tuple_cannot_be_copied_either(how: Callable[[Tuple], object]) -> None:
    error = answer(lambda bolt, tup: how(tup))
    assert isinstance(error, TypeError) and "keep or emit its values" in str(error)


def test_a_tuple_cannot_be_subclassed() -> None:
    with pytest.raises(TypeError):
        type("Mine", (Tuple,), {})


def test_a_tuple_cannot_be_created_from_its_class() -> None:
    with pytest.raises(TypeError, match=r"tuples are made by Squall.*run_bolt"):
        Tuple()
    with pytest.raises(TypeError):
        Tuple((1,))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Tuple(values=(1,))  # type: ignore[call-arg]


def test_a_tuple_equals_only_itself() -> None:
    def look(bolt: Any, tup: Tuple) -> object:
        others: list[object] = [tup.values, list(tup), None]
        same = (tup == tup, tup in {tup}, tup in [tup], hash(tup) == object.__hash__(tup))
        return same, [tup == other for other in others], tup != tup, bool(tup)

    assert answer(look) == ((True,) * 4, [False] * 3, False, True)


ATTEMPTS: dict[str, tuple[Callable[[Any], object], type[Exception]]] = {
    "a new attribute": (lambda tup: setattr(tup, "mark", 1), AttributeError),
    "other values": (lambda tup: setattr(tup, "values", (1,)), AttributeError),
    "another stream": (lambda tup: setattr(tup, "stream", "x"), AttributeError),
    "no values": (lambda tup: delattr(tup, "values"), AttributeError),
    "a value by index": (lambda tup: tup.__class__.__setitem__(tup, 0, 1), AttributeError),
    "an order": (lambda tup: tup < tup, TypeError),
    "its attributes": (vars, TypeError),
    "a float as position": (lambda tup: tup[1.5], TypeError),
    "None as position": (lambda tup: tup[None], TypeError),
    "no such position": (lambda tup: tup[2], IndexError),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_missing_attributes_of_a_tuple_raise_as_in_python(name: str) -> None:
    attempt, expected = ATTEMPTS[name]
    assert type(answer(lambda bolt, tup: attempt(tup))) is expected


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    error = answer(lambda bolt, tup: tup["c"])
    assert type(error) is KeyError and error.args == (
        "no field 'c' in a tuple of 'inputs', stream 'default': its fields are a, b",
    )


def test_values_are_found_by_any_equal_name_and_by_position() -> None:
    class Name(str):
        pass

    names = ["a", "".join(["", "a"]), sys.intern("a")]
    assert answer(lambda bolt, tup: [tup[name] for name in names]) == [1, 1, 1]
    assert answer(lambda bolt, tup: (tup[0], tup[-1], tup[:], tup[1:], tup[True])) == (
        1, "x", (1, "x"), ("x",), "x",
    )  # fmt: skip
    assert answer(lambda bolt, tup: (*tup, len(tup), 1 in tup, "y" in tup)) == (1, "x", 2, True, False)
    assert type(answer(lambda bolt, tup: tup[Name("a")])) is TypeError


def test_the_repr_of_a_tuple_has_its_values() -> None:
    assert answer(lambda bolt, tup: (repr(tup), str(tup), f"{tup}")) == (
        ("<Tuple inputs[1] default: a=1, b='x'>",) * 3
    )
    assert answer(lambda bolt, tup: (tup.component, tup.task, tup.stream, tup.fields)) == (
        "inputs", 1, "default", Fields("a", "b"),
    )  # fmt: skip


# Documentation and signatures


def test_tuples_have_documentation() -> None:
    assert (Tuple.__doc__ or "").startswith("One tuple of a stream, as `Bolt.execute` gets it.")
    assert (Tuple.__name__, Tuple.__module__) == ("Tuple", "topology_api.tuples")
    documented = {
        name: getattr(Tuple, name).__doc__ for name in ("values", "fields", "component", "task", "stream")
    }
    assert documented["task"] == "The id of the task that emitted the tuple." and all(documented.values())
    text = pydoc.plain(pydoc.render_doc(Tuple))
    assert "All values, in the order of the stream's fields." in text and "class Tuple" in text


def test_methods_of_a_running_bolt_have_their_signatures_and_documentation() -> None:
    def look(bolt: Any, tup: Tuple) -> object:
        methods = (bolt.emit, bolt.emit_direct, bolt.ack, bolt.fail, bolt.reset_timeout)
        return [(each.__name__, list(inspect.signature(each).parameters)) for each in methods]

    assert answer(look) == [
        ("emit", ["values", "anchors", "stream"]),
        ("emit_direct", ["task", "values", "anchors", "stream"]),
        ("ack", ["tup"]),
        ("fail", ["tup", "reason"]),
        ("reset_timeout", ["tup"]),
    ]
    emit = answer(lambda bolt, tup: inspect.signature(bolt.emit))
    for name, default in (("anchors", None), ("stream", "default")):
        parameter = emit.parameters[name]
        assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, default)
    assert str(inspect.signature(Bolt.emit)).startswith("(self, values: 'Sequence[object]', *, anchors:")
    assert "anchors: one or several input tuples" in (inspect.getdoc(Bolt.emit) or "")


WRONG_CALLS: dict[str, Callable[[Any], object]] = {
    "an unknown option": lambda bolt: bolt.emit((1,), bogus=1),
    "no values": lambda bolt: bolt.emit(),
    "options by position": lambda bolt: bolt.emit((1,), (), "default"),
    "values twice": lambda bolt: bolt.emit((1,), values=(1,)),
    "no tuple": lambda bolt: bolt.ack(),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_call_that_does_not_fit_the_signature_is_a_type_error(name: str) -> None:
    error = answer(lambda bolt, tup: WRONG_CALLS[name](bolt))
    assert type(error) is TypeError, error
    assert ("emit()" in str(error) or "ack()" in str(error)) and (
        name != "an unknown option" or "bogus" in str(error)
    )


def test_a_method_is_bound_and_can_be_kept_and_compared() -> None:
    def look(bolt: Any, tup: Tuple) -> object:
        emit = bolt.emit
        emit((1,))
        return callable(emit), inspect.isroutine(emit), emit == bolt.emit, "emit" in repr(emit)

    assert answer(look) == (True, True, True, True)


# Subclasses


class Overrides(Bolt):
    """Emits more than it was asked to, and acks by its own methods."""

    outputs = Fields("a")
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["a"],))
        if tup["a"] < 3:
            self.ack(tup)
        else:
            self.fail(tup)

    def emit(self, values: Sequence[object], **options: Any) -> None:
        super().emit(values, **options)
        super().emit(("again",), **options)

    def ack(self, tup: Tuple) -> None:
        FOUND.append(tup["a"])
        super().ack(tup)

    def fail(self, tup: Tuple, reason: str | FailTuple | None = None) -> None:
        super().fail(tup, reason or "my reason")


def test_a_bolt_may_override_emit_and_ack_and_call_squalls_by_super() -> None:
    run = run_bolt(Overrides(), [(1,), (2,), (3,)], source_fields="a")
    assert run.emitted() == [(1,), ("again",), (2,), ("again",), (3,), ("again",)]
    assert FOUND == [1, 2] and run.acked() == [(1,), (2,)]
    assert [failure.error for _, failure in run.failed()] == ["my reason"] and not run.errors


class CountsItsEmissions(Spout):
    outputs = Fields("a")

    def open(self, context: object) -> None:
        self.emissions = 0

    def next_tuple(self) -> None:
        if self.emissions == 5:
            self.finish()
        else:
            self.emit((self.emissions,))

    def emit(self, values: Sequence[object], **options: Any) -> None:
        self.emissions += 1
        super().emit(values, message_id=self.emissions, **options)

    def ack(self, message_id: object) -> None:
        FOUND.append(message_id)


def test_a_spout_may_override_emit_and_call_ours_by_super() -> None:
    builder = TopologyBuilder("overriding")
    builder.set_spout("source", CountsItsEmissions())
    builder.set_bolt("sink", Asks(lambda bolt, tup: "seen")).shuffle_grouping("source")
    done = complete_topology(builder.build())
    assert done.acked("source") == [1, 2, 3, 4, 5]
    assert sorted(map(str, FOUND)) == ["1", "2", "3", "4", "5"] + ["seen"] * 5


# Errors


def raised_below(bolt: Any, tup: Tuple) -> None:
    values = {"text": "no number"}
    int(values["text"])  # the line


class Raises(Bolt):
    outputs = Fields("a")

    def __init__(self, call: Callable[[Any, Tuple], object]) -> None:
        self.call = call

    def execute(self, tup: Tuple) -> Any:
        if tup["a"] == 2:
            return self.call(self, tup)
        self.emit((tup["a"],))
        return None


def raising(call: Callable[[Any, Tuple], object]) -> BoltRun:
    """Three tuples, of which the second one calls it."""
    return run_bolt(Raises(call), [(1,), (2,), (3,)], source_fields="a")


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def test_an_error_has_the_users_frames_and_lines() -> None:
    run = raising(raised_below)
    (report,) = run.errors
    here = __file__
    assert report.text == "ValueError: invalid literal for int() with base 10: 'no number'"
    assert report.place == f"{here}:{line_of(raised_below, '# the line')}, in raised_below"
    assert report.frames == (
        f'File "{here}", line {line_of(Raises.execute, "self.call(self")}, in execute',
        "  return self.call(self, tup)",
        f'File "{here}", line {line_of(raised_below, "# the line")}, in raised_below',
        '  int(values["text"])  # the line',
    )
    assert report.tuple_text == "<Tuple inputs[1] default: a=2>"
    assert run.emitted() == [(1,), (3,)] and run.acked() == [(1,), (3,)]


def test_a_traceback_printed_by_the_user_ends_in_our_refusal() -> None:
    def look(bolt: Any, tup: Tuple) -> object:
        try:
            bolt.emit("text")
        except EmitError as error:
            return traceback.format_exc(), error.__context__, error.__cause__
        return None

    text, context, cause = answer(look)
    lines = text.splitlines()
    assert lines[1].endswith(f", line {line_of(look, 'bolt.emit(')}, in look")
    assert lines[-1].startswith(
        "topology_api.errors.EmitError: component 'bolt' (task 2): emit() takes a tuple or list"
    )
    assert (context, cause) == (None, None)


def endless(bolt: Any, tup: Tuple) -> None:
    endless(bolt, tup)


def out_of_memory(bolt: Any, tup: Tuple) -> None:
    bytearray(sys.maxsize)


def made_by_hand(bolt: Any, tup: Tuple) -> None:
    raise MemoryError("made by hand")


def test_exceeding_depth_fails_one_tuple() -> None:
    run = raising(endless)
    [report] = run.errors
    assert report.text.startswith("RecursionError: maximum recursion depth exceeded")
    assert report.place.endswith("in endless")
    assert run.emitted() == [(1,), (3,)] and [given for given, _ in run.failed()] == [(2,)]


@pytest.mark.parametrize("call", [out_of_memory, made_by_hand])
def test_a_lack_of_memory_ends_the_topology_and_the_users_process_lives(
    call: Callable[[Any, Tuple], object],
) -> None:
    with pytest.raises(TopologyFailed, match=rf"execute\(\) raised MemoryError(?s:.)*in {call.__name__}"):
        raising(call)


class RaisesAndEnds(Bolt):
    """Fails the first tuple, and has no memory for the second one."""

    def execute(self, tup: Tuple) -> None:
        if tup["a"] == 1:
            raise ValueError("an ordinary error")
        raise MemoryError("made by hand")


def test_a_lack_of_memory_is_the_reason_and_not_an_error_before_it() -> None:
    with pytest.raises(TopologyFailed) as failed:
        run_bolt(RaisesAndEnds(), [(1,), (2,), (3,)], source_fields="a")
    assert "execute() raised MemoryError: made by hand" in str(failed.value)
    assert "an ordinary error" not in str(failed.value)


def interrupts(bolt: Any, tup: Tuple) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_the_callers_own_thread_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        raising(interrupts)


# Generators and coroutines


class Awaits(Bolt):
    """Emits before and after a wait, and raises at 2."""

    outputs = Fields("a")

    async def execute(self, tup: Tuple) -> None:
        import asyncio

        self.emit((tup["a"],))
        await asyncio.sleep(0.1)
        if tup["a"] == 2:
            raised_below(self, tup)
        self.emit((-tup["a"],))


def test_a_coroutine_emits_and_raises_where_the_user_wrote_it() -> None:
    run = run_bolt(Awaits(), [(1,), (2,), (3,)], source_fields="a")
    assert sorted(run.emitted()) == [(-3,), (-1,), (1,), (2,), (3,)]
    assert sorted(run.acked()) == [(1,), (3,)]
    assert run.errors[0].place.endswith(f":{line_of(raised_below, '# the line')}, in raised_below")


# Debuggers and tracers


def traced(bolt: Any, tup: Tuple) -> None:
    number = tup["a"]
    bolt.emit((number,))
    number += 1


def test_a_tracer_sees_each_line_of_user_code() -> None:
    lines: list[int] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is traced.__code__ and event == "line":
            lines.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run = raising(traced)
    finally:
        sys.settrace(before)
    first = traced.__code__.co_firstlineno
    assert lines == [first + 1, first + 2, first + 3] and run.emitted() == [(1,), (2,), (3,)]


def test_a_profiler_sees_each_call_of_user_code() -> None:
    calls: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename == __file__ and event in ("call", "return"):
            calls.append(f"{event} {frame.f_code.co_name}")

    sys.setprofile(profile)
    try:
        raising(traced)
    finally:
        sys.setprofile(None)
    executes = ["call execute", "return execute"]
    inner = ["call execute", "call traced", "return traced", "return execute"]
    assert [each for each in calls if each.split()[1] in ("execute", "traced")] == executes + inner + executes
