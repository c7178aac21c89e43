"""Takes what a task holds for a snapshot, whole or what has changed, and encodes it in slices while the task goes on.

`StateSaving` is made between two calls. Each `step` encodes a *part* of one state. A part says what some cells held when the
saving was made, although they may have changed since: a handle freezes a cell before it changes (`StateHandle.mark`). So a
snapshot holds a task up for the time of one slice. Taking all cells costs a list of the keys, some 20 ms for a million of them;
taking those that have changed costs nothing.
A part is encoded as it was saved: values by the codec of their state, keys pickled, times as those of the wall clock. What no
call has touched since the task began is bytes already. A map is saved item by item. A list is saved in *pieces*: each says how
many elements come before it, so that of a list that has grown only its end is saved.
The parts of a state come in the order of the key groups of their cells (`worker.state.shares`), in slices, too.
Must not know: tasks, files, when a snapshot is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from topology_api.packing import dumps_by_value
from topology_api.state_types import declared_as
from worker.routing.key_groups import GroupRange
from worker.state.codecs import Codec
from worker.state.keys import BoxedKey, original
from worker.state.lists import MarkingListHandle
from worker.state.maps import MapHandle
from worker.state.shares import Shares
from worker.state.table import NONE, StateHandle, StoredBytes
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: The kind of the part with timers; the name of their state is "", which no attribute has.
TIMERS: Final = "timers"
#: The most cells of a part, or elements of lists, and about the most bytes.
MOST_CELLS: Final = 256
MOST_BYTES: Final = 64 * 1024
#: Types of a few bytes, which are encoded without a look at their sizes.
SMALL: Final = frozenset((int, float, bool))
#: How many cells are divided among groups at a time: that takes a millisecond.
MOST_DIVIDED: Final = 1024

Part = dict[str, Any]


def kind_of(handle: StateHandle) -> str:
    """Return how a saved state is called."""
    if isinstance(handle, ValueHandle):
        return "ValueState" if handle.keyed else "BroadcastState"
    if isinstance(handle, KeyTimers):
        return TIMERS
    return "MapState" if isinstance(handle, MapHandle) else "ListState"


def declared(handle: StateHandle) -> dict[str, Any]:
    """Return what a state is declared as, for other versions of the bolt."""
    codec: Codec = handle.codec  # type: ignore[attr-defined]
    codecs = [handle.keys_codec, codec] if isinstance(handle, MapHandle) else [codec]
    return declared_as(kind_of(handle), [each.kind for each in codecs], codec.pickled)


def begin_part(handle: StateHandle) -> Part:
    """Return a part without cells. `keys` and `gone`, of cells that are absent, become pickles."""
    expiry = getattr(handle, "expiry", None)
    name = "" if isinstance(handle, KeyTimers) else handle.name
    # The `ttl` is for people who read the snapshot.
    ttl = None if expiry is None else expiry.ttl
    return {
        "state": name,
        "kind": kind_of(handle),
        "keys": [],
        "values": [],
        "times": [],
        "gone": [],
        "ttl": ttl,
    }


def end_part(part: Part) -> bytes:
    """Return the bytes of a part. Raises an error, of any kind, for keys that cannot be pickled."""
    for place in ("keys", "gone"):
        part[place] = dumps_by_value(part[place], 5) if part[place] else b""
    return msgspec.msgpack.encode(part)


def touched_cells(handles: list[StateHandle]) -> int:
    """Return how many cells have changed since the last saving was made."""
    return sum(len(handle.touched or ()) for handle in handles)


def every_cell(handle: StateHandle) -> list[Any]:
    """Return all cells of a handle; of maps, their keys."""
    if isinstance(handle, KeyTimers):
        return list(handle.times)
    cells: dict[Any, Any] = handle.cells  # type: ignore[attr-defined]
    if cells.keys().isdisjoint(handle.raw):
        return [*cells, *handle.raw]
    return list(cells.keys() | handle.raw.keys())  # of some, a part was touched


class StateSaving:
    """The saving of one snapshot. All handles belong to one `MarkingTable`."""

    def __init__(
        self,
        handles: list[StateHandle],
        whole: bool,
        to_wall: Callable[[float], float],
        out: Callable[[bytes, GroupRange | None], None],
        groups: GroupRange | None = None,
    ) -> None:
        """`whole`: all cells, not only those that have changed. `out`: gets each part, with the groups of its keys; None: it is
        for all tasks, or the task's keys are not divided into groups. `groups`: those of the task's keys."""
        self.whole = whole
        self.groups = groups
        #: The groups of the part at hand.
        self.at_hand: GroupRange | None = None
        self.to_wall, self.out = to_wall, out
        self.cells = 0
        self.done = False
        for handle in handles:
            handle.begin_saving(every_cell(handle) if whole else None)
        self.parts = (part for handle in handles for part in self.labelled_parts(handle))
        self.table = handles[0].table if handles else None

    def step(self) -> bool:
        """Encode one part; return whether all is encoded. Raises StateError for a value that cannot be encoded, and an error of
        any kind for a key.
        """
        table = self.table
        if table is None or self.done:
            self.done = True
            return True
        key = table.key
        try:
            part = next(self.parts, None)
        finally:
            table.key = key  # it was set for messages
        if part is None:
            self.done = True
        elif part["values"] or part["gone"]:
            self.cells += len(part["values"])
            self.out(end_part(part), self.at_hand)
        return self.done

    def labelled_parts(self, handle: StateHandle) -> Iterator[Part]:
        """Yield the parts of a state; the first one with values says what it is declared as. So does the first one of other
        groups: a task may read these groups only.
        """
        if isinstance(handle, KeyTimers):
            yield from self.parts_of(handle)
            return
        label, groups = declared(handle), NONE
        for part in self.parts_of(handle):
            if part["values"] and groups is not self.at_hand:
                part["declared"], groups = label, self.at_hand
            yield part

    def parts_of(self, handle: StateHandle) -> Iterator[Part]:
        """Yield the parts of a state. Between two of them, the task may run."""
        if isinstance(handle, MarkingListHandle):
            yield from self.parts_of_lists(handle)
            return
        put, frozen = self.putter(handle), handle.frozen
        cells = handle.waiting if self.whole else list(handle.waiting)
        for share in self.shares_of(handle, cells):
            if not share:
                yield begin_part(handle)
            elif self.is_simple(handle):
                yield from self.simple_parts(handle, share)
            elif isinstance(handle, MapHandle) and self.whole:
                yield from self.parts_of_maps(handle, share, put)
            else:
                yield from self.plain_parts(handle, share, put)
        handle.waiting = set()  # nothing is frozen from here on
        for share in self.shares_of(handle, list(frozen)):
            if not share:
                yield begin_part(handle)
            while share:
                part, size = begin_part(handle), 0
                while share and size <= MOST_BYTES and len(part["values"]) < MOST_CELLS:
                    cell = share.pop()
                    found = frozen.pop(cell)
                    if found is not NONE or not self.whole:
                        size += put(part, cell, found, True)
                yield part
        handle.waiting = None

    def shares_of(self, handle: StateHandle, cells: list[Any]) -> Iterator[list[Any]]:
        """Yield cells of a state in the order of their groups, some at a time, and note these groups; the list is emptied.
        Between two slices of work it yields nothing, as an empty list."""
        keyed = not isinstance(handle, ValueHandle) or handle.keyed
        if self.groups is None or not keyed:
            self.at_hand = None
            yield cells
            return
        holds_items = isinstance(handle, MapHandle) and type(handle.waiting) is not list
        shares = Shares(self.groups, len(cells), MOST_CELLS, holds_items)
        while shares.divides and cells:
            shares.divide(cells[-MOST_DIVIDED:], handle)
            del cells[-MOST_DIVIDED:]
            yield []
        if not shares.divides:
            shares.keep_all(cells)
        for self.at_hand, share in shares.in_order():
            yield share

    def plain_parts(self, handle: StateHandle, share: list[Any], put: Callable[..., int]) -> Iterator[Part]:
        """Yield cells one by one, as they are: those that have changed since are frozen."""
        frozen, waiting, whole = handle.frozen, handle.waiting, self.whole
        while share:
            part, size = begin_part(handle), 0
            for _ in range(MOST_CELLS):
                if size > MOST_BYTES or not share:
                    break
                cell = share.pop()
                if whole:
                    if cell in frozen:
                        continue
                elif cell in waiting:
                    waiting.discard(cell)
                else:
                    continue
                size += put(part, cell, self.present(handle, cell), False)
            yield part

    def parts_of_maps(self, handle: MapHandle, share: list[Any], put: Callable[..., int]) -> Iterator[Part]:
        """Yield the items of some keys; those of a key may be many."""
        frozen, part, size = handle.frozen, begin_part(handle), 0
        while share:
            key = share.pop()
            for item in [*handle.cells.get(key, ()), *handle.raw.get(key, ())]:
                cell = key, item
                if cell in frozen:
                    continue
                size += put(part, cell, self.present(handle, cell), False)
                if size > MOST_BYTES or len(part["values"]) >= MOST_CELLS:
                    yield part
                    part, size = begin_part(handle), 0
        yield part

    def parts_of_lists(self, handle: MarkingListHandle) -> Iterator[Part]:
        """Yield the lists of all keys, or what is new at their ends; those of a key may be in several parts."""
        cells = handle.waiting if self.whole else list(handle.waiting)
        for share in self.shares_of(handle, cells):
            part, size, room = begin_part(handle), 0, MOST_CELLS
            while share:
                cell = handle.at_work = share.pop()
                at, end = self.take_list(handle, cell)
                if not end and not self.whole:
                    part["gone"].append(original(cell))
                    room -= 1
                while end:
                    taken, grown = self.put_piece(handle, part, cell, at, min(end, at + room))
                    at, size, room = at + taken, size + grown, room - max(taken, 1)
                    if room <= 0 or size > MOST_BYTES:
                        yield part
                        part, size, room = begin_part(handle), 0, MOST_CELLS
                    if at >= end:
                        break
                if end > MOST_CELLS:
                    handle.long_done.add(cell)
                handle.at_work = NONE
            yield part
        handle.waiting, handle.lengths = None, {}
        handle.frozen.clear()

    def take_list(self, handle: MarkingListHandle, cell: Any) -> tuple[int, int]:
        """Return which elements of a list are saved, from one position up to another; it no longer waits."""
        end = handle.lengths[cell] if cell in handle.lengths else handle.length_of(cell)
        if self.whole:
            return 0, end
        handle.waiting.discard(cell)
        return handle.saved_same[cell], end

    def put_piece(
        self, handle: MarkingListHandle, part: Part, cell: Any, at: int, end: int
    ) -> tuple[int, int]:
        """Put a list's elements from `at` to `end`, or fewer if they are large, into a part; return how many these are, and
        their bytes.
        """
        codec, frozen = handle.codec, handle.frozen.get(cell)
        handle.table.key = cell
        stored: Sequence[bytes] = () if frozen is not None else handle.raw.get(cell, ())
        elements, times = frozen or (handle.cells.get(cell, ()), handle.times.get(cell, ()))
        is_bytes = frozen is not None and not handle.plain
        data: list[Any] = []
        size = 0
        for place in range(at, end):
            if place < len(stored):
                data.append(stored[place])
            else:
                data.append(encoded(codec, elements[place - len(stored)], is_bytes, handle))
            size += len(data[-1])
            if size > MOST_BYTES:
                break
        part["keys"].append(original(cell))
        part["values"].append([at, *data] if at else data)
        if handle.expiry is not None:
            part["times"].append([self.to_wall(time) for time in times[at : at + len(data)]])
        return len(data), size

    def is_simple(self, handle: StateHandle) -> bool:
        """Return whether a state has small values of an exact type, without times."""
        return isinstance(handle, ValueHandle) and handle.simple and handle.exact in SMALL

    def simple_parts(self, handle: StateHandle, share: list[Any]) -> Iterator[Part]:
        """Yield the values that have not changed since, as fast as Python can."""
        assert isinstance(handle, ValueHandle)
        waiting, frozen, get = handle.waiting, handle.frozen, handle.cells.get
        encode = msgspec.msgpack.encode
        while share:
            cells = share[-MOST_CELLS:]
            del share[-MOST_CELLS:]
            if not self.whole:
                cells = [cell for cell in cells if cell in waiting]  # the others are frozen
                waiting.difference_update(cells)
            elif frozen:
                cells = [cell for cell in cells if cell not in frozen]
            values = list(map(get, cells))
            part = begin_part(handle)
            if not self.whole and None in values:  # no value of these types is None
                part["gone"] = [original(cell) for cell, value in zip(cells, values) if value is None]
                cells = [cell for cell, value in zip(cells, values) if value is not None]
                values = [value for value in values if value is not None]
            try:
                if self.whole and handle.raw:  # no value of these types is None
                    raw = handle.raw
                    part["values"] = [
                        raw[cell] if value is None else encode(value) for cell, value in zip(cells, values)
                    ]
                else:
                    part["values"] = list(map(encode, values))
            except Exception:
                for cell, value in zip(cells, values):  # which one?
                    handle.table.key = cell
                    handle.codec.encode(value, handle)
                raise
            boxed = BoxedKey in set(map(type, cells))
            part["keys"] = list(map(original, cells)) if boxed else cells
            yield part

    # A cell.

    def present(self, handle: StateHandle, cell: Any) -> Any:
        """Return what `kept` would return, but for parts of a mutable type, which are as they are."""
        if isinstance(handle, ValueHandle):
            found, expiry = handle.cells.get(cell, NONE), handle.expiry
            if found is NONE and cell in handle.raw:
                found = StoredBytes(handle.raw[cell])
        elif isinstance(handle, MapHandle):
            found, expiry = handle.cells.get(cell[0], {}).get(cell[1], NONE), handle.expiry
            if found is NONE and cell[1] in handle.raw.get(cell[0], ()):
                found = StoredBytes(handle.raw[cell[0]][cell[1]])
        else:
            return handle.kept(cell)
        if found is NONE:
            return NONE
        return found, None if expiry is None else expiry.written_at(cell)

    def putter(self, handle: StateHandle) -> Callable[[Part, Any, Any, bool], int]:
        """Return what puts a cell, and what it held, into a part; it returns how many bytes that took."""
        if isinstance(handle, MapHandle):
            return self.item_putter(handle)
        if isinstance(handle, KeyTimers):
            return self.put_timers
        assert isinstance(handle, ValueHandle)
        return self.value_putter(handle)

    def value_putter(self, handle: ValueHandle) -> Callable[[Part, Any, Any, bool], int]:
        table, codec, plain, timed = handle.table, handle.codec, handle.plain, handle.expiry is not None

        def put(part: Part, cell: Any, found: Any, frozen: bool) -> int:
            if found is NONE:
                part["gone"].append(original(cell))
                return 0
            table.key = cell
            data = encoded(codec, found[0], frozen and not plain, handle)
            part["keys"].append(original(cell))
            part["values"].append(data)
            if timed:
                part["times"].append(self.to_wall(found[1]))
            return len(data)

        return put

    def item_putter(self, handle: MapHandle) -> Callable[[Part, Any, Any, bool], int]:
        table, keys_codec, codec = handle.table, handle.keys_codec, handle.codec
        plain, timed = handle.plain, handle.expiry is not None

        def put(part: Part, cell: Any, found: Any, frozen: bool) -> int:
            key, item = cell
            table.key = key
            name = keys_codec.kept(item, handle)
            if found is NONE:
                part["gone"].append((original(key), name))
                return len(name)
            data = encoded(codec, found[0], frozen and not plain, handle)
            part["keys"].append(original(key))
            part["values"].append([(name, data)])
            if timed:
                part["times"].append([self.to_wall(found[1])])
            return len(name) + len(data)

        return put

    def put_timers(self, part: Part, cell: Any, found: Any, frozen: bool) -> int:
        """Put the timers of a key into a part."""
        if found is NONE:
            part["gone"].append(original(cell))
            return 0
        names = found[0]
        part["keys"].append(original(cell))
        part["values"].append(list(names))
        part["times"].append([self.to_wall(time) for time in names.values()])
        return sum(map(len, names))


def encoded(codec: Codec, value: Any, is_bytes: bool, handle: StateHandle) -> bytes:
    """Return a value as bytes that can be read again. `is_bytes`: it was encoded when it was frozen. Raises StateError."""
    if type(value) is StoredBytes:
        return value.data
    if not is_bytes:
        return codec.kept(value, handle)
    codec.check_readable(value, handle)
    data: bytes = value
    return data
