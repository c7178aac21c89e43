"""Reads a user's spout, bolt or grouping instance: its kind, its output streams, its attributes and methods.

Problems are returned as texts that do not name the component; the caller adds the component's id. An attribute may be a
property that the user wrote (the API allows this), so any error in reading an attribute is caught.
Must not know: the graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from topology_api.components import BatchBolt, Bolt, Spout
from topology_api.fields import DEFAULT_STREAM, Fields, Stream
from topology_api.groupings import Grouping
from topology_api.rewindable import RewindableSpout
from topology_api.state_rules import misplaced_states, stateful_problems
from topology_api.stateful import StatefulBolt
from topology_api.topology import DEAD_LETTERS, StreamSpec
from topology_api.values import MAX_SECONDS, Replay, number_problem
from topology_api.wording import shown, typed

# Methods that users call, so their components cannot define them.
_SPOUT_OWN = ("emit", "emit_direct", "emit_many", "finish")
_BOLT_OWN = ("emit", "emit_direct", "ack", "fail", "reset_timeout")
_STATEFUL_OWN = ("timer_after", "cancel_timer")


def _calls_of(base: type, own: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each method of a base class that the runtime calls: all methods except `own`, which users
    call."""
    return {
        name: tuple(inspect.signature(method).parameters)[1:]
        for name, method in vars(base).items()
        if inspect.isfunction(method) and name not in own
    }


_SPOUT_CALLS = _calls_of(Spout, _SPOUT_OWN)
_REWINDABLE_CALLS = {**_SPOUT_CALLS, **_calls_of(RewindableSpout)}
_BOLT_CALLS = _calls_of(Bolt, _BOLT_OWN)
_STATEFUL_CALLS = {**_BOLT_CALLS, **_calls_of(StatefulBolt, _STATEFUL_OWN)}

_BASES = (Spout, RewindableSpout, Bolt, BatchBolt, StatefulBolt, Grouping)
_MOST_AT_A_TIME = 65_535  # calls of an async execute
_LARGEST_BATCH = 10_000_000  # tuples; they are kept in memory until the batch is done
_Missing = object()


def kind_problem(kind: str, component: object) -> str | None:
    """Return why the type of an object keeps it from being a spout (or a bolt), or None."""
    base, other = (Spout, Bolt) if kind == "spout" else (Bolt, Spout)
    if isinstance(component, type):
        return f"got the class {component.__name__}: give an instance, {component.__name__}(...)"
    name = type(component).__name__
    if isinstance(component, Spout) and isinstance(component, Bolt):
        return f"{name} derives from both Spout and Bolt: it must be one of them"
    if isinstance(component, other):
        return f"{name} is a {other.__name__}: give it to set_{other.__name__.lower()}"
    if not isinstance(component, base):
        return (
            f"{typed(component)} is not a {base.__name__}: derive its class from topology_api.{base.__name__}"
        )
    return None


def _read(component: object, name: str, problems: list[str]) -> Any:
    try:
        return getattr(component, name)
    except Exception as error:  # a user's property
        problems.append(f"reading its {name} raised {type(error).__name__}: {error}")
        return _Missing


def output_streams(component: object) -> tuple[dict[str, StreamSpec] | None, list[str]]:
    """Return the output streams of a spout or bolt (None: unknown) and the problems of their form.

    Names of streams and fields are checked later, with the whole topology.
    """
    problems: list[str] = []
    if (outputs := _read(component, "outputs", problems)) is _Missing:
        return None, problems
    if not isinstance(outputs, Mapping):
        outputs = {DEFAULT_STREAM: outputs}
    streams: dict[str, StreamSpec] = {}
    for name, value in outputs.items():
        if not isinstance(name, str):
            problems.append(f"outputs has the stream name {typed(name)}: give a str")
        elif name == DEAD_LETTERS:
            problems.append(
                f"outputs has the stream {name!r}, which is reserved: a bolt gets it by dead_letters(spout)"
            )
        else:
            spec, problem = _stream_spec(value)
            if problem is not None:
                problems.append(f"outputs, stream {name!r}: {problem}")
            elif spec is not None:
                streams[name] = spec
    return (None if problems else streams), problems


