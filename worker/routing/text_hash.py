"""The content hash of a text, the most common key of a fields grouping. `worker.routing.key_hash` states the promises of this
hash.

In the compiled core, hashing a text is faster than a look-up in a route's cache (measured, 10,000 different words: 15 instead
of 70 ns), so texts are not cached. Must not know: other kinds of keys, tasks.
"""

from __future__ import annotations

from array import array
from typing import Any, Final
from zlib import crc32

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: Constants with a C type: a literal of 2**63 or more would be a Python object.
_FIRST = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_SECOND = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_ONES = cython.declare(cython.ulonglong, 0xFFFFFFFF)


def mix(number: int) -> int:
    """Return an unsigned 64-bit number, mixed by the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
    number generators", 2014; constants: Stafford's mix 13)."""
    number = (number ^ number >> 30) * _FIRST & _MASK
    number = (number ^ number >> 27) * _SECOND & _MASK
    return number ^ number >> 31


#: The tag of texts.
TEXT: Final = mix(1)
_TEXT = cython.declare(cython.ulonglong, TEXT)

if cython.compiled:
    # CRC-32 of each byte (the polynomial of IEEE 802.3, as in zlib). In plain Python, zlib does all of this.
    for _byte in range(256):
        TABLE[_byte] = crc32(bytes((_byte,)), 0xFFFFFFFF) ^ 0xFFFFFFFF


def text_hash(key: str) -> int:
    """Return the unsigned 64-bit content hash of a text: the CRC-32 of its UTF-8 (lone surrogates are allowed) mixed with its
    length."""
    # In C, None passes for any type, and has no ASCII flag.
    if cython.compiled and key is not None and is_ascii(key):
        size = length_of(key)
        data = bytes_of(key)
        crc = _ONES
        for at in range(size):
            crc = TABLE[(crc ^ data[at]) & 255] ^ crc >> 8
        crc ^= _ONES
    else:
        encoded = key.encode("utf-8", "surrogatepass")
        size = len(encoded)
        crc = crc32(encoded)
    number = size
    return mix(crc ^ number << 32 & _MASK ^ _TEXT)


def choice_of(key: str, tasks: int) -> int:
    """Return the index of the task that gets a text if there are `tasks` tasks: `key_hash(key) % tasks`."""
    return text_hash(key) % tasks


def choices_of(data: Any, offsets: Any, tasks: int) -> array[int]:
    """Return `choice_of` each text of a column: text `n` is the UTF-8 in `data` from `offsets[n]` up to `offsets[n + 1]`."""
    count = len(offsets) - 1
    chosen = array("i", bytes(4 * count))
    places = chosen
    for place in range(count):
        start = offsets[place]
        stop = offsets[place + 1]
        size = stop - start
        if cython.compiled:
            crc = _ONES
            for at in range(start, stop):
                crc = TABLE[(crc ^ data[at]) & 255] ^ crc >> 8
            crc ^= _ONES
        else:
            crc = crc32(data[start:stop])
        number = size
        places[place] = mix(crc ^ number << 32 & _MASK ^ _TEXT) % tasks
    return chosen


def spread(keys: list[Any], lists: list[list[Any] | None]) -> int:
    """Add each text to the list at `text_hash(key) % len(lists)`, as far as keys are texts whose place has a list; return how
    many were added."""
    number = len(lists)
    for at in range(len(keys)):
        key = keys[at]
        if type(key) is not str:
            return at
        found = lists[text_hash(key) % number]
        if found is None:
            return at
        found.append(key)
    return len(keys)
