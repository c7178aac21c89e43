"""The handle of ListState: a list for each key.

A call that only appends is undone by cutting the list; any other change keeps a copy of the list as it was before the call.
For snapshots a list is two stretches: the elements before the first that has changed since the last snapshot, and the others.
So a list that grows at its end is not saved again, and elements for which a snapshot waits are frozen only if they change
themselves. After a start all elements are bytes until one of them is touched; meanwhile others can be appended.
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

    def kept(self, cell: Any) -> Any:
        elements, stored = self.cells.get(cell, ()), self.raw.get(cell, ())
        if not elements and not stored:
            return NONE
        values: list[Any] = [StoredBytes(data) for data in stored]
        values += elements if self.plain else [self.codec.encode(each, self) for each in elements]
        return values, None if self.expiry is None else list(self.times.get(cell, ()))

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
    """The handle of a task whose snapshots hold what has changed: it marks from which element on a list has."""

    def __init__(self, table: StateTable, name: str, codec: Codec, ttl: float | None = None) -> None:
        super().__init__(table, name, codec, ttl)
        #: Of each list that was changed since the last snapshot began: how many of its first elements were not; and the same of
        #: the snapshot before, which is being encoded.
        self.same: dict[Any, int] = {}
        self.saved_same: dict[Any, int] = {}
        #: Of each list that was changed since: its length when that snapshot began.
        self.lengths: dict[Any, int] = {}
        #: The list of which some elements are encoded and others wait; and long ones of which all are.
        self.at_work: Any = NONE
        self.long_done: set[Any] = set()

    def begin(self) -> None:
        if self.turn != self.table.turn:
            key = self.table.key
            self.mark_from(key, self.length_of(key))
            ListHandle.begin(self)

    def keep_all(self, at: int = 0) -> None:
        ListHandle.keep_all(self, at)
        key = self.table.key
        if self.mark_from(key, at) and key not in self.frozen:
            # No call has changed what was there when the snapshot began, and this one has not yet.
            length = self.lengths[key]
            assert self.old is not None
            self.frozen[key] = self.old[:length], self.old_times[:length]

    def begin_saving(self, cells: list[Any] | None) -> None:
        StateHandle.begin_saving(self, cells)
        self.saved_same, self.same = self.same, {}
        self.lengths, self.at_work, self.long_done = {}, NONE, set()

    def mark(self, cell: Any) -> None:
        if self.mark_from(cell, 0) and cell not in self.frozen:
            self.frozen[cell] = self.kept(cell)

    def mark_at_hand(self) -> None:
        """The list is marked where it is known which elements change: in `begin` and `keep_all`."""

    def mark_from(self, key: Any, at: int) -> bool:
        """Elements from the position `at` on are about to change, or to be added. Return whether a snapshot waits for some."""
        touched, same = self.touched, self.same.get(key)
        assert touched is not None
        if same is None:
            touched.add(key)
            self.same[key] = at
            if self.is_waiting(key):
                self.lengths[key] = self.length_of(key)
        elif at < same:
            self.same[key] = at
        return at < self.lengths.get(key, 0) and self.is_waiting(key)

    def is_waiting(self, key: Any) -> bool:
        """Return whether a snapshot has not encoded all elements of a list."""
        waiting = self.waiting
        if waiting is None:
            return False
        if key == self.at_work:
            return True
        return key not in self.long_done if type(waiting) is not set else key in waiting


def place_in(elements: list[Any], at: Any) -> int:
    """Return the first position that an index means, which is in range; of a slice, 0."""
    if isinstance(at, slice):
        return 0
    place: int = operator.index(at)
    return place if place >= 0 else place + len(elements)


MutableSequence.register(ListHandle)
