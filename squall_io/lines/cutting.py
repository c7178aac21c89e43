"""Cuts lines out of bytes that are read in slices. Each line has the position where it begins and the position after it.

A line ends with "\\n" or "\\r\\n"; the last line of a file may end with the file. A split has the lines that begin in it, so
each line of a file is in exactly one split, wherever the file is cut.
Must not know: file systems, encodings, spouts.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from sys import maxsize
from typing import Any, Final

#: Bytes read at once.
SLICE: Final = 1 << 20
#: Bytes of the longest line that is kept; of a longer line, only the position is reported.
LONGEST: Final = 16 << 20
#: Endings of packed files.
PACKED: Final = (".gz", ".bz2")
#: Endings of files packed in an unsupported way.
FOREIGN: Final = (".zst", ".snappy", ".lz4", ".lzo", ".lzo_deflate", ".deflate", ".xz", ".zip", ".7z", ".Z")

#: The position of a line, the position of the next line, and the line's bytes without its end; None if the line is too long.
Line = tuple[int, int, bytes | None]
#: `read(offset, length)`: at most `length` bytes of a file; b"" at its end.
Read = Callable[[int, int], bytes]


class Damaged(Exception):
    """A packed file is damaged or truncated."""


class ShortFile(Exception):
    """A file ends before it should."""


def lines_of_split(read: Read, start: int, end: int, size: int, position: int) -> Iterator[Line]:
    """Yield the lines of [start, end) that begin at `position` or later; raise `ShortFile` if the file has less than
    `size` bytes."""
    if (begin := max(start, position)) >= end:
        return
    slices = _slices(read, max(0, begin - 1), size)
    if begin:
        # The line that contains the byte before this split belongs to an earlier split. It may extend past this whole split.
        place = begin - 1
        for data in slices:
            if (found := data.find(b"\n")) >= 0:
                place += found + 1
                slices = chain([data[found + 1 :]], slices)
                break
            place += len(data)
            if place >= end:
                return
        begin = place
    yield from cut(slices, begin, end)


def _slices(read: Read, offset: int, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `offset` on; raise `ShortFile` if it has less than `size` bytes."""
    while data := read(offset, SLICE):
        offset += len(data)
        yield data
    if offset < size:
        raise ShortFile(f"it ends after {offset} bytes, and had {size} when reading began")


def packed_lines(read: Read, ending: str, position: int) -> Iterator[Line]:
    """Yield the lines of a packed file that begin at `position` or later, counted in unpacked bytes. Raises `Damaged`."""
    for line in cut(_unpacked(_slices(read, 0, 0), ending), 0):
        if line[0] >= position:
            yield line


def cut(slices: Iterable[bytes], place: int, end: int = maxsize) -> Iterator[Line]:
    """Yield the lines that begin before `end` of bytes whose first line begins at `place`."""
    cutter = LineCutter(place)
    for data in slices:
        yield from cutter.feed(data, end)
        if cutter.place >= end:
            return
    if (last := cutter.end()) is not None:
        yield last


class LineCutter:
    """Cuts lines out of bytes that come one slice after the other."""

    def __init__(self, place: int) -> None:
        """place: the position of the first byte, at which a line begins."""
        #: The position of the unfinished line.
        self.place = place
        #: The position after the last byte of finished slices.
        self.fed = place
        self._kept: list[bytes] = []  # the bytes of the unfinished line

    def feed(self, data: bytes, end: int = maxsize) -> Iterator[Line]:
        """Yield the lines that end in a slice, and begin before `end`; read them all before the next call."""
        pieces = data.split(b"\n")  # a fifth of the time of `find` for each line
        rest = pieces.pop()
        place = self.place
        if pieces and self.fed > place:  # the first piece continues the unfinished line
            after = self.fed + len(pieces[0]) + 1
            self._kept.append(pieces.pop(0))
            self.place = self.fed = after
            yield place, after, self._joined(after - 1 - place)
            place = after
        returns, ends, long = b"\r" in data, place + len(data) > end, len(data) > LONGEST
        for piece in pieces:
            if ends and place >= end:
                break
            after = place + len(piece) + 1
            if long and len(piece) > LONGEST:
                yield place, after, None
            else:
                yield place, after, piece[:-1] if returns and piece.endswith(b"\r") else piece
            place = after
        if pieces:
            self.place = self.fed = place
        self.fed += len(rest)
        if rest and self.fed - self.place <= LONGEST:
            self._kept.append(rest)
        elif rest:
            self._kept.clear()

    def _joined(self, length: int) -> bytes | None:
        """Return the unfinished line, of which nothing is kept any more; None if it is too long."""
        line = b"".join(self._kept) if length <= LONGEST else None
        self._kept.clear()
        return line[:-1] if line is not None and line.endswith(b"\r") else line

    def end(self) -> Line | None:
        """Return the last line, which has no end; None if there is none. The file has no further bytes."""
        place, length = self.place, self.fed - self.place
        if not length:
            return None
        line = b"".join(self._kept) if length <= LONGEST else None
        self._kept.clear()
        self.place = self.fed
        return place, self.fed, line


def _unpacked(slices: Iterable[bytes], ending: str) -> Iterator[bytes]:
    """Yield the bytes of a packed file, at most a slice at a time; the file may consist of several packed streams."""
    member: Any = None  # zlib's and bz2's decompressors have no common class
    for data in slices:
        left: bytes | None = data
        while left is not None:
            if member is None:
                left = left.lstrip(b"\0")  # padding after the last stream is allowed
                if not left:
                    break
                member = zlib.decompressobj(wbits=31) if ending == ".gz" else bz2.BZ2Decompressor()
            try:
                unpacked = member.decompress(left, SLICE)
            except (zlib.error, OSError, EOFError, ValueError) as error:
                raise Damaged(f"it is damaged: {error}") from None
            if unpacked:
                yield unpacked
            if member.eof:
                left = member.unused_data or None
                member = None
            elif isinstance(member, bz2.BZ2Decompressor):
                left = None if member.needs_input else b""
            else:
                left = member.unconsumed_tail or None
    if member is not None:
        raise Damaged("it is truncated: it ends in the middle of a packed stream")
