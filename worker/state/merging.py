"""The parts of a snapshot, merged into what each state holds in the end, for people who read it without the bolt's classes.

A task that begins with a snapshot adds the parts to its states one after the other instead (`worker.state.saved`), which is
exact for all types. Here, items of maps that are equal but encoded in different ways are taken for the same if msgpack's own
types are equal.
Must not know: tasks, files, how rows are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from worker.state.keys import canonical
from worker.state.saving import Part

#: Returns the objects in a pickled list. Of keys that cannot be read, whatever stands for `count` of them.
KeysOf = Callable[[bytes, int], list[Any]]


class MergedState:
    """What the parts of one state come to."""

    def __init__(self, keys_of: KeysOf) -> None:
        self.keys_of = keys_of
        self.head: Part = {}
        #: What the state is declared as, if a part says so.
        self.declared: Any = None
        #: Key in the form of dictionaries -> key, value, times. The value and times of a map: by the form of the item.
        self.cells: dict[Any, tuple[Any, Any, Any]] = {}
        #: The keys of lists that were put together of pieces.
        self.joined: set[Any] = set()

    def add(self, part: Part) -> None:
        """Add the next part."""
        self.head = part
        self.declared = part.get("declared", self.declared)
        is_map, shift = part["kind"] == "MapState", part.get("shift", 0.0)
        for each in self.keys_of(part.get("gone", b""), 0):
            if is_map:
                self.forget_item(*each)
            else:
                self.cells.pop(dict_form(each), None)
        times = shifted(part["times"], shift) if part["times"] else [None] * len(part["values"])
        for key, value, written in zip(
            self.keys_of(part["keys"], len(part["values"])), part["values"], times
        ):
            form = dict_form(key)
            if is_piece(value):
                self.add_piece(form, key, value, written)
                continue
            if not is_map:
                self.joined.discard(form)
                self.cells[form] = key, value, written
                continue
            _, items, _ = self.cells.setdefault(form, (key, {}, None))
            for at, (item, data) in enumerate(value):
                items[item_form(item)] = item, data, None if written is None else written[at]

    def add_piece(self, form: Any, key: Any, piece: list[Any], written: Any) -> None:
        """Put elements of a list behind its first ones."""
        at, *values = piece
        _, before, times = self.cells.get(form, (key, [], None))
        if form not in self.joined:  # the lists are those of a part
            self.joined.add(form)
            before, times = list(before), times and list(times)
        before[at:] = values
        if times is not None:
            times[at:] = written
        self.cells[form] = key, before, times

    def forget_item(self, key: Any, item: bytes) -> None:
        """Remove an item of a map."""
        form = dict_form(key)
        if form in self.cells:
            items = self.cells[form][1]
            items.pop(item_form(item), None)
            if not items:
                del self.cells[form]

    def saved(self) -> dict[str, Any]:
        """Return the state in the form of a single part, whose `keys` is a list of objects."""
        keys, values, times = [], [], []
        for key, value, written in self.cells.values():
            keys.append(key)
            if self.head["kind"] == "MapState":
                written = [time for _, _, time in value.values()]
                value = [(item, data) for item, data, _ in value.values()]
            values.append(value)
            times.append(written)
        timed = any(map(has_time, times))
        made = {**self.head, "keys": keys, "values": values, "times": times if timed else []}
        return made if self.declared is None else {**made, "declared": self.declared}


def merged(state: Mapping[str, Any], parts: Iterable[Part], keys_of: KeysOf) -> dict[str, Any]:
    """Return the state of a task's snapshot, with what its parts hold in `states` and `timers`, which is a list of objects."""
    found: dict[str, MergedState] = {}
    for name, each in state.get("states", {}).items():
        found[name] = MergedState(keys_of)
        found[name].add(each)
    for part in parts:
        found.setdefault(part["state"], MergedState(keys_of)).add(part)
    timers = found.pop("", None)
    made = {**state, "states": {name: each.saved() for name, each in found.items()}}
    if timers is not None:
        made["timers"] = [
            (key, name, time)
            for key, names, times in timers.cells.values()
            for name, time in zip(names, times or ())
        ]
    return made


def is_piece(value: Any) -> bool:
    """Return whether the value of a list is a piece of it, and says first how many elements before it stay."""
    return isinstance(value, list) and bool(value) and type(value[0]) is int


def has_time(written: Any) -> bool:
    """Return whether times of writing, of a key or of its parts, say when anything was written."""
    return any(map(has_time, written)) if isinstance(written, list) else written is not None


def shifted(times: Any, shift: float) -> Any:
    """Return times, or lists of times, as if the wall clock had been moved before they were saved."""
    if not shift or times is None:
        return times
    return [shifted(each, shift) for each in times] if isinstance(times, list) else times + shift


def dict_form(key: Any) -> Any:
    """Return the form of a key in dictionaries; of one that can be none, itself as it is shown."""
    try:
        form = canonical(key)
        hash(form)
    except Exception:  # of a user's class
        return ("odd", repr(key))
    return form


def item_form(item: bytes) -> Any:
    """Return the form of an encoded item's key."""
    try:
        return dict_form(msgspec.msgpack.decode(item))
    except msgspec.DecodeError:  # a pickle
        return item
