"""States and timers of one task as plain values, all at once and without slices: what snapshots in parts are compared with.

The form is that of the snapshots of an earlier release, which `load_states` still reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topology_api.packing import dumps_by_value
from worker.state.keys import original
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.saved import Clock, Saved
from worker.state.saving import declared, kind_of
from worker.state.table import StateHandle
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle


def save_states(states: Mapping[str, StateHandle], to_wall: Clock) -> dict[str, Saved]:
    """Return what the states hold, by name. Raises StateError for a value that cannot be encoded."""
    return {name: _save(handle, to_wall) for name, handle in states.items()}


def save_timers(timers: KeyTimers, to_wall: Clock) -> bytes:
    """Return the timers of all keys."""
    every = [
        (original(key), name, to_wall(time))
        for key, names in timers.times.items()
        for name, time in names.items()
    ]
    return dumps_by_value(every, 5) if every else b""


def _save(handle: StateHandle, to_wall: Clock) -> Saved:
    cells: dict[Any, Any] = (
        handle.current() if isinstance(handle, ValueHandle) else handle.cells  # type: ignore[attr-defined]
    )
    expiry = handle.expiry  # type: ignore[attr-defined]
    values: list[Any] = []
    times: list[Any] = []
    table = handle.table
    for key, value in cells.items():
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
    return {
        "kind": kind_of(handle),
        "keys": dumps_by_value([original(key) for key in cells], 5) if cells else b"",
        "values": values,
        "times": times,
        "ttl": None if expiry is None else expiry.ttl,
        "declared": declared(handle),
    }
