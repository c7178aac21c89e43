"""The bytes of dead letters: the values of a tuple, and a batch of letters as one file has them.

A file begins with a line that names the format. Each letter follows as the lengths of two parts, the parts, and a checksum: the
letter as JSON, which any daemon reads; and the values in the encoding of the links between workers. Values are encoded by
msgpack if it carries them, and else pickled: only a worker of the topology unpickles them, on the host where they were given
up.
Must not know: files, who writes and who reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import msgspec

from squall.dead_letters.letter import DeadLetter, clean, text_of
from topology_api.errors import SquallError

FORMAT: Final = b"squall dead letters 1\n"
#: The most bytes of the encoded values of a letter.
MOST_BYTES: Final = 32 * 1024 * 1024
#: The codec whose bytes never run code when they are decoded.
SAFE: Final = "msgpack"
_PICKLE: Final = "pickle"
_LENGTHS: Final = struct.Struct(">II")
_CHECK: Final = struct.Struct(">I")
_LETTER: Final = msgspec.json.Decoder(DeadLetter)
_PARTS: Final = msgspec.msgpack.Decoder(list[bytes])


class BadLetters(SquallError):
    """Bytes that are not dead letters, or values that cannot be decoded."""


class KeptLetter(msgspec.Struct, frozen=True):
    """A letter with its encoded values."""

    letter: DeadLetter
    body: bytes = b""


def with_values(letter: DeadLetter, row: Sequence[Any]) -> KeptLetter:
    """Return a letter with its encoded values; without them if they cannot be encoded, or are too large."""
    from squall.transport.columns import pack_rows  # it can unpickle, so daemons must not load it
    from squall.transport.errors import Unencodable

    why = ""
    for codec in (SAFE, _PICKLE):
        try:
            parts = [bytes(part) for part in pack_rows(codec, letter.fields, [tuple(row)])]
        except Unencodable as error:
            why = clean(str(error))
            continue
        body = msgspec.msgpack.encode(parts)
        if len(body) <= MOST_BYTES:
            return KeptLetter(replace(letter, codec=codec, why_no_values=""), body)
        why = f"its values have {len(body):,} bytes; the most that are kept are {MOST_BYTES:,}"
        break
    return KeptLetter(replace(letter, codec="", why_no_values=why))


def as_text_only(letter: DeadLetter, why: str) -> KeptLetter:
    """Return a letter without its values, which it shows as short texts. `why`: why they are not kept."""
    values = tuple(
        value if position in letter.as_text else text_of(value)
        for position, value in enumerate(letter.values)
    )
    return KeptLetter(
        replace(letter, values=values, as_text=tuple(range(len(values))), codec="", why_no_values=why)
    )


def values_of(kept: KeptLetter) -> tuple[Any, ...]:
    """Return the values of a letter. Unpickles them: only for the worker that emits them. Raises `SquallError`."""
    from squall.transport.columns import unpack_rows

    letter = kept.letter
    try:
        parts = _PARTS.decode(kept.body)
    except msgspec.MsgspecError as error:
        raise BadLetters(f"the values of dead letter {letter.id} are damaged: {error}") from None
    return tuple(unpack_rows(letter.codec, parts, 1, len(letter.fields))[0])


def encode(letters: Iterable[KeptLetter]) -> bytes:
    """Return the bytes of a file."""
    return b"".join([FORMAT, *(record for each in letters for record in _record(each))])


def size_of(kept: KeptLetter) -> int:
    """Return how many bytes a letter takes in a file, about."""
    return sum(map(len, _record(kept)))


def decode(data: bytes) -> tuple[list[KeptLetter], str]:
    """Return the letters of a file, and what is wrong with the rest of its bytes; "" if nothing is."""
    if not data.startswith(FORMAT):
        return [], "it does not begin like a file of dead letters"
    found: list[KeptLetter] = []
    position = len(FORMAT)
    while position < len(data):
        try:
            head, body = _LENGTHS.unpack_from(data, position)
            begin = position + _LENGTHS.size
            end = begin + head + body
            (check,) = _CHECK.unpack_from(data, end)
            if check != crc32(data[position:end]):
                return found, f"wrong checksum at byte {position}"
            letter = _LETTER.decode(data[begin : begin + head])
        except (struct.error, msgspec.MsgspecError, RecursionError) as error:
            return found, f"byte {position}: {error}"
        found.append(KeptLetter(letter, data[begin + head : end]))
        position = end + _CHECK.size
    return found, ""


def _record(kept: KeptLetter) -> list[bytes]:
    head = msgspec.json.encode(kept.letter)
    lengths = _LENGTHS.pack(len(head), len(kept.body))
    return [lengths, head, kept.body, _CHECK.pack(crc32(kept.body, crc32(head, crc32(lengths))))]
