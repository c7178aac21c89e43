"""The handles of ValueState and BroadcastState: `self.times.value`.

Hot: reading and writing a value costs about as much as an item of a dict. A value of an immutable type is kept by reference. Of
a mutable one, the encoded value at its first reading in a call is what undoes the call, since its owner may change it in place.
A value that has been bytes since the start is looked for only where there is no other, so this costs others nothing.
Most calls write a value that the epoch has written before: `PlainValueHandle` finds it by one look-up, in a dict of what the
epoch has written, which is smaller than that of all, and writes it by none.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
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
        self.cells[key] = found
        del self.raw[key]
        if not self.raw:
            self.raw = {}  # the memory of the old one was that of all keys
        self.moves += 1
        return found

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


@cython.no_gc  # a value of an immutable type refers to no record, and the collector would look at each of a million
@cython.cclass
class RecentValue:
    """The value of a key that was written since the last marker, and what it was at that marker; NONE: it has, or had, none."""

    __slots__ = ("before", "now")

    def __init__(self, before: Any) -> None:
        self.before = self.now = before


class PlainValueHandle(ValueHandle):
    """Values of an immutable type, each of a key and without `ttl`.

    What is written goes to `touched` alone, so `cells` has what values were at the last marker. After a marker, a task moves
    them to `cells`, some at a time (`write_back`); until then they are in `leaving`. A value is in the first of these that has
    its key: `touched`, `leaving`, `cells`, `raw`. Without epochs there are no markers, and all stay in `touched`.
    """

    def __init__(self, table: StateTable, name: str, codec: Codec, default: Any) -> None:
        super().__init__(table, name, codec, default=default)
        self.touched: dict[Any, RecentValue] = {}
        #: What was written between the last two markers, and is perhaps not in `cells` yet.
        self.leaving: dict[Any, RecentValue] = {}
        #: What is left of it.
        self.left: Iterator[tuple[Any, RecentValue]] = iter(())
        #: The keys in `touched` that had no value at the marker.
        self.fresh: list[Any] = []
        #: How many more keys have a value than are in `cells`.
        self.grown = 0
        #: What the running call has read or written, if it is `read_turn` or `turn`; None: it has read what is in none.
        self.record: Any = None
        #: The call that has read last: a value that is read and then written is looked up once.
        self.read_turn = -1
        #: What that call has read, if it was in no record.
        self.read: Any = NONE

    @property
    @cython.locals(table=StateTable, record=RecentValue)
    def value(self) -> Any:
        """The value of the key at hand, or the default."""
        table = self.table
        key = table.key
        if key is table.none:
            table.no_key(self.what())
        record = self.touched.get(key)
        if record is None:
            found = self.read = self.older(key)  # before `read_turn`: it may raise
        else:
            found = record.now
        self.record = record
        self.read_turn = table.turn
        return self.default if found is table.none else found

    @value.setter
    @cython.locals(table=StateTable, record=RecentValue)
    def value(self, new: Any) -> None:
        table = self.table
        if table.key is table.none:
            table.no_key(self.what())
        if type(new) is not self.exact:
            new = self.codec.fitting(new, self)
        if self.turn != table.turn:
            self.begin(table)
        record = self.record
        if record.now is table.none:
            self.grown += 1
        record.now = new

    @cython.locals(record=RecentValue)
    def begin(self, table: StateTable) -> None:
        """The running call is about to change the value of the key at hand, for the first time."""
        if self.read_turn == table.turn:
            record, old = self.record, self.read
        else:
            record = self.touched.get(table.key)
            old = self.older(table.key) if record is None else NONE
        if record is None:
            record = RecentValue(old)
            self.touched[table.key] = record
            if old is table.none:
                self.fresh.append(table.key)
        self.record, self.old, self.turn = record, record.now, table.turn
        if table.first is None:  # as `add_changed` does; what the value was at the marker is in the record
            table.first = self
        else:
            table.others.append(self)

    @cython.locals(record=RecentValue)
    def older(self, key: Any) -> Any:
        """Return the value of a key that is not in `touched`; NONE if it has none."""
        if self.leaving:
            record = self.leaving.get(key)
            if record is not None:
                return record.now
        found = self.cells.get(key, NONE)
        if found is NONE and self.raw:
            found = self.first_touch(key)
        return found

    @cython.locals(record=RecentValue)
    def clear(self) -> None:
        table = self.table
        key = table.key
        if key is NONE:
            table.no_key(self.what())
        if self.at(key) is NONE and key not in self.raw:
            return
        if self.turn != table.turn:
            self.begin(table)
        record = self.record
        if record.now is not NONE:
            self.grown -= 1
            record.now = NONE

    @cython.locals(record=RecentValue)
    def undo(self) -> None:
        record = self.record
        self.grown += (record.now is NONE) - (self.old is NONE)
        record.now = self.old
        self.turn, self.read_turn = 0, -1
        self.old = NONE

    def at(self, key: Any) -> Any:
        record = self.touched.get(key)
        return self.at_marker(key) if record is None else record.now

    def at_marker(self, key: Any) -> Any:
        record = self.leaving.get(key)
        return self.cells.get(key, NONE) if record is None else record.now

    def current(self) -> dict[Any, Any]:
        found = dict(self.cells)
        for recent in (self.leaving, self.touched):
            found.update((key, record.now) for key, record in recent.items())
        return {key: value for key, value in found.items() if value is not NONE}

    def count(self) -> int:
        return len(self.cells) + self.grown

    def mark_at_hand(self) -> None:
        pass  # its record is there

    def kept(self, cell: Any) -> Any:
        raise AssertionError("records keep what the values were")

    def every_cell(self) -> list[Any]:
        """Return the keys of all values, and perhaps of some that are not there any more. To be called at a marker: nothing is
        in `leaving`."""
        return [*self.cells, *self.fresh, *self.raw]

    def begin_epoch(self) -> None:
        assert not self.leaving
        self.leaving = self.touched  # first: a thread that reads finds a record here or in `touched`
        self.left = iter(self.leaving.items())
        self.touched = {}
        self.fresh = []

    @cython.locals(record=RecentValue)
    def values_at_marker(self, keys: list[Any]) -> list[Any]:
        """Return the values of keys at the last marker, while they are being saved; None for a key without one in `cells`."""
        leaving, cells = self.leaving, self.cells
        found: list[Any] = []
        for key in keys:
            record = leaving.get(key)
            if record is None:
                found.append(cells.get(key))
            else:
                found.append(None if record.now is NONE else record.now)
        return found

    @cython.locals(record=RecentValue, moved=cython.Py_ssize_t, cells=dict)
    def write_back(self, most: int) -> bool:
        """Move up to `most` values from `leaving` to `cells`; return whether none is left."""
        cells, moved = self.cells, 0
        before = len(cells)
        for key, record in islice(self.left, most):
            moved += 1
            if record.now is NONE:
                cells.pop(key, None)
            else:
                cells[key] = record.now
        self.grown -= len(cells) - before
        if moved == most:
            return False
        self.leaving = {}
        return True

    def write_all_back(self) -> None:
        """Move all that is in `leaving` to `cells`."""
        if self.leaving:
            self.write_back(len(self.leaving) + 1)

    @cython.locals(record=RecentValue)
    def bring_back(self, cells: dict[Any, Any]) -> None:
        self.write_all_back()
        own = self.cells
        for cell, record in cells.items():
            if record.before is NONE:
                own.pop(cell, None)
            else:
                own[cell] = record.before
        self.touched, self.fresh, self.grown = {}, [], 0
