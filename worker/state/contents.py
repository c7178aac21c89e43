"""What a task's states hold: reading and writing them by key, for tests, commands and snapshots.

Values are those of the user: a value, a list, or a dict. Must not know: tasks, files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from topology_api import StateError
from topology_api.wording import listed, nearest, shown, typed
from worker.state.keys import canonical
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.table import NONE, StateHandle
from worker.state.values import WHOLE, ValueHandle

#: The most keys that are looked at to count them.
MOST_COMPARED: Final = 20_000
#: How often a state is read again that changed while it was read.
MOST_TRIES: Final = 100


def keys_of(states: Mapping[str, StateHandle]) -> Iterator[Any]:
    """Yield each key that has state, once, in the form of `canonical`."""
    seen: set[Any] = set()
    for handle in states.values():
        if isinstance(handle, ValueHandle) and not handle.keyed:
            continue
        for key in (*_cells(handle), *handle.raw):
            if key not in seen:
                seen.add(key)
                yield key


def count_keys(states: Mapping[str, StateHandle]) -> int | None:
    """Return how many keys have state; None if no state belongs to keys. To be called while no call changes the states.

    If several states have many, the number is that of the state with most keys: to look at each key would hold the task up.
    """
    keyed = [handle for handle in states.values() if not isinstance(handle, ValueHandle) or handle.keyed]
    if not keyed:
        return None
    counts = list(map(_count, keyed))
    if len(keyed) == 1 or sum(counts) > MOST_COMPARED:
        return max(counts)
    return len(set().union(*(each for handle in keyed for each in (_cells(handle), handle.raw))))


def dicts_of_keys(handle: StateHandle) -> tuple[dict[Any, Any], ...]:
    """Return the dicts that have the keys of a state. One may be in several, and some may have no value now."""
    cells: dict[Any, Any] = handle.cells  # type: ignore[attr-defined]
    return cells, handle.raw


def _cells(handle: StateHandle) -> dict[Any, Any]:
    if isinstance(handle, ValueHandle):
        return handle.current()
    cells: dict[Any, Any] = handle.cells  # type: ignore[attr-defined]
    return cells


def _has(handle: StateHandle, key: Any) -> bool:
    """Return whether a key has a value that a call has touched."""
    if isinstance(handle, ValueHandle):
        return handle.at(key) is not NONE
    return key in handle.cells  # type: ignore[attr-defined]


def _count(handle: StateHandle) -> int:
    """Return how many keys a state has."""
    if isinstance(handle, ValueHandle):
        return handle.count() + len(handle.raw)
    cells, raw = _cells(handle).keys(), handle.raw.keys()
    # Both have a key whose map or list was touched in part.
    return len(cells) + len(raw) - (len(cells & raw) if cells and raw else 0)


def has_state(states: Mapping[str, StateHandle], key: Any) -> bool:
    """Return whether a key, in the form of `canonical`, has state of its own. Any thread may ask."""
    return any(
        _has(handle, key)
        or key in handle.raw
        or _has(handle, key)  # it may move from the second to the first
        for handle in states.values()
        if not isinstance(handle, ValueHandle) or handle.keyed
    )


def read(states: Mapping[str, StateHandle], key: Any) -> dict[str, Any]:
    """Return copies of the values of a key, by state: for a ValueState without a value, its default. Broadcast states belong to
    every key.

    Any thread may read while the task runs: the key at hand is left alone. What a running call has written may be seen.
    """
    plain = canonical(key)
    for _ in range(MOST_TRIES):
        try:
            return {name: _read(handle, plain) for name, handle in states.items()}
        except RuntimeError:  # a dict has changed its size while it was copied
            time.sleep(0)
    raise StateError(f"the state of key {shown(key)} changes all the time: read it when fewer tuples come")


def _read(handle: StateHandle, key: Any) -> Any:
    """Return a copy of what a state has for a key. Raises RuntimeError if something moved meanwhile."""
    moves = handle.moves
    found = _read_now(handle, key)
    if moves % 2 or moves != handle.moves:
        raise RuntimeError("a value was touched for the first time")
    return found


def _read_now(handle: StateHandle, key: Any) -> Any:
    now = handle.table.now()
    if isinstance(handle, ValueHandle):
        cell = key if handle.keyed else WHOLE
        found = handle.at(cell)
        if found is NONE and cell in handle.raw:
            found = handle.codec.opened(handle.raw[cell], handle, key)
        over = handle.expiry is not None and handle.expiry.is_over(cell, now)
        return deepcopy(handle.default if found is NONE or over else found)
    if isinstance(handle, MapHandle):
        items = handle.peek(key)
        if handle.expiry is not None:
            items = {
                item: part for item, part in items.items() if not handle.expiry.is_over((key, item), now)
            }
        return deepcopy(items)
    assert isinstance(handle, ListHandle)
    elements, times = handle.peek(key), list(handle.times.get(key, ()))
    if handle.expiry is not None:
        oldest = now - handle.expiry.ttl
        elements = [part for part, written in zip(elements, times) if written > oldest]
    return deepcopy(elements)


def write(states: Mapping[str, StateHandle], key: Any, values: Mapping[str, Any]) -> None:
    """Set states of a key. Raises StateError for an unknown state, and for a value that does not fit its state."""
    for name, value in values.items():
        handle = states.get(name)
        if handle is None:
            raise StateError(
                f"there is no state {shown(name)}{nearest(name, states)} (there are: {listed(states)})"
            )
        table = handle.table
        table.begin(canonical(key))
        table.for_all = True
        try:
            _write(handle, value)
        except BaseException:
            table.undo()
            raise
        finally:
            table.commit()
            table.end()


def _write(handle: StateHandle, value: Any) -> None:
    """Set the state of the key at hand."""
    if isinstance(handle, ValueHandle):
        handle.codec.check(value, handle)
        handle.value = value
        return
    if isinstance(handle, MapHandle):
        if not isinstance(value, Mapping):
            raise StateError(f"{handle.what()} is {typed(value)}: give a dict")
        for item, part in value.items():
            handle.keys_codec.check(item, handle)
            handle.codec.check(part, handle)
        handle.clear()
        handle.update(value)
    elif isinstance(handle, ListHandle):
        if not isinstance(value, list):
            raise StateError(f"{handle.what()} is {typed(value)}: give a list")
        for part in value:
            handle.codec.check(part, handle)
        handle.clear()
        handle.extend(value)


def check(changed: list[StateHandle]) -> None:
    """Raise StateError if what a call has changed for the key at hand could not be kept. For the testing tools."""
    for handle in changed:
        if isinstance(handle, ValueHandle):
            found = handle.at(handle.table.key if handle.keyed else WHOLE)
            if found is not NONE:
                handle.codec.check(found, handle)
        elif isinstance(handle, MapHandle):
            items = handle.cells.get(handle.table.key, {})
            for item in handle.logged:
                if item in items:
                    handle.keys_codec.check(item, handle)
                    handle.codec.check(items[item], handle)
        elif isinstance(handle, ListHandle):
            for part in handle.cells.get(handle.table.key, []):
                handle.codec.check(part, handle)
