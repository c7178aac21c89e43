"""The handle of ListState: a list for each key.

A call that only appends is undone by cutting the list; any other change keeps a copy of the list as it was before the call.
For snapshots and rewinds a list is two stretches: the elements before the first that has changed since the last snapshot, and
the others. So a list that grows at its end is not saved again, and nothing of it is kept but its length. After a start all
elements are bytes until one of them is touched; meanwhile others can be appended.
Must not know: tasks, tuples, files.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

from worker.state.codecs import Codec
from worker.state.expiry import Expiry
from worker.state.table import NONE, StateHandle, StateTable, StoredBytes


class ListCells(StateHandle):
    """The lists of all keys."""

    def __init__(self, table: StateTable, name: str, codec: Codec, ttl: float | None = None) -> None:
        super().__init__(table, name)
        self.codec = codec
        self.plain = codec.plain
        #: The list of each key, behind its elements in `raw`; never empty between two calls.
        self.cells: dict[Any, list[Any]] = {}
        #: With a `ttl`: when each element was written, as the elements are ordered.
        self.times: dict[Any, list[float]] = {}
        #: With a `ttl`: when each list was written last.
        self.expiry = None if ttl is None else Expiry(ttl)
        self.turn = 0
        #: The length of the list in `cells` before the running call.
        self.length = 0
        #: The elements before the running call, if it did more than append: a list, or bytes per element if they are mutable.
        self.old: list[Any] | None = None
        self.old_times: list[float] = []
        self.old_written: float | None = None

    def first_touch(self, key: Any) -> list[Any]:
        """Return a list of which some elements are bytes, with all decoded. Raises StateError if one does not fit the declared
        type.
        """
        stored = [self.codec.opened(data, self, key) for data in self.raw[key]]
        tail = self.cells.get(key)
        if self.turn == self.table.turn:
            self.length += len(stored)  # of the running call, whose key it is
        self.moves += 1
        self.cells[key] = stored if tail is None else stored + tail
        del self.raw[key]
        self.moves += 1
        return self.cells[key]

    def length_of(self, key: Any) -> int:
        """Return how many elements a key has, those that are over with them."""
        length = len(self.cells.get(key, ()))
        return length + len(self.raw.get(key, ())) if self.raw else length

    def peek(self, key: Any) -> list[Any]:
        """Return a list of the elements of a key, and touch none. Raises StateError."""
        stored = [self.codec.opened(data, self, key) for data in self.raw.get(key, ())]
        return stored + self.cells.get(key, [])

    def drop(self, key: Any) -> None:
        """Remove the list of a key."""
        self.cells.pop(key, None)
        self.times.pop(key, None)
        if self.expiry is not None:
            self.expiry.forget(key)


class ListHandle(ListCells):
    """A list per key, as user code sees it."""

    # Reading.

    def live(self) -> list[Any]:
        """Return the elements of the key at hand that are not over; a new list if there are none."""
        key = self.table.key
        if key is NONE:
            self.table.no_key(self.what())
        elements = self.cells.get(key)
        if self.raw and key in self.raw:
            elements = self.first_touch(key)
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
        key = self.table.key
        if self.raw and self.expiry is None and key is not NONE:
            return self.length_of(key)
        return len(self.live())

    def __bool__(self) -> bool:
        return len(self) > 0

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
        return f"<ListState {self.name!r}: {self.peek(self.table.key)!r}>"

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
            elements = self.live()
            elements[at]  # an IndexError changes nothing
            self.changing(place_in(elements, at))[at] = new
            self.rewrite(at, self.table.now())

    def __delitem__(self, at: Any) -> None:
        elements = self.live()
        elements[at]
        if not elements:  # a slice of no elements
            return
        elements = self.changing(place_in(elements, at))
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

    def changing(self, at: int = 0) -> list[Any]:
        """Return the elements of the key at hand, to be changed in place from the position `at` on: what undoes the change is
        kept.
        """
        elements = self.live()
        self.keep_all(at)
        return elements or self.cells.setdefault(self.table.key, [])

    def rewrite(self, at: Any, time: Any) -> None:
        """Set the time of writing of an element, or those of a slice."""
        if self.expiry is None:
            return
        key = self.table.key
        self.times.setdefault(key, [])[at] = time
        self.expiry.wrote(key, self.table.now())

    def sweep(self, now: float, most: int) -> None:
        """Drop up to `most` lists whose last element is over."""
        if self.expiry is not None:
            for key in self.expiry.over(now, most):
                self.mark(key)
                self.raw.pop(key, None)
                self.drop(key)

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

    def keep_all(self, at: int = 0) -> None:
        """Keep all elements as they were before the running call, once in a call. Those from the position `at` on may
        change.
        """
        key = self.table.key
        if self.raw and key in self.raw:
            self.first_touch(key)
        self.begin()
        if self.old is None:
            # What the call has appended so far is behind the old length.
            old = self.cells.get(key, [])[: self.length]
            self.old_times = self.times.get(key, [])[: self.length]
            self.old = old if self.plain else [self.codec.encode(each, self) for each in old]

    def undo(self) -> None:
        key = self.table.key
        old = self.old
        if old is None:
            elements, times = self.cells.get(key, []), self.times.get(key)
            del elements[self.length :]
            if times is not None:
                del times[self.length_of(key) :]
        else:
            elements = self.cells[key] = old if self.plain else [self.codec.decode(each) for each in old]
            if self.expiry is not None:
                self.times[key] = self.old_times
        if self.expiry is not None:
            self.expiry.restore(key, self.old_written)
        if not elements:
            self.cells.pop(key, None)
            if key not in self.raw:
                self.times.pop(key, None)
        self.turn = 0
        self.old = None


class MarkingListHandle(ListHandle):
    """The handle of a task that has epochs.

    Of a list that has changed since the last snapshot began, `touched` says (first, rest, times, written): it had the first
    elements that it has now, `first` of them, and then `rest`, as `kept` has values. `times` are those of `rest`, and `written`
    is when it was written last. While calls append only, `first` is its length and `rest` is empty.
    """

    def keep_all(self, at: int = 0) -> None:
        ListHandle.keep_all(self, at)
        assert self.old is not None
        self.keep_from(self.table.key, at, self.old, self.old_times)

    def mark(self, cell: Any) -> None:
        touched = self.touched
        assert touched is not None
        if cell not in touched:
            written = None if self.expiry is None else self.expiry.written_at(cell)
            touched[cell] = self.length_of(cell), [], [], written
        elements: list[Any] = [StoredBytes(data) for data in self.raw.get(cell, ())]
        tail = self.cells.get(cell, [])
        elements += tail if self.plain else [self.codec.encode(each, self) for each in tail]
        self.keep_from(cell, 0, elements, self.times.get(cell, []))

    def mark_at_hand(self) -> None:
        touched, key = self.touched, self.table.key
        assert touched is not None
        if key not in touched:
            touched[key] = self.length_of(key), [], [], self.old_written

    def keep_from(self, key: Any, at: int, elements: list[Any], times: list[float]) -> None:
        """Elements from the position `at` on are about to change. `elements`, `times`: of the list as it is, or was before the
        running call.
        """
        touched = self.touched
        assert touched is not None
        first, rest, rest_times, written = touched[key]
        if at < first:
            touched[key] = at, elements[at:first] + rest, times[at:first] + rest_times, written

    def merge_older(self, found: dict[Any, Any], older: dict[Any, Any]) -> None:
        for cell, was in older.items():
            first, rest, times, written = was
            later = found.get(cell)
            if later is not None and first > later[0]:
                stay = first - later[0]
                was = later[0], later[1][:stay] + rest, later[2][:stay] + times, written
            found[cell] = was

    def bring_back(self, cells: dict[Any, Any]) -> None:
        for cell, (first, rest, times, written) in cells.items():
            if not first:
                self.drop(cell)
                # Of such a list nothing is in `raw` now. Those that are bytes come before all others.
                if stored := [each.data for each in rest if type(each) is StoredBytes]:
                    self.raw[cell], rest, first = stored, rest[len(stored) :], len(stored)
            elements = self.cells.setdefault(cell, [])
            del elements[first - len(self.raw.get(cell, ())) :]
            elements += rest if self.plain else map(self.codec.decode, rest)
            if not elements:
                del self.cells[cell]
            if self.expiry is not None:
                self.restore_times(cell, self.length_of(cell) - len(times), times)
                self.expiry.restore(cell, written)

    def restore_times(self, cell: Any, first: int, times: list[float]) -> None:
        """Let the times of a list's elements be those that it has, `first` of them, and then others."""
        if first or times:
            self.times.setdefault(cell, [])[first:] = times
        else:
            self.times.pop(cell, None)

    def take_over(self, other: Any) -> None:
        self.cells, self.raw, self.times, self.expiry = other.cells, other.raw, other.times, other.expiry


def place_in(elements: list[Any], at: Any) -> int:
    """Return the first position that an index means, which is in range; of a slice, 0."""
    if isinstance(at, slice):
        return 0
    place: int = operator.index(at)
    return place if place >= 0 else place + len(elements)


MutableSequence.register(ListHandle)
