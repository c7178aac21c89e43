"""The states and timers of one key of a task that runs, as rows for people: those that a snapshot would show for the key.

To be called between two calls of the task. A row never costs more than its parts that are shown: of a large list or map it has
the first ones, and says how many there are.
Must not know: tasks, files, how rows are printed.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain, islice, product
from typing import Any, Final
from uuid import UUID

import msgspec

from squall.dead_letters.letter import clean
from squall.reports.live_state import LiveRow
from worker.state.codecs import Codec
from worker.state.contents import dicts_of_keys
from worker.state.keys import canonical, original
from worker.state.lists import ListHandle
from worker.state.maps import MapHandle
from worker.state.readable import form_of_items, json_form, value_of
from worker.state.saved_rows import TIMER
from worker.state.saving import kind_of
from worker.state.stored_keys import stored_key
from worker.state.table import NONE, StateHandle, StoredBytes
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: The most elements or items of a state that are shown, and about the most bytes of all rows.
MOST_PARTS: Final = 1000
MOST_BYTES: Final = 1_000_000
#: The most keys that are tried for what was typed.
MOST_KEYS: Final = 256
#: The longest text that may stand for a key as Python writes it.
_LONGEST_REPR: Final = 10_000


class LiveKey:
    """What the states and timers of a task have for one key."""

    def __init__(self, key: Any, to_wall: Callable[[float], float], room: int = MOST_BYTES) -> None:
        """`key`: in the form of `canonical`. `to_wall`: turns times of the task's clock into those of the wall clock. `room`:
        how many bytes of values may be shown."""
        self.key, self.to_wall = key, to_wall
        #: As JSON.
        self.form = json.dumps(json_form(original(key)))
        #: How many bytes may still be shown.
        self.room = room

    def rows(self, states: Mapping[str, StateHandle], timers: KeyTimers, only: str = "") -> list[LiveRow]:
        """Return the rows; with `only`, those of one state, or of the timers of this name."""
        found = [
            row
            for name, handle in states.items()
            if only in ("", name) and (row := self.row(name, handle)) is not None
        ]
        names = [name for name in timers.times.get(self.key, ()) if only in ("", name)]
        for at, name in enumerate(names[:MOST_PARTS], 1):
            rest = _rest(len(names) - at, "timer") if at == MOST_PARTS else ""
            due = json.dumps(self.to_wall(timers.times[self.key][name]))
            found.append(LiveRow(clean(name), TIMER, self.form, due, omitted=rest))
        return found

    def row(self, name: str, handle: StateHandle) -> LiveRow | None:
        """Return the row of a state; None if the key has no value there."""
        if isinstance(handle, MapHandle):
            return self.row_of_map(name, handle)
        if isinstance(handle, ListHandle):
            return self.row_of_list(name, handle)
        assert isinstance(handle, ValueHandle)
        found, expiry, now = handle.at(self.key), handle.expiry, handle.table.now()
        if found is NONE and self.key in handle.raw:
            found = StoredBytes(handle.raw[self.key])
        if not handle.keyed or found is NONE or (expiry is not None and expiry.is_over(self.key, now)):
            return None
        form, omitted = self.form_of(handle.codec, found, handle), ""
        if form is NONE:
            form, omitted = None, f"the value, which has more than {MOST_BYTES:,} bytes"
        written = None if expiry is None else expiry.written_at(self.key)
        return self.made(name, handle, form, written, omitted)

    def row_of_list(self, name: str, handle: ListHandle) -> LiveRow | None:
        """Return the row of a ListState."""
        elements = chain(map(StoredBytes, handle.raw.get(self.key, ())), handle.cells.get(self.key, ()))
        count, times = handle.length_of(self.key), handle.times.get(self.key, [])
        first = 0
        if handle.expiry is not None:
            oldest = handle.table.now() - handle.expiry.ttl
            first = next((at for at, time in enumerate(times) if time > oldest), count)
        shown: list[Any] = []
        for element in islice(elements, first, first + MOST_PARTS):
            form = self.form_of(handle.codec, element, handle)
            if form is NONE:
                break
            shown.append(form)
        rest = count - first - len(shown)
        if not shown and not rest:
            return None
        written = None if handle.expiry is None else times[first : first + len(shown)]
        return self.made(name, handle, shown, written, _rest(rest, "element"))

    def row_of_map(self, name: str, handle: MapHandle) -> LiveRow | None:
        """Return the row of a MapState."""
        touched, stored = handle.cells.get(self.key, {}), handle.raw.get(self.key, {})
        items = chain(touched.items(), zip(stored, map(StoredBytes, stored.values())))
        expiry, now = handle.expiry, handle.table.now()
        shown: list[tuple[Any, Any]] = []
        written: list[float] = []
        seen = 0
        for item, value in islice(items, MOST_PARTS):
            if expiry is not None and expiry.is_over((self.key, item), now):
                seen += 1
                continue
            forms = self.form_of(handle.keys_codec, item, handle), self.form_of(handle.codec, value, handle)
            if NONE in forms:
                break
            seen += 1
            shown.append(forms)
            if expiry is not None:
                written.append(expiry.written_at((self.key, item)) or 0.0)
        rest = len(touched) + len(stored) - seen
        if not shown and not rest:
            return None
        # The parts have their form already, and a form is its own form.
        value = form_of_items(shown)
        return self.made(name, handle, value, None if expiry is None else written, _rest(rest, "item"))

    def made(self, name: str, handle: StateHandle, value: Any, written: Any, omitted: str) -> LiveRow:
        """Return a row; `written`: by the task's clock."""
        ttl = None if handle.expiry is None else handle.expiry.ttl  # type: ignore[attr-defined]
        if isinstance(written, list):
            walls: Any = [self.to_wall(time) for time in written]
            expires: Any = [time + ttl for time in walls]
        else:
            walls = None if written is None else self.to_wall(written)
            expires = None if walls is None else walls + ttl
        return LiveRow(name, kind_of(handle), self.form, json.dumps(value), walls, expires, omitted)

    def form_of(self, codec: Codec, value: Any, handle: StateHandle) -> Any:
        """Return a value in the form that it would have in a snapshot; NONE if there is no room for it."""
        table, key = handle.table, handle.table.key
        try:
            table.key = self.key  # for messages
            data = value.data if type(value) is StoredBytes else codec.encode(value, handle)
        except Exception:  # no snapshot can keep it, and its task will say so
            return json_form(value)
        finally:
            table.key = key
        if len(data) > self.room:
            return NONE
        self.room -= len(data)
        return json_form(value_of(data))


