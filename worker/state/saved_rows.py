"""What `saved` has made of the states and timers of a task, as rows for people: without the bolt, its types and its classes.

Keys and values have the form of `readable`. A row without a `ttl` has no times.
Must not know: tasks, files, how rows are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from worker.state.keys import canonical
from worker.state.merging import merged
from worker.state.readable import form_of_items, json_form, unpickled, unreadable_value, value_of
from worker.state.saved import Saved
from worker.state.saving import Part

#: The kinds of rows besides "ValueState", "ListState" and "MapState". The key of a broadcast state is None.
BROADCAST: Final = "BroadcastState"
TIMER: Final = "timer"


class SavedRow(msgspec.Struct, frozen=True):
    """A state of one key, a broadcast state, or a timer."""

    #: The name of the state or timer.
    state: str
    kind: str
    key: Any
    #: Of a timer: when it is due.
    value: Any
    #: When the value was written, and when it will be forgotten, in seconds since 1970. Of a list or map: for each element or
    #: item, in their order.
    written: Any = None
    expires: Any = None


class SavedCounts(msgspec.Struct, frozen=True):
    """How much a task has saved."""

    keys: int
    timers: int


def whole_state(state: Mapping[str, Any], parts: Iterable[Part]) -> dict[str, Any]:
    """Return the state in a snapshot with all that its parts say: what the other functions get."""
    return merged(state, parts, readable_keys)


def rows_of(saved: Mapping[str, Any], wanted: Callable[[Any], bool] | None = None) -> Iterator[SavedRow]:
    """Yield the keyed states, the broadcast states and the timers of a task; with `wanted`, those of the keys for which it
    returns true.
    """
    for name, each in saved.get("states", {}).items():
        if each["kind"] != BROADCAST:
            yield from _keyed_rows(name, each, wanted)
        elif wanted is None:
            for data, written in zip(each["values"], each["times"] or [None]):
                yield SavedRow(
                    name, BROADCAST, None, json_form(value_of(data)), written, _expires(written, each)
                )
    for key, name, due in timers_of(saved):
        form = json_form(key)
        if wanted is None or wanted(form):
            yield SavedRow(name, TIMER, form, due)


def forms_of_keys(saved: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the keys of all states and timers, in the form of rows, some of them several times."""
    for each in saved.get("states", {}).values():
        if each["kind"] != BROADCAST:
            yield from map(json_form, keys_of_saved(each))
    for key, _, _ in timers_of(saved):
        yield json_form(key)


def counts_of(saved: Mapping[str, Any]) -> SavedCounts:
    """Return how many keys have state, and how many timers there are."""
    seen: set[Any] = set()
    for each in saved.get("states", {}).values():
        if each["kind"] != BROADCAST:
            seen.update(map(canonical, keys_of_saved(each)))
    return SavedCounts(len(seen), len(timers_of(saved)))


def keys_of_saved(each: Saved) -> list[Any]:
    """Return the keys of one state, in the order of its values."""
    if isinstance(each["keys"], list):
        return each["keys"]
    return readable_keys(each["keys"], len(each["values"]))


def readable_keys(packed: bytes, count: int) -> list[Any]:
    """Return a pickled list of keys; one that cannot be opened is `count` objects that say why."""
    try:
        return list(unpickled(packed)) if packed else []
    except Exception as error:
        return [unreadable_value(error) for _ in range(count)]


def timers_of(saved: Mapping[str, Any]) -> list[tuple[Any, str, float | None]]:
    """Return (key, name, time) of each timer."""
    if isinstance(saved.get("timers"), list):
        return list(saved["timers"])
    try:
        return list(unpickled(saved["timers"])) if saved.get("timers") else []
    except Exception as error:
        return [(unreadable_value(error), "", None)]


def _keyed_rows(name: str, each: Saved, wanted: Callable[[Any], bool] | None) -> Iterator[SavedRow]:
    kind, times = each["kind"], each["times"]
    for at, (key, data) in enumerate(zip(keys_of_saved(each), each["values"])):
        form = json_form(key)
        if wanted is not None and not wanted(form):
            continue
        written = times[at] if times else None
        value: Any
        if kind == "MapState":
            value = form_of_items((value_of(item), value_of(part)) for item, part in data)
        elif kind == "ListState":
            value = [json_form(value_of(part)) for part in data]
        else:
            value = json_form(value_of(data))
        yield SavedRow(name, kind, form, value, written, _expires(written, each))


def _expires(written: Any, each: Saved) -> Any:
    """Return when values are forgotten. Snapshots of earlier releases do not say it."""
    ttl = each.get("ttl")
    if ttl is None or written is None:
        return None
    return [time + ttl for time in written] if isinstance(written, list) else written + ttl
