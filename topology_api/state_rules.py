"""The rules for a StatefulBolt: its key, its states, and the groupings of its inputs. Returns problems as texts.

msgspec is imported on first use, so that `import topology_api` stays quick. Must not know: the graph, how state is kept.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from topology_api.components import BatchBolt
from topology_api.state import State, states_of
from topology_api.stateful import StatefulBolt, key_fields
from topology_api.topology import Subscription
from topology_api.wording import listed, shown, typed


def stateful_problems(bolt: StatefulBolt) -> Iterator[str]:
    """Yield the problems of a stateful bolt itself."""
    yield from _key_problems(bolt)
    if isinstance(bolt, BatchBolt):
        yield "derives from both StatefulBolt and BatchBolt: state belongs to the key of one tuple, so derive from one of them"
    if inspect.iscoroutinefunction(getattr(bolt, "execute", None)):
        yield (
            "execute is async, but state belongs to the key of one tuple at a time: make it def, with threaded = True if"
            " it blocks"
        )
    states = states_of(type(bolt))
    if not states and not _made_by_constructor(bolt):
        yield "declares no state: give its class one, such as `count = ValueState(int, default=0)`, or derive from Bolt"
    for name, state in states.items():
        if state.name not in ("", name):
            yield f"the states {state.name!r} and {name!r} are one object: declare two"
        yield from (f"state {name!r}: {problem}" for problem in _state_problems(state))
    for name, value in vars(bolt).items():
        if name in states and not isinstance(value, State):
            yield (
                f"self.{name} = {shown(value)} in the constructor hides the state {name!r} of the class: give one of them "
                "another name"
            )


def misplaced_states(component: object) -> Iterator[str]:
    """Yield the problems of states where no task would find them: in an object, or in a class that has no key."""
    for name, state in _made_by_constructor(component).items():
        yield (
            f"self.{name} = {type(state).__name__}(...) was made in the constructor: declare it in the body of the class, as "
            f"`{name} = {type(state).__name__}(...)`"
        )
    states = states_of(type(component))
    if states and not isinstance(component, StatefulBolt):
        yield (
            f"declares the state {next(iter(states))!r}, but is no StatefulBolt: derive it from StatefulBolt, with a key such "
            "as `key = 'sensor'`"
        )


def _made_by_constructor(component: object) -> dict[str, State]:
    attributes = getattr(component, "__dict__", {})
    return {name: value for name, value in attributes.items() if isinstance(value, State)}


def _key_problems(bolt: StatefulBolt) -> Iterator[str]:
    key: Any = bolt.key
    if not isinstance(key, (str, tuple, list)) or not all(isinstance(name, str) for name in key):
        yield f"key is {typed(key)}: give the names of the fields that are the key, such as ('sensor',)"
    elif not key:
        yield "key is empty: give the names of the fields that are the key, such as ('sensor',)"
    elif len(set(key_fields(bolt))) < len(key_fields(bolt)):
        yield f"key names a field twice: {listed(key_fields(bolt))}"


def _state_problems(state: State) -> Iterator[str]:
    if state.pickled:
        return
    for kind in state.types:
        if problem := type_problem(kind):
            yield problem
            return
    if state.default is not None:
        import msgspec

        try:
            msgspec.msgpack.decode(msgspec.msgpack.encode(state.default), type=state.types[0])
        except Exception as error:
            yield f"the default {shown(state.default)} is no {name_of(state.types[0])}: {error}"


def input_problems(bolt: StatefulBolt, inputs: Sequence[Subscription]) -> Iterator[str]:
    """Yield the problems of the groupings of a stateful bolt's inputs."""
    if any(_key_problems(bolt)):
        return
    key = key_fields(bolt)
    names = ", ".join(map(repr, key))
    for entry in inputs:
        grouping = entry.grouping
        where = f"{grouping.kind}_grouping({entry.source!r})"
        if grouping.kind == "fields" and grouping.fields == key:
            continue
        if grouping.kind == "all":
            continue
        if grouping.kind == "fields":
            found = ", ".join(map(repr, grouping.fields))
            yield f"{where} groups by ({found}), but the bolt's key is ({names}): group by the key, in its order"
        else:
            yield (
                f"{where} sends equal keys to several tasks, but each key's state is in one task: use "
                f"fields_grouping({entry.source!r}, {names}), or all_grouping for what all tasks must know"
            )
    if inputs and all(entry.grouping.kind == "all" for entry in inputs):
        yield f"no input has a key: group one by fields_grouping(source, {names})"


def type_problem(kind: Any) -> str | None:
    """Return why msgspec cannot keep the values of a type, or None."""
    import msgspec

    hint = "declare the state with pickled=True, or make it a dataclass or a msgspec.Struct"
    try:
        msgspec.msgpack.Decoder(kind)
        unknown = _unknown_in(msgspec.inspect.type_info(kind), set())
    except Exception as error:
        return f"the type {name_of(kind)} cannot be kept by msgspec ({error}): {hint}"
    if unknown is None:
        return None
    return f"the type {name_of(unknown)} cannot be kept by msgspec: {hint}"


def _unknown_in(info: Any, seen: set[int]) -> Any:
    """Return a type within a type that msgspec does not know, or None. `info`: of `msgspec.inspect`; `seen`: ids of infos."""
    import msgspec

    if id(info) in seen:  # a type that contains itself
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    for name in info.__struct_fields__:
        part = getattr(info, name)
        for each in part if isinstance(part, tuple) else (part,):
            inner = each.type if isinstance(each, msgspec.inspect.Field) else each
            if isinstance(inner, msgspec.inspect.Type) and (found := _unknown_in(inner, seen)) is not None:
                return found
    return None


def name_of(kind: Any) -> str:
    """Return the name of a type as a programmer writes it."""
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
