"""States and timers of one task as plain values for a snapshot, and back.

A value is encoded by the codec of its state, so that its type may get new fields with defaults. Keys are pickled, since any
value may be a key. Times are those of the caller's wall clock: the clock of a task ends with its process.
Must not know: tasks, files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from topology_api import StateError
from topology_api.packing import dumps_by_value
from topology_api.state_types import declaration_misfit, declared_as, misfit_text
from worker.state.codecs import Codec
from worker.state.keys import BoxedKey, canonical, original
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.table import StateHandle
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: Turns a time of one clock into that of another.
Clock = Callable[[float], float]
#: A saved state: its kind, its pickled keys, and for each key its values and their times of writing, its `ttl`, and what it was
#: declared as.
Saved = dict[str, Any]


def save_states(states: Mapping[str, StateHandle], to_wall: Clock) -> dict[str, Saved]:
    """Return what the states hold, by name. Raises StateError for a value that cannot be encoded."""
    return {name: _save(handle, to_wall) for name, handle in states.items()}


def load_states(
    states: Mapping[str, StateHandle],
    saved: Mapping[str, Saved],
    from_wall: Clock,
    topology: str = "TOPOLOGY",
    component: str = "COMPONENT",
) -> dict[str, Saved]:
    """Fill states that hold nothing, and return saved states that the bolt does not declare: they are saved again, since
    another version may declare them. Raises StateError for one that it declares as another kind or type, and for values that
    do not fit.
    """
    undeclared: dict[str, Saved] = {}
    for name, each in saved.items():
        handle = states.get(name)
        if handle is None:
            if each["values"]:
                undeclared[name] = each
            continue
        was, now = each.get("declared"), _declared(handle)
        if was is not None and each["values"] and (why := declaration_misfit(was, now)):
            text = misfit_text(topology, component, name, was, now, why)
            raise StateError(f"{handle.table.where}: {text}")
        if each["kind"] != _kind(handle):
            raise StateError(
                f"{handle.table.where}: {handle.what()} is a {_kind(handle)} now, and was saved as a {each['kind']}: "
                "give one of them another name, or start with another topology.state.path"
            )
        try:
            _load(handle, each, from_wall)
        except StateError:
            raise
        except Exception as error:
            raise StateError(
                f"{handle.table.where}: the saved values of {handle.what()} do not fit its type: {error}: declare the type "
                "that they were saved with (new fields need defaults), or start with another topology.state.path"
            ) from error
    return undeclared


def save_timers(timers: KeyTimers, to_wall: Clock) -> bytes:
    """Return the timers of all keys."""
    every = [
        (original(key), name, to_wall(time))
        for key, names in timers.times.items()
        for name, time in names.items()
    ]
    return dumps_by_value(every, 5) if every else b""


def load_timers(timers: KeyTimers, saved: bytes, from_wall: Clock) -> None:
    """Set the timers that `save_timers` has returned."""
    for key, name, time in pickle.loads(saved) if saved else ():
        timers.put(canonical(key), name, from_wall(time))


def _kind(handle: StateHandle) -> str:
    if isinstance(handle, ValueHandle):
        return "ValueState" if handle.keyed else "BroadcastState"
    return "MapState" if isinstance(handle, MapHandle) else "ListState"


def _declared(handle: StateHandle) -> dict[str, Any]:
    codec: Codec = handle.codec  # type: ignore[attr-defined]
    codecs = [handle.keys_codec, codec] if isinstance(handle, MapHandle) else [codec]
    return declared_as(_kind(handle), [each.kind for each in codecs], codec.pickled)


def _save(handle: StateHandle, to_wall: Clock) -> Saved:
    cells: dict[Any, Any] = handle.cells  # type: ignore[attr-defined]
    expiry = handle.expiry  # type: ignore[attr-defined]
    values: list[Any] = []
    times: list[Any] = []
    table = handle.table
    fast = (
        handle.codec.all_kept(cells.values()) if isinstance(handle, ValueHandle) and expiry is None else None
    )
    for key, value in cells.items() if fast is None else ():
        table.key = key  # for messages
        if isinstance(handle, ValueHandle):
            values.append(handle.codec.kept(value, handle))
            if expiry is not None:
                times.append(to_wall(expiry.written[key]))
        elif isinstance(handle, MapHandle):
            keys_codec, codec = handle.keys_codec, handle.codec
            values.append(
                [(keys_codec.kept(item, handle), codec.kept(part, handle)) for item, part in value.items()]
            )
            if expiry is not None:
                times.append([to_wall(expiry.written[key, item]) for item in value])
        else:
            assert isinstance(handle, ListHandle)
            values.append([handle.codec.kept(part, handle) for part in value])
            if expiry is not None:
                times.append([to_wall(time) for time in handle.times.get(key, ())])
    table.end()
    boxed = BoxedKey in set(map(type, cells))
    keys = dumps_by_value([original(key) for key in cells] if boxed else list(cells), 5) if cells else b""
    values = values if fast is None else fast
    ttl = None if expiry is None else expiry.ttl
    # The `ttl`, and what is declared, are for other versions of the bolt, and for people who read the snapshot.
    return {
        "kind": _kind(handle),
        "keys": keys,
        "values": values,
        "times": times,
        "ttl": ttl,
        "declared": _declared(handle),
    }


def _load(handle: StateHandle, saved: Saved, from_wall: Clock) -> None:
    keys = pickle.loads(saved["keys"]) if saved["keys"] else []
    if not set(map(type, keys)) <= {str, int, bytes}:
        keys = [canonical(key) for key in keys]
    decode, expiry = handle.codec.decode, handle.expiry  # type: ignore[attr-defined]
    if isinstance(handle, ValueHandle) and expiry is None:
        handle.cells.update(zip(keys, map(decode, saved["values"])))
        return
    now = handle.table.now()
    written: dict[Any, float] = {}
    for at, (key, value) in enumerate(zip(keys, saved["values"])):
        # Without a time, as of a state that had no `ttl` before: it counts as written now.
        time = saved["times"][at] if saved["times"] else None
        if isinstance(handle, ValueHandle):
            handle.cells[key] = decode(value)
            written[key] = now if time is None else from_wall(time)
        elif isinstance(handle, MapHandle):
            items = [(handle.keys_codec.decode(item), decode(part)) for item, part in value]
            handle.cells[key] = dict(items)
            for place, (item, _) in enumerate(items):
                written[key, item] = now if time is None else from_wall(time[place])
        else:
            assert isinstance(handle, ListHandle)
            handle.cells[key] = [decode(part) for part in value]
            if expiry is not None:
                handle.times[key] = [now] * len(value) if time is None else [from_wall(each) for each in time]
                written[key] = handle.times[key][-1]
    if expiry is not None:
        # The oldest come first, as `Expiry` expects.
        expiry.written = dict(sorted(written.items(), key=lambda pair: pair[1]))
