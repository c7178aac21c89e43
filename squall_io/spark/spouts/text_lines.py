"""Lines out of bytes that come in slices: each with the place where it begins and the place after it.

A line ends with "\\n", or with "\\r\\n"; the last one of a file may end with the file. Of a split those lines are taken that
begin in it, so that each line of a file is in one split, wherever files are cut.
Must not know: file systems, encodings, spouts.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, Protocol

#: Bytes that are asked for at once.
SLICE: Final = 1 << 20
#: Bytes of the longest line that is kept; of a longer one only its place is told.
LONGEST: Final = 16 << 20

#: Where a line begins, where the next one does, and its bytes without the end of the line; None: it is too long.
Line = tuple[int, int, bytes | None]
#: `read(offset, length)`: at most so many bytes of a file; none at its end.
Read = Callable[[int, int], bytes]


class Damaged(Exception):
    """A packed file is damaged or truncated."""


class ShortFile(Exception):
    """A file ends before it should."""


def lines_of_split(read: Read, start: int, end: int, size: int, position: int) -> Iterator[Line]:
    """The lines of [start, end) that begin at `position` or later; `ShortFile` when the file has less than `size` bytes."""
    begin = max(start, position)
    if begin >= end:
        return
    slices = _slices(read, max(0, begin - 1), size)
    if begin:
        # What the byte before ours belongs to is the split's before; a line that has not ended by our end leaves us none.
        place = begin - 1
        for data in slices:
            found = data.find(b"\n")
            if found >= 0:
                place += found + 1
                slices = chain([data[found + 1 :]], slices)
                break
            place += len(data)
            if place >= end:
                return
        begin = place
    for line in cut(slices, begin):
        if line[0] >= end:
            return
        yield line


def _slices(read: Read, offset: int, size: int) -> Iterator[bytes]:
    """The bytes of a file from `offset` on, at least as far as `size`."""
    while data := read(offset, SLICE):
        offset += len(data)
        yield data
    if offset < size:
        raise ShortFile(f"it ends after {offset} bytes, and had {size} when reading began")


def packed_lines(read: Read, ending: str, position: int) -> Iterator[Line]:
    """The lines of a packed file that begin at `position` or later; places are those of the unpacked bytes. `Damaged`."""
    for line in cut(_unpacked(_slices(read, 0, 0), ending), 0):
        if line[0] >= position:
            yield line


def cut(slices: Iterable[bytes], place: int) -> Iterator[Line]:
    """The lines of bytes of which the first is at `place`."""
    kept: list[bytes] = []  # of the line that is not over
    length = 0
    for data in slices:
        begin = 0
        while (found := data.find(b"\n", begin)) >= 0:
            after = place + length + found + 1 - begin
            if length:
                kept.append(data[begin:found])
                length += found - begin
                line = b"".join(kept) if length <= LONGEST else None
                kept.clear()
                length = 0
            else:
                line = data[begin:found] if found - begin <= LONGEST else None
            yield place, after, _without_return(line)
            place = after
            begin = found + 1
        if begin < len(data):
            length += len(data) - begin
            if length <= LONGEST:
                kept.append(data[begin:])
            else:
                kept.clear()
    if length:
        yield place, place + length, b"".join(kept) if length <= LONGEST else None


def _without_return(line: bytes | None) -> bytes | None:
    return line[:-1] if line is not None and line.endswith(b"\r") else line


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...

    def rest(self) -> bytes | None:
        """What is to be given to `decompress` next, None: more of the file."""


class _Gzip:
    """A member of a gzip file."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(data, max_length)

    def rest(self) -> bytes | None:
        return self._zlib.unconsumed_tail or None


class _Bzip2:
    """A stream of a bzip2 file."""

    def __init__(self) -> None:
        self._bz2 = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._bz2.eof

    @property
    def unused_data(self) -> bytes:
        return self._bz2.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._bz2.decompress(data, max_length)

    def rest(self) -> bytes | None:
        return None if self._bz2.needs_input else b""


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {".gz": _Gzip, ".bz2": _Bzip2}


def _unpacked(slices: Iterable[bytes], ending: str) -> Iterator[bytes]:
    """The bytes of a packed file, at most a slice at a time; it may have several members, one after the other."""
    make = _DECOMPRESSORS[ending]
    member: _Decompressor | None = None
    for data in slices:
        left: bytes | None = data
        while left is not None:
            if member is None:
                left = left.lstrip(b"\0")  # padding after the last member is allowed
                if not left:
                    break
                member = make()
            try:
                unpacked = member.decompress(left, SLICE)
            except (zlib.error, OSError, EOFError, ValueError) as error:
                raise Damaged(f"it is damaged: {error}") from None
            if unpacked:
                yield unpacked
            if member.eof:
                left = member.unused_data or None
                member = None
            else:
                left = member.rest()
    if member is not None:
        raise Damaged("it is truncated: it ends in the middle of what was packed")
