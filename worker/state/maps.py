"""The handle of MapState: a mapping for each key.

The running call keeps a log of the items that it has changed, so that a map with a million items costs a call no more than the
items that it touches. After a start all items are there, and the value of each stays bytes until it is touched. The order of
the items is not part of the state: an undone deletion puts its item last.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from worker.state.codecs import Codec
from worker.state.expiry import Expiry
from worker.state.stored_keys import stored_key
from worker.state.table import NONE, StateHandle, StateTable, StoredBytes

#: In the log of a call: the whole map was replaced.
WHOLE = object()
#: Types of which two values that are equal cannot be told apart.
SAME_IF_EQUAL = frozenset((int, str, bytes, bool))


class MapHandle(StateHandle):
    """A dict per key."""

    def __init__(
        self, table: StateTable, name: str, keys: Codec, codec: Codec, ttl: float | None = None
    ) -> None:
        super().__init__(table, name)
        self.keys_codec = keys
        self.codec = codec
        self.plain = codec.plain
        #: Whether items' keys that are equal are the same, so that items can be decoded one by one. Else all of a map are, so
        #: that it keeps the keys that were saved, such as Decimal("1.0"), and not those by which it was asked.
        self.by_item = keys.exact in SAME_IF_EQUAL
        #: The map of each key; never empty.
        self.cells: dict[Any, dict[Any, Any]] = {}
        #: The times of writing, by (key, item's key).
        self.expiry = None if ttl is None else Expiry(ttl)
        self.turn = 0
        #: What undoes the running call, the last change last: (item's key, old value or NONE, whether it is encoded, its time
        #: of writing), or (WHOLE, old map or None, its items that were bytes or None, times of writing).
        self.log: list[tuple[Any, Any, Any, Any]] = []
        #: The items that are in the log.
        self.logged: set[Any] = set()

    # Reading.

    def live(self) -> dict[Any, Any]:
        """Return the items of the key at hand that are not over."""
        key = self.table.key
        if key is NONE:
            self.table.no_key(self.what())
        if self.raw:
            self.touch_all(key)
        items = self.cells.get(key)
        if items is None:
            return {}
        if self.expiry is not None:
            now = self.table.now()
            for item in [item for item in items if self.expiry.is_over((key, item), now)]:
                self.remove(item)
        return items

    def __getitem__(self, item: Any) -> Any:
        key = self.table.key
        if key is NONE:
            self.table.no_key(self.what())
        items = self.cells.get(key)
        found = NONE if items is None else items.get(item, NONE)
        if found is NONE:
            if self.raw:
                found = self.first_touch(key, item)
            if found is NONE:
                raise KeyError(item)
        if self.expiry is not None and self.expiry.is_over((key, item), self.table.now()):
            self.remove(item)
            raise KeyError(item)
        if not self.plain:
            self.keep_old(item if type(item) is self.keys_codec.exact else self.own_key(key, item))
        return found

    def get(self, item: Any, default: Any = None) -> Any:
        """Return the value of an item, or `default`."""
        try:
            return self[item]
        except KeyError:
            return default

    def __contains__(self, item: Any) -> bool:
        if self.raw and self.expiry is None and item in self.raw.get(self.table.key, ()):
            return True
        key = self.table.key
        return item in (self.live() if self.expiry is not None or key is NONE else self.cells.get(key, ()))

    def __len__(self) -> int:
        key = self.table.key
        if self.raw and self.expiry is None and key is not NONE:
            return len(self.cells.get(key, ())) + len(self.raw.get(key, ()))
        return len(self.live())

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.live())

    def keys(self) -> Any:
        """Return the keys of the items."""
        return self.live().keys()

    def values(self) -> Any:
        """Return the values of the items."""
        return self.readable().values()

    def items(self) -> Any:
        """Return the items."""
        return self.readable().items()

    def readable(self) -> dict[Any, Any]:
        """Return the map for reading of its values, which their reader may change in place if they are mutable."""
        items = self.live()
        if not self.plain:
            for item in items:
                self.keep_old(item)
        return items

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MapHandle):
            return self is other or self.live() == other.live()
        return isinstance(other, Mapping) and self.live() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<MapState {self.name!r}: {self.peek(self.table.key)!r}>"

    # Writing.

    def __setitem__(self, item: Any, value: Any) -> None:
        table = self.table
        key = table.key
        if key is NONE:
            table.no_key(self.what())
        if type(item) is not self.keys_codec.exact:
            item = self.keys_codec.fitting(item, self)
        if type(value) is not self.codec.exact:
            value = self.codec.fitting(value, self)
        self.keep_old(item)
        items = self.cells.get(key)
        if items is None:
            items = self.cells[key] = {}
        items[item] = value
        if self.expiry is not None:
            self.expiry.wrote((key, item), table.now())

    def __delitem__(self, item: Any) -> None:
        if item not in self:
            raise KeyError(item)
        self.remove(item)

    def pop(self, item: Any, default: Any = NONE) -> Any:
        """Remove an item and return its value; without one, return `default` or raise KeyError."""
        try:
            found = self[item]
        except KeyError:
            if default is NONE:
                raise
            return default
        self.remove(item)
        return found

    def setdefault(self, item: Any, default: Any = None) -> Any:
        """Return the value of an item; without one, write `default`."""
        try:
            return self[item]
        except KeyError:
            self[item] = default
            return self[item]

    def update(self, other: Any = (), /, **items: Any) -> None:
        """Write the items of a mapping, or of (key, value) pairs."""
        for item, value in {**dict(other), **items}.items():
            self[item] = value

    def clear(self) -> None:
        """Remove all items of the key at hand."""
        key = self.table.key
        if key is NONE:
            self.table.no_key(self.what())
        items, stored = self.cells.pop(key, None), self.raw.pop(key, None)
        if items is None and stored is None:
            return
        self.begin_log()
        times: dict[Any, float | None] = {}
        if self.expiry is not None:
            for item in (*(items or ()), *(stored or ())):
                times[item] = self.expiry.written_at((key, item))
                self.expiry.forget((key, item))
        self.log.append((WHOLE, items, stored, times))
        self.logged.clear()

    def remove(self, item: Any) -> None:
        """Remove an item that is there."""
        key = self.table.key
        if type(item) is not self.keys_codec.exact:
            item = self.own_key(key, item)
        self.keep_old(item)
        items = self.cells[key]
        del items[item]
        if not items:
            del self.cells[key]
        if self.expiry is not None:
            self.expiry.forget((key, item))

    def own_key(self, key: Any, item: Any) -> Any:
        """Return the key that the map has for one that is equal to it, such as 2 for 2.0: an undone deletion brings it back."""
        if self.raw:
            self.first_touch(key, item)
        return stored_key(item, self.cells.get(key, ()))

    def sweep(self, now: float, most: int) -> None:
        """Drop up to `most` items whose time is over."""
        if self.expiry is not None:
            for key, item in self.expiry.over(now, most):
                self.drop(key, item)
                self.expiry.forget((key, item))

    def drop(self, key: Any, item: Any) -> None:
        """Remove an item, if it is there; nothing undoes this."""
        for maps in (self.cells, self.raw):
            items = maps.get(key, {})
            if item in items:
                del items[item]
                if not items:
                    del maps[key]

    # What no call has touched since the task began.

    def first_touch(self, key: Any, item: Any) -> Any:
        """Return the value of an item that no call has touched since the task began, from now on one of `cells`; NONE if there
        is none. Raises StateError if it does not fit the declared type.
        """
        stored = self.raw.get(key)
        if stored is None or item not in stored:
            return NONE
        if not self.by_item or type(item) is not self.keys_codec.exact:
            self.touch_all(key)
            return self.cells[key][item]
        found = self.codec.opened(stored[item], self, key)
        self.moves += 1
        items = self.cells.get(key)
        if items is None:
            items = self.cells[key] = {}
        items[item] = found
        del stored[item]
        if not stored:
            del self.raw[key]
        self.moves += 1
        return found

    def touch_all(self, key: Any) -> None:
        """Decode all items of a key. Raises StateError."""
        stored = self.raw.get(key)
        if stored is not None:
            found = {item: self.codec.opened(data, self, key) for item, data in stored.items()}
            self.moves += 1
            items = self.cells.get(key)
            if items is None:
                self.cells[key] = found
            else:
                items.update(found)
            del self.raw[key]
            self.moves += 1

    def peek(self, key: Any) -> dict[Any, Any]:
        """Return the items of a key, and touch none. Raises StateError."""
        items = dict(self.cells.get(key, ()))
        for item, data in self.raw.get(key, {}).items():
            items[item] = self.codec.opened(data, self, key)
        return items

    # Undoing.

    def begin_log(self) -> None:
        """Begin the log of the running call, once in a call."""
        if self.turn != self.table.turn:
            self.turn = self.table.turn
            self.log.clear()
            self.logged.clear()
            self.table.add_changed(self)

    def keep_old(self, item: Any) -> None:
        """Keep what undoes the change of an item, once in a call."""
        self.begin_log()
        if item in self.logged:
            return
        key = self.table.key
        items = self.cells.get(key)
        old = NONE if items is None else items.get(item, NONE)
        if old is NONE and self.raw:
            old = self.first_touch(key, item)
        encoded = not self.plain and old is not NONE
        if encoded:
            old = self.codec.encode(old, self)
        written = None if self.expiry is None else self.expiry.written_at((key, item))
        self.log.append((item, old, encoded, written))
        self.logged.add(item)

    def undo(self) -> None:
        key = self.table.key
        while self.log:
            item, old, encoded, written = self.log.pop()
            if item is WHOLE:
                if old is not None:
                    self.cells[key] = old
                if encoded is not None:
                    self.raw[key] = encoded
                if self.expiry is not None:
                    for each, time in written.items():
                        self.expiry.restore((key, each), time)
                continue
            items = self.cells.setdefault(key, {})
            if old is NONE:
                items.pop(item, None)
            else:
                items[item] = self.codec.decode(old) if encoded else old
            if not items:
                del self.cells[key]
            if self.expiry is not None:
                self.expiry.restore((key, item), written)
        self.logged.clear()
        self.turn = 0


class MarkingMapHandle(MapHandle):
    """The handle of a task whose snapshots hold what has changed: it marks items, not whole maps."""

    def keep_old(self, item: Any) -> None:
        self.begin_log()
        if item in self.logged:
            return
        MapHandle.keep_old(self, item)
        touched, cell = self.touched, (self.table.key, item)
        if touched is not None and cell not in touched:
            _, old, _, written = self.log[-1]
            touched[cell] = NONE if old is NONE else (old, written)

    def clear(self) -> None:
        key = self.table.key
        for item in (*self.cells.get(key, ()), *self.raw.get(key, ())):
            self.mark((key, item))
        MapHandle.clear(self)

    def sweep(self, now: float, most: int) -> None:
        if self.expiry is not None:
            for cell in self.expiry.over(now, most):
                self.mark(cell)
            MapHandle.sweep(self, now, most)

    def mark_at_hand(self) -> None:
        pass

    def kept(self, cell: Any) -> Any:
        key, item = cell
        found = self.cells.get(key, {}).get(item, NONE)
        if found is not NONE:
            value = found if self.plain else self.codec.encode(found, self)
        elif item in self.raw.get(key, ()):
            value = StoredBytes(self.raw[key][item])
        else:
            return NONE
        return value, None if self.expiry is None else self.expiry.written_at(cell)

    def bring_back(self, cells: dict[Any, Any]) -> None:
        own, plain, decode, expiry = self.cells, self.plain, self.codec.decode, self.expiry
        for cell, was in cells.items():
            key, item = cell
            if was is NONE:
                self.drop(key, item)
            elif type(was[0]) is StoredBytes:
                self.drop(key, item)
                self.raw.setdefault(key, {})[item] = was[0].data
            else:
                own.setdefault(key, {})[item] = was[0] if plain else decode(was[0])
            if expiry is not None:
                expiry.restore(cell, None if was is NONE else was[1])

    def take_over(self, other: Any) -> None:
        self.cells, self.raw, self.expiry = other.cells, other.raw, other.expiry


MutableMapping.register(MapHandle)