def _rest(count: int, what: str) -> str:
    return f"{count:,} further {what}{'' if count == 1 else 's'}" if count else ""


def key_in(states: Mapping[str, StateHandle], timers: KeyTimers, key: Any) -> Any:
    """Return the key that a task has for one that is equal to it, both in the form of `canonical`."""
    for handle in states.values():
        if not isinstance(handle, ValueHandle) or handle.keyed:
            for there in dicts_of_keys(handle):
                if key in there:
                    return stored_key(key, there)
    return stored_key(key, timers.times)


class WrittenKeys(msgspec.Struct, frozen=True):
    """The keys, in the form of `canonical`, that rows write in one way."""

    keys: list[Any]
    #: Whether there can be no others, but for keys of a class that writes its objects as Python writes its own.
    all_of_them: bool


def keys_written_as(form: Any) -> WrittenKeys:
    """Return the keys that rows write so: a text may stand for a time, an array for a tuple. There is none for an object other
    than {"repr": text}, nor for such a text that is no literal of Python: only the task knows the keys of these.
    """
    found: dict[Any, None] = {}
    tried = list(islice(_keys(form), MOST_KEYS))
    for key in tried:
        try:
            plain = canonical(key)
            if json_form(key) == form:
                found[plain] = None
        except Exception:  # it can be no key
            continue
    return WrittenKeys(list(found), bool(found) and len(tried) < MOST_KEYS)


def _keys(form: Any) -> Iterator[Any]:
    if isinstance(form, str):
        yield form
        for read in _OF_TEXTS:
            try:
                yield read(form)
            except (ValueError, ArithmeticError):
                continue
    elif isinstance(form, list):
        yield from _sequences(form)
    elif isinstance(form, dict):
        text = form.get("repr")
        if len(form) == 1 and isinstance(text, str) and len(text) <= _LONGEST_REPR:
            try:
                yield ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return
    else:
        yield form


def _sequences(parts: Iterable[Any]) -> Iterator[Any]:
    for made in product(*(list(islice(_keys(part), MOST_KEYS)) for part in parts)):
        yield made
        yield list(made)


_OF_TEXTS: Final[tuple[Callable[[str], Any], ...]] = (
    UUID, Decimal, dt.datetime.fromisoformat, dt.date.fromisoformat, dt.time.fromisoformat,
)  # fmt: skip
