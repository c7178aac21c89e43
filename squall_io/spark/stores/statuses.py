"""Decodes file statuses as Hadoop's client writes them (`FileStatus.write`): a whole listing crosses from Java to Python in
one
call, where asking each status for its four fields would take four calls.

Each is its length in 4 bytes and a protobuf message `FileStatusProto`, whose field numbers Hadoop keeps for good.
Must not know: where the bytes come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from squall_io.spark.manifest.files import FileStatus

# Fields of FileStatusProto, and the wire types of protobuf.
_TYPE: Final = 1
_PATH: Final = 2
_LENGTH: Final = 3
_MODIFIED: Final = 7
_FOLDER: Final = 1
_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5


def decode_statuses(folder: str, data: bytes, number: int) -> list[FileStatus]:
    """Return `number` statuses of a folder's entries (relative to the table), by path. What follows them is padding."""
    found = []
    at = 0
    for _ in range(number):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(_decode(folder, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return sorted(found, key=lambda status: status.path)


def _decode(folder: str, message: bytes) -> FileStatus:
    numbers = {_TYPE: 0, _LENGTH: 0, _MODIFIED: 0}
    name = ""
    for field, value in _fields(message):
        if isinstance(value, int):
            numbers[field] = value
        elif field == _PATH:
            name = value.decode().rstrip("/").rpartition("/")[2]
    is_folder = numbers[_TYPE] == _FOLDER
    size = 0 if is_folder else numbers[_LENGTH]
    return FileStatus(f"{folder}/{name}" if folder else name, size, is_folder, numbers[_MODIFIED] / 1000)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: number, and the integer or the bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif kind in (_FIXED_32, _FIXED_64):
            at += 4 if kind == _FIXED_32 else 8
        else:
            raise ValueError(f"a file status of Hadoop has a field of wire type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
