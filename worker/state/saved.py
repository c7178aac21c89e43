"""States and timers of one task as plain values for a snapshot, and back.

A value is encoded by the codec of its state, so that its type may get new fields with defaults. Keys are pickled, since any
value may be a key. Times are those of the caller's wall clock: the clock of a task ends with its process.
A task that begins with a snapshot decodes the keys, and of the values those that it must look at. What was saved by the same
declaration, and by the same code where code decides what fits, stays bytes until it is touched (`StateHandle.raw`). All else is
decoded, so that a version whose types do not fit is refused before it runs, and its first snapshot says all in its own types.
Must not know: tasks, files.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from topology_api import StateError
from topology_api.packing import dumps_by_value
from topology_api.state_types import declaration_misfit, misfit_text
from worker.state.keys import canonical
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.merging import is_piece, merged
from worker.state.saving import TIMERS, Part, declared, kind_of
from worker.state.table import StateHandle
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: Turns a time of one clock into that of another.
Clock = Callable[[float], float]
#: A saved state: its kind, its pickled keys, and for each key its values and their times of writing, its `ttl`, and what it was
#: declared as.
Saved = dict[str, Any]


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
        load_state(states, name, each, from_wall, (topology, component), undeclared)
    settle(states)
    return undeclared


def load_parts(
    states: Mapping[str, StateHandle],
    timers: KeyTimers,
    parts: Iterable[Part],
    from_wall: Clock,
    topology: str = "TOPOLOGY",
    component: str = "COMPONENT",
    same_code: bool = False,
) -> list[Part]:
    """Add to states and timers what parts say, in the order in which they were saved; return those of states that the bolt does
    not declare. `same_code`: the code is that of the task that saved them. Raises StateError.
    """
    undeclared: list[Part] = []
    parts = list(parts)
    stored = {name for name in states if stays_bytes(states[name], parts, same_code)}
    for part in parts:
        shift = part.get("shift", 0.0)
        clock = partial(shifted, from_wall, shift) if shift else from_wall
        if part["kind"] == TIMERS:
            load_part_of_timers(timers, part, clock)
        elif part["state"] not in states:
            undeclared.append(part)
        else:
            load_state(states, part["state"], part, clock, (topology, component), {}, part["state"] in stored)
    settle(states)
    for handle in (*states.values(), timers):
        if handle.touched:
            handle.touched.clear()  # timers were marked as they were set
    return undeclared


def stays_bytes(handle: StateHandle, parts: Iterable[Part], same_code: bool) -> bool:
    """Return whether the values of a state that holds nothing stay bytes until they are touched: if it is certain that they
    fit. Of values in which there are objects of the user's classes it is so only with the same code.
    """
    if handle.cells or (isinstance(handle, ValueHandle) and not handle.keyed):  # type: ignore[attr-defined]
        return False
    now, known = declared(handle), False
    if not same_code and (now["pickled"] or any(each["classes"] for each in now["types"])):
        return False
    for part in parts:
        if part["state"] == handle.name and part["kind"] != TIMERS:
            if "declared" in part:
                known = part["declared"] == now
            if part["values"] and not known:
                return False
    return True


def with_parts(saved: Mapping[str, Saved], parts: list[Part]) -> dict[str, Saved]:
    """Return saved states that a bolt does not declare, with what parts say of them, to be saved again."""
    if not parts:
        return dict(saved)
    made: dict[str, Saved] = merged(
        {"states": saved}, parts, lambda packed, _: pickle.loads(packed) if packed else []
    )["states"]
    return {
        name: {**each, "keys": dumps_by_value(each["keys"], 5)} for name, each in made.items() if each["keys"]
    }


def shifted(from_wall: Clock, shift: float, time: float) -> float:
    """Return a time that was saved before the wall clock was moved by `shift` seconds."""
    return from_wall(time + shift)


def settle(states: Mapping[str, StateHandle]) -> None:
    """States are filled."""
    for handle in states.values():
        expiry = handle.expiry  # type: ignore[attr-defined]
        if expiry is not None:  # it expects the oldest first
            if isinstance(handle, ListHandle):  # elements may have been reversed, or written again
                expiry.written = {key: max(times) for key, times in handle.times.items()}
            expiry.written = dict(sorted(expiry.written.items(), key=lambda pair: pair[1]))


def load_state(
    states: Mapping[str, StateHandle],
    name: str,
    each: Saved,
    from_wall: Clock,
    where: tuple[str, str],
    undeclared: dict[str, Saved],
    stored: bool = False,
) -> None:
    """Add what was saved of one state; or to `undeclared`, if the bolt does not declare it. `where`: topology and component.
    `stored`: its values stay bytes.
    """
    handle = states.get(name)
    if handle is None:
        if each["values"]:
            undeclared[name] = each
        return
    was = each.get("declared")
    # A part that says it had values, which may belong to other tasks now.
    if was is not None and (each["values"] or "gone" in each):
        now = declared(handle)
        if why := declaration_misfit(was, now):
            raise StateError(f"{handle.table.where}: {misfit_text(*where, name, was, now, why)}")
    if each["kind"] != kind_of(handle):
        raise StateError(
            f"{handle.table.where}: {handle.what()} is a {kind_of(handle)} now, and was saved as a {each['kind']}: "
            "give one of them another name, or start with another topology.state.path"
        )
    try:
        _load(handle, each, from_wall, stored)
    except StateError:
        raise
    except Exception as error:
        raise StateError(
            f"{handle.table.where}: the saved values of {handle.what()} do not fit its type: {error}: declare the type "
            "that they were saved with (new fields need defaults), or start with another topology.state.path"
        ) from error


def load_timers(timers: KeyTimers, saved: bytes, from_wall: Clock) -> None:
    """Set timers that are a pickled list of (key, name, time)."""
    for key, name, time in pickle.loads(saved) if saved else ():
        timers.put(canonical(key), name, from_wall(time))


def _load(handle: StateHandle, saved: Saved, from_wall: Clock, stored: bool) -> None:
    if saved.get("gone"):
        _forget(handle, pickle.loads(saved["gone"]))
    keys = pickle.loads(saved["keys"]) if saved["keys"] else []
    if not set(map(type, keys)) <= {str, int, bytes}:
        keys = [canonical(key) for key in keys]
    values, now = saved["values"], handle.table.now()
    # Without times, as of a state that had no `ttl` before: they count as written now.
    times: Iterable[Any] = saved["times"] or repeat(None)
    decode: Callable[[bytes], Any] = _as_it_is if stored else handle.codec.decode  # type: ignore[attr-defined]
    cells: dict[Any, Any] = handle.raw if stored else handle.cells  # type: ignore[attr-defined]
    expiry = handle.expiry  # type: ignore[attr-defined]
    if isinstance(handle, ValueHandle):
        if stored:
            cells.update(zip(keys, values))
        else:
            handle.load(keys, map(decode, values))
        if expiry is not None:
            expiry.written.update(
                (key, now if time is None else from_wall(time)) for key, time in zip(keys, times)
            )
    elif isinstance(handle, MapHandle):
        decode_key = handle.keys_codec.decode
        for key, value, written in zip(keys, values, times):
            items = cells.get(key)
            if items is None:
                items = cells[key] = {}
            for at, (name, data) in enumerate(value):
                item = decode_key(name)
                items[item] = decode(data)
                if expiry is not None:
                    expiry.written[key, item] = now if written is None else from_wall(written[at])
    else:
        assert isinstance(handle, ListHandle)
        for key, value, written in zip(keys, values, times):
            _load_list(cells, key, value, decode)
            if expiry is not None and value:
                _load_times(handle, key, value, written, now, from_wall)


def _as_it_is(data: bytes) -> bytes:
    return data


def _load_list(cells: dict[Any, Any], key: Any, value: list[Any], decode: Callable[[bytes], Any]) -> None:
    """Put the elements of a list, or of a piece of one, behind those that stay."""
    if is_piece(value):
        cells[key][value[0] :] = map(decode, value[1:])
    elif value:  # an earlier release has saved lists whose elements were all over
        cells[key] = list(map(decode, value))


def _load_times(
    handle: ListHandle, key: Any, value: list[Any], written: list[float] | None, now: float, from_wall: Clock
) -> None:
    """Put the times of elements behind those that stay."""
    at, count = (value[0], len(value) - 1) if is_piece(value) else (0, len(value))
    times = handle.times.setdefault(key, [])
    times[at:] = [now] * count if written is None else [from_wall(each) for each in written]


def _forget(handle: StateHandle, gone: list[Any]) -> None:
    """Drop cells that had gone when a part was saved."""
    for each in gone:
        if isinstance(handle, MapHandle):
            key, item = canonical(each[0]), handle.keys_codec.decode(each[1])
            for maps in (handle.cells, handle.raw):
                items = maps.get(key, {})
                items.pop(item, None)
                if not items:
                    maps.pop(key, None)
            cell: Any = (key, item)
        else:
            cell = canonical(each)
            handle.cells.pop(cell, None)  # type: ignore[attr-defined]
            handle.raw.pop(cell, None)
            if isinstance(handle, ListHandle):
                handle.times.pop(cell, None)
        if handle.expiry is not None:  # type: ignore[attr-defined]
            handle.expiry.forget(cell)  # type: ignore[attr-defined]


def load_part_of_timers(timers: KeyTimers, part: Part, from_wall: Clock) -> None:
    """Add the timers of some keys, or take them away."""
    for key in pickle.loads(part["gone"]) if part["gone"] else ():
        timers.drop_all(canonical(key))
    keys = pickle.loads(part["keys"]) if part["keys"] else ()
    for key, names, times in zip(keys, part["values"], part["times"]):
        plain = canonical(key)
        timers.drop_all(plain)
        for name, time in zip(names, times):
            timers.put(plain, name, from_wall(time))
