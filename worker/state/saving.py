"""Takes what a task holds for a snapshot, whole or what has changed, and encodes it in slices while the task goes on.

`StateSaving` is made between two calls. Each `step` encodes a *part* of one state. A part says what some cells held when the
saving was made, although they may have changed since: a handle keeps what a cell was before it changes (`StateHandle.mark`, and
`ValueCell`). So a snapshot holds a task up for the time of one slice. Taking all cells
costs a list of the keys, some 20 ms for a million of them; taking those that have changed costs nothing.
A part is encoded as it was saved: values by the codec of their state, keys pickled, times as those of the wall clock. What no
call has touched since the task began is bytes already. A map is saved item by item. A list is saved in *pieces*: each says how
many elements come before it, so that of a list that has grown only its end is saved.
The parts of a state come in the order of the key groups of their cells (`worker.state.shares`), in slices, too.
Must not know: tasks, files, when a snapshot is whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from topology_api.packing import dumps_by_value
from topology_api.state_types import declared_as
from worker.routing.key_groups import GroupRange
from worker.state.codecs import Codec
from worker.state.history import changed_cells
from worker.state.keys import BoxedKey, original
from worker.state.lists import MarkingListHandle
from worker.state.maps import MapHandle
from worker.state.plain_values import PlainValueHandle, RecentValues
from worker.state.shares import Shares
from worker.state.table import NONE, StateHandle, StoredBytes
from worker.state.timers import KeyTimers
from worker.state.values import ValueHandle

#: The kind of the part with timers; the name of their state is "", which no attribute has.
TIMERS: Final = "timers"
#: The most cells of a part, or elements of lists, and about the most bytes.
MOST_CELLS: Final = 256
MOST_BYTES: Final = 64 * 1024
#: Types of keys for which all picklers do the same.
PLAIN_KEYS: Final = frozenset((str, int, bytes, bool, type(None)))
#: Types of a few bytes, which are encoded without a look at their sizes.
SMALL: Final = frozenset((int, float, bool))
#: How many cells are divided among groups at a time: that takes a millisecond.
MOST_DIVIDED: Final = 1024

Part = dict[str, Any]


class EncodedCounts(dict[int, bytes]):
    """Encoded integers: those that counts mostly are stay here."""

    def __missing__(self, value: int) -> bytes:
        return msgspec.msgpack.encode(value)


COUNTS: Final = EncodedCounts((value, msgspec.msgpack.encode(value)) for value in range(1024))


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
        part[place] = packed_keys(part[place], part["kind"]) if part[place] else b""
    return msgspec.msgpack.encode(part)


def packed_keys(keys: list[Any], kind: str) -> bytes:
    """Return keys as a pickle. Raises an error, of any kind, for keys that cannot be pickled."""
    if kind != "ValueState" or not PLAIN_KEYS.issuperset(map(type, keys)):
        return dumps_by_value(keys, 5)
    pieces: list[bytes] = []
    pickler = pickle.Pickler(SimpleNamespace(write=pieces.append), 5)
    # No key is there twice, as one of a map may be, so the pickler need not remember them.
    pickler.fast = True
    pickler.dump(keys)
    return b"".join(pieces)


def touched_cells(handles: list[StateHandle]) -> int:
    """Return how many cells have changed since the last saving was made."""
    return sum(len(handle.touched or ()) for handle in handles)


def every_cell(handle: StateHandle) -> list[Any]:
    """Return all cells of a handle; of maps, their keys."""
    if isinstance(handle, KeyTimers):
        return list(handle.times)
    if isinstance(handle, PlainValueHandle):
        return handle.every_cell()
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
        taken: list[tuple[StateHandle, Any]] = []
        for handle in handles:
            taken.append((handle, every_cell(handle) if whole else changed_cells(handle)))
            if isinstance(handle, PlainValueHandle):
                handle.groups = groups
            # What has changed does so no more from here on: the handle has another dict for what follows.
            handle.begin_epoch()
        self.parts = (part for handle, cells in taken for part in self.labelled_parts(handle, cells))
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

    def labelled_parts(self, handle: StateHandle, cells: Iterable[Any]) -> Iterator[Part]:
        """Yield the parts of a state; the first one with values says what it is declared as. So does the first one of other
        groups: a task may read these groups only. `cells`: those to encode; of the whole of a map, their keys.
        """
        if isinstance(handle, KeyTimers):
            yield from self.parts_of(handle, cells)
            return
        label = declared(handle)
        groups: Any = NONE  # no groups: they may be None
        for part in self.parts_of(handle, cells):
            if part["values"] and groups is not self.at_hand:
                part["declared"], groups = label, self.at_hand
            yield part

    def parts_of(self, handle: StateHandle, cells: Iterable[Any]) -> Iterator[Part]:
        """Yield the parts of a state. Between two of them, the task may run."""
        if isinstance(handle, PlainValueHandle):
            yield from self.parts_of_recent(handle, cells)
            return
        changed = handle.touched  # since the saving was made
        assert changed is not None
        if isinstance(handle, MarkingListHandle):
            yield from self.parts_of_lists(handle, cells, changed)
        elif isinstance(handle, MapHandle) and self.whole:
            yield from self.parts_of_maps(handle, cells, changed)
        else:
            for share in self.shares_of(handle, cells, isinstance(handle, MapHandle)):
                yield from self.plain_parts(handle, share, changed)

    def parts_of_recent(self, handle: PlainValueHandle, cells: Any) -> Iterator[Part]:
        """Yield values as they were at the marker, which their cells know."""
        parts = self.small_parts if handle.exact in SMALL else self.large_parts
        left = cells
        if isinstance(cells, RecentValues):
            if self.groups is not None and cells.divided == self.groups:
                for self.at_hand, share in cells.shares(MOST_CELLS * 3 // 4):
                    yield from parts(handle, share, 2)
                left = cells.rest[::2]
            else:
                left = cells.every_cell()
            if not left:
                return
        for share in self.shares_of(handle, left, False):
            yield from parts(handle, share, 1)

    def shares_of(self, handle: StateHandle, cells: Iterable[Any], items: bool) -> Iterator[list[Any]]:
        """Yield cells of a state in the order of their groups, some at a time, and note these groups. Between two slices of
        work it yields nothing, as an empty list. `cells`: a list is emptied. `items`: they are items of maps, not keys."""
        left = cells if isinstance(cells, list) else list(cells)
        keyed = not isinstance(handle, ValueHandle) or handle.keyed
        if self.groups is None or not keyed:
            self.at_hand = None
            yield left
            return
        shares = Shares(self.groups, len(left), MOST_CELLS, items)
        while shares.divides and left:
            shares.divide(left[-MOST_DIVIDED:], handle)
            del left[-MOST_DIVIDED:]
            yield []
        if not shares.divides:
            shares.keep_all(left)
        for self.at_hand, share in shares.in_order():
            yield share

    def plain_parts(self, handle: StateHandle, share: list[Any], changed: dict[Any, Any]) -> Iterator[Part]:
        """Yield cells one by one, as they were when the saving was made."""
        put = self.putter(handle)
        while True:
            part, size = begin_part(handle), 0
            for _ in range(MOST_CELLS):
                if size > MOST_BYTES or not share:
                    break
                cell = share.pop()
                was = changed.get(cell)
                if was is None:
                    was = self.present(handle, cell)
                    if was is not NONE or not self.whole:
                        size += put(part, cell, was, False)
                else:
                    size += put(part, cell, was, True)
            yield part
            if not share:
                return

    def parts_of_maps(
        self, handle: MapHandle, keys: Iterable[Any], changed: dict[Any, Any]
    ) -> Iterator[Part]:
        """Yield the items of all keys: those that have not changed key by key, which may have many, then the others."""
        put = self.putter(handle)
        for share in self.shares_of(handle, keys, False):
            part, size = begin_part(handle), 0
            while share:
                key = share.pop()
                for item in [*handle.cells.get(key, ()), *handle.raw.get(key, ())]:
                    cell = key, item
                    if cell in changed:
                        continue
                    size += put(part, cell, self.present(handle, cell), False)
                    if size > MOST_BYTES or len(part["values"]) >= MOST_CELLS:
                        yield part
                        part, size = begin_part(handle), 0
            yield part
        left = [cell for cell, was in changed.items() if was is not NONE]
        for share in self.shares_of(handle, left, True):
            yield from self.plain_parts(handle, share, changed)

    def parts_of_lists(
        self, handle: MarkingListHandle, cells: Iterable[Any], changed: dict[Any, Any]
    ) -> Iterator[Part]:
        """Yield the lists of all keys, or what is new at their ends; those of a key may be in several parts."""
        since = cells if isinstance(cells, dict) else {}
        for share in self.shares_of(handle, cells, False):
            part, size, room = begin_part(handle), 0, MOST_CELLS
            while share:
                cell = share.pop()
                at = since[cell][0] if since else 0
                was = changed.get(cell)
                end = handle.length_of(cell) if was is None else was[0] + len(was[1])
                if not end:
                    part["gone"].append(original(cell))
                    room -= 1
                while True:
                    if end:
                        was = changed.get(cell)
                        taken, grown = self.put_piece(handle, part, cell, at, min(end, at + room), was)
                        at, size, room = at + taken, size + grown, room - max(taken, 1)
                    if room <= 0 or size > MOST_BYTES:
                        yield part
                        part, size, room = begin_part(handle), 0, MOST_CELLS
                    if at >= end:
                        break
            yield part

    def put_piece(
        self, handle: MarkingListHandle, part: Part, cell: Any, at: int, end: int, was: Any
    ) -> tuple[int, int]:
        """Put a list's elements from `at` to `end`, or fewer if they are large, into a part; return how many these are, and
        their bytes. `was`: what the list was, if it has changed since.
        """
        codec, kept_as_bytes = handle.codec, not handle.plain
        handle.table.key = cell
        first, rest, rest_times, _ = (end, [], [], None) if was is None else was
        stored, elements = handle.raw.get(cell, ()), handle.cells.get(cell, ())
        data: list[bytes] = []
        size = 0
        for place in range(at, end):
            if place >= first:
                data.append(encoded(codec, rest[place - first], kept_as_bytes, handle))
            elif place < len(stored):
                data.append(stored[place])
            else:
                data.append(encoded(codec, elements[place - len(stored)], False, handle))
            size += len(data[-1])
            if size > MOST_BYTES:
                break
        part["keys"].append(original(cell))
        part["values"].append([at, *data] if at else data)
        if handle.expiry is not None:
            times, upto = handle.times.get(cell, []), at + len(data)
            found = [*times[at : min(upto, first)], *rest_times[max(at - first, 0) : max(upto - first, 0)]]
            part["times"].append([self.to_wall(time) for time in found])
        return len(data), size

    def small_parts(self, handle: PlainValueHandle, cells: list[Any], step: int) -> Iterator[Part]:
        """Yield small values of an exact type as fast as Python can. `step`: as in `begin_recent`."""
        encode = COUNTS.__getitem__ if handle.exact is int else msgspec.msgpack.encode
        for start in range(0, max(1, len(cells)), MOST_CELLS * step):
            part, keys, values = self.begin_recent(handle, cells, start, step)
            try:
                if self.whole and StoredBytes in set(map(type, values)):
                    part["values"] = [
                        value.data if type(value) is StoredBytes else encode(value) for value in values
                    ]
                else:
                    part["values"] = list(map(encode, values))
            except Exception:
                for key, value in zip(keys, values):  # which one?
                    handle.table.key = key
                    encoded(handle.codec, value, False, handle)
                raise
            boxed = BoxedKey in set(map(type, keys))
            part["keys"] = list(map(original, keys)) if boxed else keys
            yield part

    def large_parts(self, handle: PlainValueHandle, cells: list[Any], step: int) -> Iterator[Part]:
        """Yield other values, with a look at their sizes."""
        table, codec = handle.table, handle.codec
        for start in range(0, max(1, len(cells)), MOST_CELLS * step):
            part, keys, values = self.begin_recent(handle, cells, start, step)
            size = 0
            for key, value in zip(keys, values):
                if size > MOST_BYTES:
                    yield part
                    part, size = begin_part(handle), 0
                table.key = key
                part["values"].append(encoded(codec, value, False, handle))
                part["keys"].append(original(key))
                size += len(part["values"][-1])
            yield part

    def begin_recent(
        self, handle: PlainValueHandle, cells: list[Any], start: int, step: int
    ) -> tuple[Part, list[Any], list[Any]]:
        """Return a part that says which of the next cells have no value, and the keys and values of the others. `step`: the
        distance of two cells in the list."""
        keys, values, gone = handle.at_marker_of(cells, start, start + MOST_CELLS * step, step)
        part = begin_part(handle)
        if not self.whole:
            part["gone"] = list(map(original, gone))
        return part, keys, values

    # A cell.

    def present(self, handle: StateHandle, cell: Any) -> Any:
        """Return what `kept` would return, but for parts of a mutable type, which are as they are."""
        if isinstance(handle, ValueHandle):
            found, expiry = handle.at_marker(cell), handle.expiry
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
            name = keys_codec.kept_key(item, handle)
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
