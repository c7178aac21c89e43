"""Turns components into bytes with cloudpickle, and finds the part that cannot be pickled.

A class of an importable module is pickled by reference; a class of `__main__`, a lambda or a closure by value.
cloudpickle is imported on first use, so that `import topology_api` stays quick. Must not know: builder, graph.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any

from topology_api.errors import CannotPack

#: Where msgspec keeps what it has read of a dataclass, an Enum, a NamedTuple, a TypedDict or an attrs class.
_CACHE = "__msgspec_cache__"
_DEEPEST = 30  # how deep the search for the culprit descends; deeper parts are not named


def pack(component: object, place: str, base: type = object) -> bytes:
    """Return the pickle of a component. Raises CannotPack, which names the attribute that cannot be pickled.

    The pickle is also unpickled at once. Without this check, a component that cannot be unpickled, or comes back as something
    that is not a `base`, would fail only in the worker. place: names the component in the error, such as `bolt 'count'`.
    """
    try:
        data = dumps_by_value(component)
        back = pickle.loads(data)
    except Exception:
        path, reason = _culprit(component)
        raise CannotPack(place, path, reason) from None
    if not isinstance(back, base):
        reason = f"its pickle comes back as {type(back).__name__}, not as a {base.__name__}"
        raise CannotPack(place, "self", reason)
    return data


def dumps_by_value(
    value: object,
    protocol: int | None = None,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    """Like `pickle.dumps`, but definitions in `__main__` travel with the value. A packed component carries the same class, so
    that in the other process the value is an instance of the class that the component uses.
    """
    try:
        return bytes(_cloudpickle().dumps(value, protocol=protocol, buffer_callback=buffer_callback))
    except TypeError:
        if buffer_callback is not None:
            raise
        return _dumps_without_caches(value, protocol)


def _dumps_without_caches(value: object, protocol: int | None) -> bytes:
    """Return the pickle of a value that may hold definitions which msgspec has read. Raises what the pickler raises."""
    with io.BytesIO() as file:
        _without_caches()(file, protocol).dump(value)
        return file.getvalue()


@cache
def _cloudpickle() -> Any:
    """Return the module. What says in a field of a dataclass that it has no default becomes a reference: msgspec would take a
    copy of it for the default."""
    import copyreg
    import dataclasses

    import cloudpickle

    copyreg.pickle(type(dataclasses.MISSING), lambda _: "MISSING")
    return cloudpickle


@cache
def _without_caches() -> type[Any]:
    """Return a pickler for definitions that are the types of states: msgspec keeps what it has read of a class in the class
    itself, and that cannot be pickled, nor can the `msgspec.Meta` of a type."""

    class Pickler(_cloudpickle().Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, type):
                if _CACHE in vars(value):
                    delattr(value, _CACHE)  # it is made again when it is wanted
            elif (type(value).__module__, type(value).__qualname__) == ("msgspec", "Meta"):
                return _meta, (type(value), dict(value.__rich_repr__()))
            return super().reducer_override(value)

    return Pickler


def _meta(kind: type[Any], limits: dict[str, Any]) -> Any:
    """Return a `msgspec.Meta`: called by unpickling."""
    return kind(**limits)


def _fault(value: object) -> str | None:
    """Return why a value cannot be pickled and unpickled, or None."""
    try:
        data = dumps_by_value(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        pickle.loads(data)
    except Exception as error:
        return f"it can be pickled but not unpickled: {type(error).__name__}: {error}"
    return None


def _culprit(component: object) -> tuple[str, str]:
    """Return the path of the deepest part that cannot be pickled and unpickled, and why."""
    value, path = component, "self"
    reason = _fault(value) or "it cannot be pickled together with the rest"
    met = [value]  # keeps these objects alive, so that no two of them have the same id()
    ids = {id(value)}
    for _ in range(_DEEPEST):
        for name, part in _parts(value):
            if id(part) in ids:
                continue
            met.append(part)
            ids.add(id(part))
            if fault := _fault(part):
                value, reason = part, fault
                path = name if name.startswith("class ") else path + name
                break
        else:
            break
    return path, reason


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts that a pickle of the value would hold, each with its path in the form that a programmer would write."""
    if isinstance(value, FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, (staticmethod, classmethod)):
        yield "", value.__func__
    elif isinstance(value, property):
        for function in filter(None, (value.fget, value.fset, value.fdel)):
            yield "", function
    elif isinstance(value, type):
        for name, part in list(vars(value).items()):
            if name not in ("__dict__", "__weakref__"):
                yield f".{name}", part
        for base in value.__bases__:
            yield f"class {base.__name__}", base
    elif type(value) is dict:
        yield from _items(value)
    elif type(value) in (list, tuple, set, frozenset):
        yield from ((f"[{position}]", part) for position, part in enumerate(value))  # type: ignore[arg-type,var-annotated]
    else:
        yield from _object_parts(value)


def _items(mapping: Mapping[Any, Any]) -> Iterator[tuple[str, object]]:
    for key, part in list(mapping.items()):
        yield f"[{key!r}]", part
        yield f", key {key!r}", key


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f" (a function; its variable {name!r})", cell.cell_contents
        except ValueError:
            continue  # an empty cell: the variable is not bound yet
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f" (a function; its global {name!r})", function.__globals__[name]
    yield " (a function; its defaults)", (function.__defaults__, function.__kwdefaults__)


def _global_names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _global_names(constant)
    return list(dict.fromkeys(names))


def _object_parts(value: object) -> Iterator[tuple[str, object]]:
    try:
        reduced = value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    except Exception:
        reduced = ""  # the value itself cannot be pickled
    if isinstance(reduced, tuple):
        for state in reduced[2:3]:
            yield from _state_parts(state)
        for items in reduced[3:4]:
            yield from ((f"[{position}]", part) for position, part in enumerate(items or ()))
        for items in reduced[4:5]:
            yield from _items(dict(items or ()))
        yield from _argument_parts(reduced)
        yield f"class {type(value).__name__}", type(value)


def _state_parts(state: object) -> Iterator[tuple[str, object]]:
    for piece in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(piece, dict):
            yield from ((f".{name}", part) for name, part in list(piece.items()))
        elif piece is not None:
            yield ".__getstate__()", piece


def _argument_parts(reduced: tuple[Any, ...]) -> Iterator[tuple[str, object]]:
    for position, part in enumerate(reduced[1] if isinstance(reduced[1], tuple) else ()):
        if not isinstance(part, type):  # the class, an argument of copyreg.__newobj__, is searched last
            yield f" (argument {position + 1} of its {getattr(reduced[0], '__name__', 'reduce')})", part
