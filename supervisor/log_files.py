"""Reads a log in a worker's directory: either a bounded piece as text, with the offset of the next piece, or the log's end.

Offsets are in bytes of the current file; a negative offset counts from the file's end. After a rotation, the file is shorter
than the offset of a reader that follows the log. This reader first gets the rest of the older file, and then continues at 0 in
the current file. A piece never ends within a character. The directory belongs to a process that runs user code, so links, pipes
and devices in it are not accepted as logs (`squall.guarded_files`).
Must not know: HTTP.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Final

import msgspec

from squall.guarded_files import DamagedFile, open_guarded

#: Bytes of one piece by default.
SOME: Final = 64 * 1024
#: The most bytes of one piece.
MOST: Final = 4 * 1024 * 1024


class Piece(msgspec.Struct, frozen=True):
    """A piece of a log."""

    offset: int
    next_offset: int
    size: int
    text: str


def read_piece(path: Path, offset: int, limit: int = SOME) -> Piece | None:
    """Return a piece of the log at a path; None: there is no log. With a negative offset, the piece begins at the beginning of
    a line if possible."""
    limit = max(0, min(limit, MOST))
    descriptor = _open(path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            older = read_piece(path.with_name(f"{path.name}.1"), offset, limit)
            if older is not None and older.offset == offset and older.text:
                end = older.next_offset >= older.size
                return Piece(offset, 0 if end else older.next_offset, older.size, older.text)
            offset = 0
        begin = offset if offset >= 0 else max(0, size + offset)
        data = os.pread(file.fileno(), limit, begin)
    skipped = _to_a_line(data) if offset < 0 and begin > 0 else 0
    return _piece(begin + skipped, data[skipped:], size)


def tail(path: Path, since: int, most: int) -> str:
    """Return the last bytes of a file as text: `most` at most, and none of the first `since`. "" if the file is unreadable."""
    descriptor = _open(path)
    if descriptor is None:
        return ""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            size = os.fstat(descriptor).st_size
            # A file that has become shorter was truncated: its whole content is new.
            begin = max(0 if size < since else since, size - most)
            return os.pread(file.fileno(), most, begin).decode(errors="replace")
        except OSError:
            return ""


def _piece(begin: int, data: bytes, size: int) -> Piece:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(data)
    held_back, _ = decoder.getstate()  # the first bytes of an incomplete character
    if begin + len(data) >= size or len(held_back) == len(data):
        text, held_back = text + decoder.decode(b"", final=True), b""
    return Piece(begin, begin + len(data) - len(held_back), size, text)


def _open(path: Path) -> int | None:
    """Return a descriptor of a regular file; None for anything else."""
    try:
        return open_guarded(path)
    except (OSError, DamagedFile):
        return None


def _to_a_line(data: bytes) -> int:
    """Return the number of bytes before the first line that begins in `data`. If no line begins there, return the number of
    bytes that belong to a character whose first bytes were cut off."""
    found = data.find(b"\n")
    if 0 <= found < len(data) - 1:
        return found + 1
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return start