def _stream_spec(value: object) -> tuple[StreamSpec | None, str | None]:
    direct: object = False
    if isinstance(value, Stream):
        direct, value = value.direct, value.fields
    if not isinstance(direct, bool):
        return None, f"direct is {typed(direct)}: give True or False"
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        order = " (a set has no order)" if isinstance(value, (set, frozenset)) else ""
        return None, f"{typed(value)} is not Fields, a Stream, a string or a sequence of strings{order}"
    if wrong := [name for name in value if not isinstance(name, str)]:
        return None, f"the field name {typed(wrong[0])} is not a str"
    return StreamSpec(tuple(value), direct), None


def component_problems(component: Spout | Bolt) -> list[str]:
    """Return the problems of the methods and attributes of a spout or bolt whose type has been checked already."""
    problems = [*misplaced_states(component)]
    if isinstance(component, RewindableSpout):
        required = ("next_tuple", "position", "rewind")
        _check_methods(component, _REWINDABLE_CALLS, _SPOUT_OWN, required, problems)
        _check_spout(component, problems)
    elif isinstance(component, Spout):
        _check_methods(component, _SPOUT_CALLS, _SPOUT_OWN, ("next_tuple",), problems)
        _check_spout(component, problems)
    elif isinstance(component, BatchBolt):
        calls = {**_BOLT_CALLS, **_calls_of(BatchBolt)}
        del calls["execute"]
        _check_methods(component, calls, _BOLT_OWN, ("execute_batch",), problems)
        _check_bolt(component, problems)
        _check_batch_bolt(component, problems)
    elif isinstance(component, StatefulBolt):
        _check_methods(component, _STATEFUL_CALLS, (*_BOLT_OWN, *_STATEFUL_OWN), ("execute",), problems)
        _check_bolt(component, problems)
    else:
        _check_methods(component, _BOLT_CALLS, _BOLT_OWN, ("execute",), problems)
        _check_bolt(component, problems)
    if isinstance(component, StatefulBolt):
        problems += stateful_problems(component)
    for name in vars(component):
        if name.startswith("_squall_"):
            problems.append(f"has the attribute {name}: names that begin with _squall_ are reserved")
    return problems


def bolts_own_problems(
    bolt: Bolt, inputs: Mapping[tuple[str, str], Fields], earlier: Mapping[str, Bolt]
) -> list[str]:
    """Return the problems that a bolt itself finds in its input streams and in the bolts declared before it."""
    problems: list[str] = []
    for name, argument in (("input_problems", inputs), ("topology_problems", earlier)):
        try:
            said = getattr(bolt, name)(argument)
            problems += [str(problem) for problem in ((said,) if isinstance(said, str) else said)]
        except Exception as error:  # user code
            problems.append(f"its {name}() raised {type(error).__name__}: {error}")
    return problems


def grouping_problems(grouping: object) -> list[str]:
    """Return the problems of a custom grouping."""
    if isinstance(grouping, type):
        return [f"got the class {grouping.__name__}: give an instance, {grouping.__name__}(...)"]
    if not isinstance(grouping, Grouping):
        return [f"{typed(grouping)} is not a Grouping: derive its class from topology_api.Grouping"]
    problems: list[str] = []
    _check_methods(grouping, _calls_of(Grouping), (), ("choose",), problems)
    return problems


def _base_method(component: object, name: str) -> object:
    """Return the method of Squall's base class if the component's class does not override it, else None."""
    for cls in type(component).__mro__:
        if name in vars(cls):
            # not `in`: a metaclass may have its own ==
            ours = any(cls is base for base in _BASES)
            return vars(cls)[name] if ours else None
    return None


