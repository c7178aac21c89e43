"""Columns of root and edge ids, which are signed 64-bit integers. A batch has one column of each, and so does an ack batch.

`Ids` is the type of a column. In plain Python it is `list`, because no class written in Python is nearly as fast. In the
compiled core it is `IdColumn`: bare integers side by side, read and written without a Python object for each (measured: this
saves 60 ns a tuple). Both types take `Ids()`, `Ids(iterable)`, `append`, `extend`, `pop`, `len`, indices, slices, iteration and
comparison. Every access is checked against the bounds. Must not know: what ids mean, batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import index
from sys import byteorder
from typing import Any, Final

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    from array import array

#: The initial room of a column.
_ROOM: Final = 16


class IdColumn:
    """A growing column of 64-bit integers, as raw memory.

    Its short methods do not check whether `self` is None: their callers do.
    """

    __slots__ = ("count", "data", "items", "room")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.hold(array("q", ids))

    def hold(self, items: array[int]) -> None:
        """Make these the column's ids."""
        #: Memory for `room` items, of which the first `count` belong to the column.
        self.items = items
        self.count = self.room = len(items)
        if cython.compiled:
            #: The address of the items. Every method that may move the items updates it.
            self.data = items.data.as_longlongs  # type: ignore[attr-defined]

    @cython.nonecheck(False)
    @cython.locals(count=cython.Py_ssize_t)
    def append(self, item: int) -> None:
        """Add an id at the end. If it is not a 64-bit integer, raise OverflowError or TypeError."""
        count = self.count
        if count == self.room:
            self.grow(count + 1)
        if cython.compiled:
            self.data[count] = item
        else:
            self.items[count] = item
        self.count = count + 1

    def grow(self, least: int) -> None:
        """Make room for twice `least` ids."""
        room = max(_ROOM, 2 * least)
        if cython.compiled:
            resize(self.items, room)
            self.data = self.items.data.as_longlongs  # type: ignore[attr-defined]
        else:
            self.items.frombytes(bytes(8 * (room - self.room)))
        self.room = room

    @cython.nonecheck(False)
    def get(self, at: int) -> int:
        """Return the id at a position from 0 on."""
        if at < 0 or at >= self.count:
            raise IndexError(f"position {at} of a column of {self.count} ids")
        if cython.compiled:
            return self.data[at]
        return self.items[at]

    @cython.nonecheck(False)
    def put(self, at: int, item: int) -> None:
        """Replace the id at a position from 0 on."""
        if at < 0 or at >= self.count:
            raise IndexError(f"position {at} of a column of {self.count} ids")
        if cython.compiled:
            self.data[at] = item
        else:
            self.items[at] = item

    @cython.nonecheck(False)
    @cython.locals(item=cython.longlong)
    def pop(self) -> int:
        """Remove the last id and return it."""
        item = self.get(self.count - 1)
        self.count -= 1
        return item

    def used(self) -> array[int]:
        """Return a copy of the ids as an array."""
        return self.items[: self.count]

    def tobytes(self) -> bytes:
        """Return the ids in the machine's byte order."""
        return self.used().tobytes()

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids at the end. If any of them is not a 64-bit integer, raise OverflowError or TypeError and add nothing."""
        # Converted before anything is changed: if this raises, `room` must still be right, or `append` would write past the
        # end.
        added = ids.used() if isinstance(ids, IdColumn) else array("q", ids)
        items = self.items
        del items[self.count :]
        self.hold(items)  # so that the column is valid if there is no memory for more ids
        items.extend(added)
        self.hold(items)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[int]:
        return iter(self.used())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return IdColumn(self.used()[at])
        return self.get(self.position(at))

    def __setitem__(self, at: Any, item: Any) -> None:
        if isinstance(at, slice):
            raise TypeError("ids are replaced one by one")
        self.put(self.position(at), item)

    def __delitem__(self, at: Any) -> None:
        left = self.used()
        del left[at]
        self.hold(left)

    def position(self, at: Any) -> int:
        """Convert a position that may count from the end to a position that counts from 0."""
        position = index(at)
        return position + self.count if position < 0 else position

    @cython.locals(position=cython.Py_ssize_t, wanted=cython.longlong)
    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int):
            return False
        wanted = item
        for position in range(self.count):  # noqa: SIM110 # a generator would be a closure of objects
            if self.get(position) == wanted:
                return True
        return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdColumn):
            return self.used() == other.used()
        return self.used().tolist() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IdColumn({self.used().tolist()})"

    def __reduce__(self) -> Any:
        return IdColumn, (self.used(),)


Ids: Any
if cython.compiled:
    Ids = IdColumn
else:
    Ids = list


def as_ids(ids: Any) -> Any:
    """Return these ids as a column. A column is returned unchanged."""
    return ids if type(ids) is Ids else Ids(ids)


def table_of(ids: Iterable[int]) -> Any:
    """Return a table of ids that is accessed by position only. In the compiled core, it is raw memory."""
    return array("q", ids) if cython.compiled else list(ids)


def view_of(ids: Any) -> Any:
    """Return the ids for reading by position only, as fast as possible."""
    return as_ids(ids).used() if cython.compiled else ids


#: Structs are cached for columns of up to this many ids.
MOST_KEPT: Final = 4096


@lru_cache(maxsize=4096)
def _columns(size: int) -> struct.Struct:
    return struct.Struct(f"<{size}q")


def raw(ids: Any) -> bytes:
    """Return ids as little-endian 64-bit integers (measured, a list of 256: 6.7 µs with a kept Struct, 13.1 µs with an
    array)."""
    if not isinstance(ids, list):
        return _in_little_endian(ids.used()).tobytes()
    size = len(ids)
    return (_columns(size) if size <= MOST_KEPT else struct.Struct(f"<{size}q")).pack(*ids)


def from_raw(data: bytes | memoryview) -> Any:
    """Return the ids of a raw column."""
    if byteorder == "little" and not cython.compiled:
        return memoryview(data).cast("q").tolist()
    column = array("q")
    column.frombytes(data)
    return Ids(_in_little_endian(column))


def _in_little_endian(column: array[int]) -> array[int]:
    """Return the column; on a big-endian machine, swap its bytes."""
    if byteorder != "little":
        column.byteswap()
    return column
