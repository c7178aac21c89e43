"""The handles of ValueState and BroadcastState: `self.times.value`.

Hot: reading and writing a value costs about as much as an item of a dict. A value of an immutable type is kept by reference. Of
a mutable one, the encoded value at its first reading in a call is what undoes the call, since its owner may change it in place.
A value that has been bytes since the start is looked for only where there is no other, so this costs others nothing.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, NoReturn

from topology_api import StateError
from worker.state.codecs import Codec
from worker.state.expiry import Expiry
from worker.state.table import NONE, StateHandle, StateTable, StoredBytes

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: The key of a broadcast state's only cell.
WHOLE = ""


class ValueHandle(StateHandle):
    """One value per key; with `keyed = False`, one value for the whole bolt."""

    def __init__(
        self,
        table: StateTable,
        name: str,
        codec: Codec,
        *,
        default: Any = None,
        ttl: float | None = None,
        keyed: bool = True,
    ) -> None:
        super().__init__(table, name)
        self.codec = codec
        self.default = default
        self.keyed = keyed
        #: Whether values are immutable.
        self.plain = codec.plain
        self.exact = codec.exact
        #: The value of each key.
        self.cells: dict[Any, Any] = {}
        self.expiry = None if ttl is None else Expiry(ttl)
        #: The call in which `old` was set.
        self.turn = 0
        #: What the value was before the running call: the value, its bytes if it is mutable, or NONE.
        self.old: Any = NONE
        #: Whether `old` is encoded.
        self.encoded = False
        #: When the value had been written before the running call.
        self.old_written: float | None = None

    @property
    @cython.locals(table=StateTable)
    def value(self) -> Any:
        """The value of the key at hand, or the default."""
        table = self.table
        key = table.key if self.keyed else WHOLE
        if key is table.none:
            table.no_key(self.what())
        found = self.cells.get(key, table.none)
        if found is table.none and self.raw:
            found = self.first_touch(key)
        if self.expiry is not None and found is not NONE and self.expiry.is_over(key, table.now()):
            self.keep_old(key)
            del self.cells[key]
            self.expiry.forget(key)
            found = NONE
        if self.plain:
            return self.default if found is NONE else found
        self.keep_old(key)
        if found is NONE:
            if self.default is None:
                return None
            # A copy becomes the key's own value, since its owner may change it.
            found = self.cells[key] = deepcopy(self.default)
            if self.expiry is not None:
                self.expiry.wrote(key, table.now())
        return found

    @value.setter
    @cython.locals(table=StateTable)
    def value(self, new: Any) -> None:
        table = self.table
        key = table.key if self.keyed else WHOLE
        if key is table.none:
            table.no_key(self.what())
        if type(new) is not self.exact:
            new = self.codec.fitting(new, self)
        if not self.keyed and not table.for_all:
            self.not_for_all()
        if self.turn != table.turn:
            self.keep_old(key)
        self.cells[key] = new
        if self.expiry is not None:
            self.expiry.wrote(key, table.now())

    def clear(self) -> None:
        """Forget the value of the key at hand: the default applies again."""
        table = self.table
        key = table.key if self.keyed else WHOLE
        if key is NONE:
            table.no_key(self.what())
        if not self.keyed and not table.for_all:
            self.not_for_all()
        if key in self.cells or key in self.raw:
            self.keep_old(key)
            del self.cells[key]
            if self.expiry is not None:
                self.expiry.forget(key)

    def keep_old(self, key: Any) -> None:
        """Keep what undoes the running call, once in a call."""
        if self.turn == self.table.turn:
            return
        old = self.cells.get(key, NONE)
        if old is NONE and self.raw:
            old = self.first_touch(key)
        self.encoded = not self.plain and old is not NONE
        self.old = self.codec.encode(old, self) if self.encoded else old
        if self.expiry is not None:
            self.old_written = self.expiry.written_at(key)
        self.turn = self.table.turn
        self.table.add_changed(self)

    def first_touch(self, key: Any) -> Any:
        """Return the value of a key that no call has touched since the task began, from now on one of `cells`; NONE if there is
        none. Raises StateError if it does not fit the declared type.
        """
        data = self.raw.get(key)
        if data is None:
            return NONE
        found = self.codec.opened(data, self, key)
        self.moves += 1
        self.put_opened(key, found)
        del self.raw[key]
        if not self.raw:
            self.raw = {}  # the memory of the old one was that of all keys
        self.moves += 1
        return found

    def put_opened(self, key: Any, value: Any) -> None:
        """Let a key have a value that it had in `raw`."""
        self.cells[key] = value

    def load(self, keys: list[Any], values: Iterable[Any]) -> None:
        """Let keys have values that a snapshot says."""
        self.cells.update(zip(keys, values))

    def at(self, key: Any) -> Any:
        """Return the value of a key; NONE if it has none, or one that no call has touched since the task began."""
        return self.cells.get(key, NONE)

    def at_marker(self, key: Any) -> Any:
        """Return the same as of the last marker, while it is being saved, unless `touched` says what it was."""
        return self.cells.get(key, NONE)

    def current(self) -> dict[Any, Any]:
        """Return the values that a call has touched since the task began; the dict may be the handle's own."""
        return self.cells

    def count(self) -> int:
        """Return how many these are."""
        return len(self.cells)

    def mark_at_hand(self) -> None:
        touched = self.touched
        if touched is None:
            return
        cell = self.table.key if self.keyed else WHOLE
        if cell not in touched:  # what undoes the call is what the value was at the last snapshot, too
            touched[cell] = NONE if self.old is NONE else (self.old, self.old_written)

    def kept(self, cell: Any) -> Any:
        found = self.cells.get(cell, NONE)
        if found is not NONE:
            value = found if self.plain else self.codec.encode(found, self)
        elif cell in self.raw:
            value = StoredBytes(self.raw[cell])
        else:
            return NONE
        return value, None if self.expiry is None else self.expiry.written_at(cell)

    def bring_back(self, cells: dict[Any, Any]) -> None:
        own, plain, decode, expiry = self.cells, self.plain, self.codec.decode, self.expiry
        for cell, was in cells.items():
            if was is NONE:
                own.pop(cell, None)
            elif type(was[0]) is StoredBytes:
                own.pop(cell, None)
                self.raw[cell] = was[0].data
            else:
                own[cell] = was[0] if plain else decode(was[0])
            if expiry is not None:
                expiry.restore(cell, None if was is NONE else was[1])

    def take_over(self, other: Any) -> None:
        self.cells, self.raw, self.expiry = other.cells, other.raw, other.expiry

    def undo(self) -> None:
        key = self.table.key if self.keyed else WHOLE
        old = self.old
        if self.encoded:
            old = self.codec.decode(old)
        if old is NONE:
            self.cells.pop(key, None)
        else:
            self.cells[key] = old
        if self.expiry is not None:
            self.expiry.restore(key, self.old_written)
        self.turn = 0
        self.old = NONE

    def sweep(self, now: float, most: int) -> None:
        """Drop up to `most` values whose time is over, so that keys that never come again do not stay."""
        if self.expiry is not None:
            for key in self.expiry.over(now, most):
                self.mark(key)
                self.cells.pop(key, None)
                self.raw.pop(key, None)
                self.expiry.forget(key)

    def __iadd__(self, other: object) -> NoReturn:
        raise StateError(
            f"{self.table.where}: self.{self.name} is a state: write self.{self.name}.value += ..."
        )

    def __repr__(self) -> str:
        return f"<{'ValueState' if self.keyed else 'BroadcastState'} {self.name!r}>"

    def not_for_all(self) -> NoReturn:
        """Raise the error for a broadcast state that is written for a tuple that other tasks do not get."""
        raise StateError(
            f"{self.table.where}: {self.what()} is a BroadcastState, the same in all tasks, so it can be written only for a "
            "tuple that came by all_grouping"
        )