def _check_methods(
    component: object,
    calls: Mapping[str, tuple[str, ...]],
    own: tuple[str, ...],
    required: tuple[str, ...],
    problems: list[str],
) -> None:
    instance = vars(component)
    for name in (*calls, *own):
        if name not in instance and _base_method(component, name) is not None:
            if name in required:
                kind = type(component).__name__
                problems.append(f"{kind} has no {name}({', '.join(calls[name])}): it must have one")
            continue
        if (method := _read(component, name, problems)) is _Missing:
            continue
        if not callable(method):
            problems.append(
                f"its {name} is {typed(method)}, but that is the name of a method of the API: rename it"
            )
        elif name in calls:
            _check_call(component, name, method, calls[name], problems)


def _check_call(
    component: object, name: str, method: Callable[..., Any], arguments: tuple[str, ...], problems: list[str]
) -> None:
    if name in (
        "input_problems",
        "topology_problems",
        "guarantee_conditions",
    ) and inspect.isgeneratorfunction(method):
        pass  # the builder iterates over the result
    elif inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        problems.append(f"{name} contains yield, so calling it would do nothing: emit with self.emit(...)")
    elif inspect.iscoroutinefunction(method) and name != "execute":
        in_task = isinstance(component, (Spout, Bolt))
        instead = "use threaded = True for code that blocks" if in_task else "make it def"
        problems.append(f"{name} is async: only a bolt's execute may be; {instead}")
    try:
        signature = inspect.signature(method, follow_wrapped=False)  # a wrapper may supply arguments
    except (TypeError, ValueError):
        return  # a callable without a signature, such as one written in C
    try:
        signature.bind(*arguments)
    except TypeError as error:
        problems.append(f"{name}{signature} cannot be called with ({', '.join(arguments)}): {error}")


def _check_flag(component: object, name: str, problems: list[str]) -> None:
    if (value := _read(component, name, problems)) is not _Missing and not isinstance(value, bool):
        problems.append(f"{name} is {typed(value)}: give True or False")


def _check_whole(component: object, name: str, high: int, problems: list[str]) -> None:
    value = _read(component, name, problems)
    if value is not _Missing and (type(value) is not int or not 1 <= value <= high):
        problems.append(f"{name} is {typed(value)}: give an int from 1 to {high}")


def _check_seconds(component: object, name: str, problems: list[str], *, optional: bool = False) -> None:
    if (value := _read(component, name, problems)) is _Missing or (optional and value is None):
        return
    if problem := number_problem(value, 0, MAX_SECONDS, "seconds", above=True):
        problems.append(f"{name} {problem}{', or None' if optional else ''}")


def _check_spout(spout: Spout, problems: list[str]) -> None:
    _check_flag(spout, "threaded", problems)
    replay = _read(spout, "replay", problems)
    if replay is _Missing or replay is None or isinstance(replay, Replay):
        return
    hint = " (an instance, not the class)" if replay is Replay else ""
    problems.append(f"replay is {shown(replay)}: give a Replay(...){hint} or None")


def _check_bolt(bolt: Bolt, problems: list[str]) -> None:
    for name in ("threaded", "auto_anchor", "auto_ack"):
        _check_flag(bolt, name, problems)
    _check_whole(bolt, "max_concurrency", _MOST_AT_A_TIME, problems)
    _check_seconds(bolt, "tick_interval", problems, optional=True)
    if inspect.iscoroutinefunction(_read(bolt, "execute", [])) and _read(bolt, "threaded", []) is True:
        problems.append(
            "execute is async and threaded is True: a task runs on the asyncio loop or in a thread, not both"
        )


def _check_batch_bolt(bolt: BatchBolt, problems: list[str]) -> None:
    if "execute" in vars(bolt) or _base_method(bolt, "execute") is None:
        problems.append(
            "a BatchBolt gets batches only: write execute_batch, or derive from Bolt to have execute"
        )
    _check_whole(bolt, "batch_size", _LARGEST_BATCH, problems)
    _check_seconds(bolt, "batch_interval", problems)
