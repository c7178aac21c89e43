"""The bytes before a message that was written with a schema of a registry, as Confluent's clients write them.

A zero byte, the id of the schema as four bytes (the highest first), the message. Protobuf has the place of the message's type
between the two: how many indexes there are, then the indexes, each as a zigzag varint; [0], the first type of a file, is a
single zero byte. Must not know: registries, formats of messages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from squall_io.kit.codecs import UnreadableMessage

_HEAD: Final = struct.Struct(">bI")
_MAGIC: Final = 0
#: Where the message begins.
HEAD: Final = _HEAD.size
#: The deepest nesting of types that is read: more is no message.
_MOST_INDEXES: Final = 100


def head(schema_id: int) -> bytes:
    """Return the bytes before a message."""
    return _HEAD.pack(_MAGIC, schema_id)


def schema_id_of(data: bytes) -> int:
    """Return the id of a message's schema. Raises UnreadableMessage."""
    if len(data) < HEAD:
        raise UnreadableMessage(f"it has {len(data)} bytes: no message of a schema registry")
    magic, schema_id = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise UnreadableMessage(
            f"it begins with the byte {magic & 255}, not 0: it was written without a schema registry"
        )
    return int(schema_id)


def indexes_head(indexes: Sequence[int]) -> bytes:
    """Return the place of a Protobuf type in its file as bytes."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def indexes_of(data: bytes) -> tuple[list[int], int]:
    """Return the place of a Protobuf message's type, and where the message begins. Raises UnreadableMessage."""
    count, at = _read_varint(data, HEAD)
    if count == 0:
        return [0], at
    if not 0 < count <= _MOST_INDEXES:
        raise UnreadableMessage(
            f"it names a type with {count} indexes: it is no Protobuf message of a registry"
        )
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return indexes, at


def _varint(number: int) -> bytes:
    number = number << 1  # zigzag; no index is negative
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise UnreadableMessage("it ends within the place of its type, or that is no number")
