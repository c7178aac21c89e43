"""Damage of a message: truncated, changed in a bit, or changed with a fitting checksum.

The layout of the first bytes is written out here again, as the commit had it. Must not know: how messages are read.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

from tests.frozen.plain_values import plain, text_of
from topology_api import SquallError

#: Magic, version, kind, checksum; then the header, whose last byte is the length of the sender's name.
START: Final = struct.Struct("<2sBBI")
HEADER: Final = struct.Struct("<IIIIIQB")
BATCH_HEAD: Final = struct.Struct("<HHHHIQHII")
#: Changed bytes of a body; none in pickled parts, since that may do anything.
CHANGED: Final = 160
#: A longer text is replaced by its hash.
SHOWN: Final = 400

Parts = Sequence[bytes]


def sealed(kind: int, rest: bytes, magic: bytes = b"SQ", version: int = 2) -> bytes:
    """The first part of a message with a checksum that fits."""
    return START.pack(magic, version, kind, crc32(rest, kind)) + rest


def damaged(parts: Parts, is_pickled: bool) -> Iterator[tuple[str, list[bytes]]]:
    """Each damage of a message, by name."""
    first, further = parts[0], list(parts[1:])
    kind, rest = first[3], first[START.size :]
    for size in sorted({*range(0, min(len(first), 80), 3), len(first) // 2, len(first) - 1}):
        yield f"cut after {size}", [first[:size], *further]
    for at in range(0, min(len(first), 120), 2):
        yield f"bit flipped in {at}", [_changed(first, at, first[at] ^ 1 << at % 8), *further]
    yield "more after it", [first + b"\0", *further]
    yield "no parts", []
    yield "a part too many", [*parts, b"more"]
    yield "a part too few", list(parts[:-1])
    yield "another magic", [sealed(kind, rest, magic=b"XX"), *further]
    for version in (0, 1, 3, 255):
        yield f"version {version}", [sealed(kind, rest, version=version), *further]
    for other in (0, 1, 2, 3, 4, 5, 6, 255):
        yield f"kind {other}", [sealed(other, rest), *further]
    for size in sorted({*range(0, min(len(rest), 120), 5), len(rest) - 1}):
        yield f"sealed after {size}", [sealed(kind, rest[:size]), *further]
    yield "sealed with more", [sealed(kind, rest + b"\0"), *further]
    for at in range(min(len(rest), HEADER.size + _head_size(rest) if is_pickled else HEADER.size + CHANGED)):
        for change in (1, 0xFF):
            yield (
                f"sealed with {at} changed by {change}",
                [sealed(kind, _changed(rest, at, rest[at] ^ change)), *further],
            )


def _head_size(rest: bytes) -> int:
    """Bytes of the sender's name, the head of a batch, and the ids."""
    sender = rest[HEADER.size - 1]
    tuples = BATCH_HEAD.unpack_from(rest, HEADER.size + sender)[4]
    return int(sender + BATCH_HEAD.size + min(16 * tuples, 64))


def _changed(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def shown(message: dict[str, Any]) -> dict[str, Any]:
    """A message as JSON values; its rows by their `repr`, so that a list is no tuple."""
    told = dict(message)
    if "rows" in told:
        told["rows"] = in_short(ascii(told["rows"]))
    return {name: plain(value) for name, value in told.items()}


def in_short(text: str) -> str:
    """A text, or its replacement."""
    return (
        text if len(text) <= SHOWN else f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()}"
    )


def outcomes(read: Callable[[Parts], dict[str, Any]], parts: Parts, is_pickled: bool) -> list[str]:
    """The outcome of each damage, in order: the error's name, or a hash of the result."""
    found = []
    for _, each in damaged(parts, is_pickled):
        try:
            found.append(hashlib.sha256(text_of(shown(read(each))).encode()).hexdigest()[:8])
        except SquallError as error:
            found.append(type(error).__name__)
        except Exception as error:
            found.append(f"crash-{type(error).__name__}")
    return found


def words_of(text: str) -> list[str]:
    """The words of a text in which repeated ones have their number: `BadFrame*40 a1b2c3d4`."""
    runs = (run.partition("*") for run in text.split())
    return [word for word, _, times in runs for _ in range(int(times or 1))]
