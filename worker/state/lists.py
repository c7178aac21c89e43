"""The handle of ListState: a list for each key.

A call that only appends is undone by cutting the list; any other change keeps a copy of the list as it was before the call.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

from worker.state.codecs import Codec
from worker.state.expiry import Expiry
from worker.state.table import NONE, StateHandle, StateTable


def was_longer(was: Any) -> bool:
    """Return whether something was appended to a list, and nothing else has changed: then its first elements are still there,
    and (None, their number, time of writing) is kept of it instead of a copy."""
    return was is not NONE and was[0] is None


def first_of(was: Any, elements: list[Any], times: list[float] | None) -> tuple[Any, ...]:
    """Return what `kept` would have returned when such a list was shorter. `elements`, `times`: those of a later time."""
    _, length, written = was
    return elements[:length], None if times is None else times[:length], written


class ListHandle(StateHandle):
    """A list per key."""

    def __init__(self, table: StateTable, name: str, codec: Codec, ttl: float | None = None) -> None:
        super().__init__(table, name)
        self.codec = codec
        self.plain = codec.plain
        #: The list of each key; never empty between two calls.
        self.cells: dict[Any, list[Any]] = {}
        #: With a `ttl`: when each element was written, as the elements are ordered.
        self.times: dict[Any, list[float]] = {}
        #: With a `ttl`: when each list was written last.
        self.expiry = None if ttl is None else Expiry(ttl)
        self.turn = 0
        #: The length before the running call.
        self.length = 0
        #: The elements before the running call, if it did more than append: a list, or bytes per element if they are mutable.
        self.old: list[Any] | None = None
        self.old_times: list[float] = []
        self.old_written: float | None = None

    # Reading.

    def live(self) -> list[Any]:
        """Return the elements of the key at hand that are not over; a new list if there are none."""
        key = self.table.key
        if key is NONE:
            self.table.no_key(self.what())
        elements = self.cells.get(key)
        if elements is None:
            return []
        if self.expiry is not None:
            oldest = self.table.now() - self.expiry.ttl
            times = self.times[key]
            if min(times, default=oldest + 1) <= oldest:
                self.keep_all()
                kept = [at for at, time in enumerate(times) if time > oldest]
                if not kept:
                    self.drop(key)
                    return []
                elements[:] = [elements[at] for at in kept]
                times[:] = [times[at] for at in kept]
        return elements

    def readable(self) -> list[Any]:
        """Return the list for reading of its elements, which their reader may change in place if they are mutable."""
        elements = self.live()
        if not self.plain and elements:
            self.keep_all()
        return elements

    def __getitem__(self, at: Any) -> Any:
        return self.readable()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.readable())

    def __len__(self) -> int:
        return len(self.live())

    def __bool__(self) -> bool:
        return bool(self.live())

    def __contains__(self, value: object) -> bool:
        return value in self.live()

    def index(self, value: Any, *bounds: int) -> int:
        """Return the first position of a value. Raises ValueError if it is absent."""
        return self.live().index(value, *bounds)

    def count(self, value: Any) -> int:
        """Return how often a value occurs."""
        return self.live().count(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListHandle):
            return self is other or self.live() == other.live()
        return isinstance(other, list) and self.live() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<ListState {self.name!r}: {self.cells.get(self.table.key, [])!r}>"

    # Writing.

    def append(self, value: Any) -> None:
        """Add an element at the end."""
        table = self.table
        key = table.key
        if key is NONE:
            table.no_key(self.what())
        if type(value) is not self.codec.exact:
            value = self.codec.fitting(value, self)
        self.begin()
        elements = self.cells.get(key)
        if elements is None:
            elements = self.cells[key] = []
        elements.append(value)
        if self.expiry is not None:
            now = table.now()
            self.times.setdefault(key, []).append(now)
            self.expiry.wrote(key, now)

    def extend(self, values: Iterable[Any]) -> None:
        """Add elements at the end."""
        for value in list(values):
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> ListHandle:
        self.extend(values)
        return self

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice):
            new = [self.codec.fitting(each, self) for each in value]
            elements = self.changing()
            elements[at] = new
            self.rewrite(at, [self.table.now()] * len(new))
            if not elements:
                self.drop(self.table.key)
        else:
            new = self.codec.fitting(value, self)
            self.live()[at]  # an IndexError changes nothing
            self.changing()[at] = new
            self.rewrite(at, self.table.now())

    def __delitem__(self, at: Any) -> None:
        self.live()[at]
        elements = self.changing()
        del elements[at]
        if self.expiry is not None:
            del self.times[self.table.key][at]
        if not elements:
            self.drop(self.table.key)

    def insert(self, at: int, value: Any) -> None:
        """Insert an element before a position."""
        new = self.codec.fitting(value, self)
        if not self.live():
            self.append(new)
            return
        self.changing().insert(at, new)
        if self.expiry is not None:
            now = self.table.now()
            self.times[self.table.key].insert(at, now)
            self.expiry.wrote(self.table.key, now)

    def pop(self, at: int = -1) -> Any:
        """Remove an element and return it. Raises IndexError if there is none."""
        value = self.readable()[at]
        del self[at]
        return value

    def remove(self, value: Any) -> None:
        """Remove the first element that equals a value. Raises ValueError if it is absent."""
        del self[self.index(value)]

    def reverse(self) -> None:
        """Reverse the order of the elements."""
        if self.live():
            self.changing().reverse()
            if self.expiry is not None:
                self.times[self.table.key].reverse()

    def clear(self) -> None:
        """Remove all elements of the key at hand."""
        if self.live():
            self.keep_all()
            self.drop(self.table.key)

    def changing(self) -> list[Any]:
        """Return the elements of the key at hand, to be changed in place: what undoes the change is kept."""
        elements = self.live()
        self.keep_all()
        return elements or self.cells.setdefault(self.table.key, [])

    def rewrite(self, at: Any, time: Any) -> None:
        """Set the time of writing of an element, or those of a slice."""
        if self.expiry is None:
            return
        key = self.table.key
        self.times.setdefault(key, [])[at] = time
        self.expiry.wrote(key, self.table.now())

    def drop(self, key: Any) -> None:
        """Remove the list of a key."""
        self.cells.pop(key, None)
        self.times.pop(key, None)
        if self.expiry is not None:
            self.expiry.forget(key)

    def sweep(self, now: float, most: int) -> None:
        """Drop up to `most` lists whose last element is over."""
        if self.expiry is not None:
            for key in self.expiry.over(now, most):
                self.mark(key)
                self.drop(key)

    # Snapshots.

    def kept(self, cell: Any) -> Any:
        elements = self.cells.get(cell)
        if not elements:
            return NONE
        values = list(elements) if self.plain else [self.codec.encode(each, self) for each in elements]
        if self.expiry is None:
            return values, None, None
        return values, list(self.times.get(cell, ())), self.expiry.written_at(cell)

    # Undoing.

    def begin(self) -> None:
        """Keep the length before the running call, once in a call."""
        table = self.table
        if self.turn == table.turn:
            return
        self.turn = table.turn
        elements = self.cells.get(table.key)
        self.length = 0 if elements is None else len(elements)
        self.old = None
        if self.expiry is not None:
            self.old_written = self.expiry.written_at(table.key)
        table.add_changed(self)

    def keep_all(self) -> None:
        """Keep all elements as they were before the running call, once in a call."""
        self.begin()
        if self.old is not None:
            return
        key = self.table.key
        # What the call has appended so far is behind the old length.
        self.old = self.cells.get(key, [])[: self.length]
        self.old_times = self.times.get(key, [])[: self.length]
        if not self.plain:
            self.old = [self.codec.encode(each, self) for each in self.old]

    def undo(self) -> None:
        key = self.table.key
        old = self.old
        if old is None:
            elements, times = self.cells.get(key, []), self.times.get(key)
            del elements[self.length :]
            if times is not None:
                del times[self.length :]
        else:
            elements = self.cells[key] = old if self.plain else [self.codec.decode(each) for each in old]
            if self.expiry is not None:
                self.times[key] = self.old_times
        if self.expiry is not None:
            self.expiry.restore(key, self.old_written)
        if not elements:
            self.cells.pop(key, None)
            self.times.pop(key, None)
        self.turn = 0
        self.old = None


class MarkingListHandle(ListHandle):
    """The handle of a task whose snapshots hold what has changed: of a list to which a call appends, it keeps the length."""

    def keep_all(self) -> None:
        ListHandle.keep_all(self)
        touched, key = self.touched, self.table.key
        if touched is not None and self.old is not None and was_longer(was := touched.get(key, NONE)):
            # The call may change all of it: what it was at the last snapshot is at the beginning of what undoes the call.
            touched[key] = first_of(was, self.old, self.old_times if self.expiry is not None else None)

    def mark(self, cell: Any) -> None:
        touched = self.touched
        if touched is None:
            return
        was = touched.get(cell)
        if was is None:
            touched[cell] = self.kept(cell)
        elif was_longer(was):
            values, times, _ = self.kept(cell)
            touched[cell] = first_of(was, values, times)

    def mark_at_hand(self) -> None:
        touched, key = self.touched, self.table.key
        if touched is not None and key not in touched:
            touched[key] = (None, self.length, self.old_written) if self.length else NONE

    def merge_older(self, found: dict[Any, Any], older: dict[Any, Any]) -> None:
        for cell, was in older.items():
            later = found.get(cell)
            if later is not None and was_longer(was) and not was_longer(later):
                found[cell] = first_of(was, later[0], later[1])
            else:
                found[cell] = was

    def bring_back(self, cells: dict[Any, Any]) -> None:
        plain, decode, expiry = self.plain, self.codec.decode, self.expiry
        for cell, was in cells.items():
            if was is NONE:
                self.drop(cell)
                continue
            values, times, written = was
            if values is None:
                length = was[1]
                del self.cells[cell][length:]
                if expiry is not None:
                    del self.times[cell][length:]
            else:
                self.cells[cell] = values if plain else list(map(decode, values))
                if expiry is not None:
                    self.times[cell] = times
            if expiry is not None:
                expiry.restore(cell, written)

    def take_over(self, other: Any) -> None:
        self.cells, self.times, self.expiry = other.cells, other.times, other.expiry


MutableSequence.register(ListHandle)
