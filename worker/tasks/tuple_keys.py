"""A key of a tuple that is the same in every process and at every replay: a digest of where it comes from, where it is
executed, and its values.

A tuple's root is new at each emission, and values as pickles differ (a set has another order in another process, and what is
shared is written once). So values are walked through here: equal values of the same types have the same key. Nothing here is
called while no worker has died.
Must not know: what a key is for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

from squall.running_calls import KEY_BYTES, NO_KEY
from topology_api.tuples import Tuple

_FLOAT: Final = struct.Struct("<d")
#: Longer values are shown by their digest.
_LONG: Final = 64


def key_of(bolt: str, tup: Tuple) -> bytes:
    """Return the key of a tuple in a bolt; `NO_KEY` if its values have none."""
    source = tup._source
    try:
        return key_of_values(bolt, source.component, source.stream, tuple(tup._values))
    except BaseException:  # user code runs here: `__reduce_ex__` of the values
        return NO_KEY


def key_of_values(bolt: str, component: str, stream: str, values: tuple[Any, ...]) -> bytes:
    """Return the key of these values. Raises an error of any kind if they have none."""
    key = blake2b(digest_size=KEY_BYTES)
    walk = _Walk()
    for part in (bolt, component, stream, values):
        key.update(walk.encoded(part))
    found = key.digest()
    return found if found != NO_KEY else b"\1" * KEY_BYTES


class _Walk:
    """The way through the values of one tuple."""

    def __init__(self) -> None:
        #: What objects are encoded as, by id, so that what is shared is encoded once; and where the walk is now.
        self.done: dict[int, bytes] = {}
        self.inside: dict[int, int] = {}
        #: Keeps objects alive whose ids are used.
        self.alive: list[object] = []

    def encoded(self, value: Any) -> bytes:
        """Return the bytes for a value, which tell where they end."""
        kind = type(value)
        if value is None:
            return b"N"
        if kind is bool:
            return b"T" if value else b"F"
        if kind is int:
            return _leaf(b"i", f"{value:x}".encode())
        if kind is float:
            return _leaf(b"f", _FLOAT.pack(value))
        if kind is str:
            return _leaf(b"s", value.encode("utf-8", "surrogatepass"))
        if kind is bytes:
            return _leaf(b"b", value)
        at = id(value)
        if at in self.done:
            return self.done[at]
        if at in self.inside:  # it contains itself
            return _leaf(b"r", str(len(self.inside) - self.inside[at]).encode())
        self.inside[at] = len(self.inside)
        self.alive.append(value)
        self.done[at] = made = self.of_object(value, kind)
        del self.inside[at]
        return made

    def of_object(self, value: Any, kind: type) -> bytes:
        """Return the bytes for a container or any other object."""
        if kind is tuple or kind is list:
            return self.of_parts(b"t" if kind is tuple else b"l", value)
        if kind is dict:
            pairs = sorted(self.encoded(key) + self.encoded(item) for key, item in value.items())
            return _leaf(b"d", b"".join(pairs))
        if kind is set or kind is frozenset:
            return _leaf(b"z" if kind is set else b"Z", b"".join(sorted(map(self.encoded, value))))
        if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
            return _leaf(b"g", _name_of(value).encode())
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return _leaf(b"g", f"{kind.__module__}:{reduced}".encode())
        made, arguments, state, items, pairs_of = (*reduced, None, None, None)[:5]
        parts = [made, tuple(arguments), state, list(items or ()), [tuple(pair) for pair in pairs_of or ()]]
        return self.of_parts(b"o", parts)

    def of_parts(self, tag: bytes, parts: Iterable[Any]) -> bytes:
        """Return the bytes for parts in their order."""
        return _leaf(tag, b"".join(map(self.encoded, parts)))


def _leaf(tag: bytes, data: bytes) -> bytes:
    if len(data) > _LONG:
        return b"#%b%b" % (tag, blake2b(data, digest_size=32).digest())
    return b"%b%c%b" % (tag, len(data), data)


def _name_of(value: Any) -> str:
    """Return the name of a class, function or module. Raises TypeError if it may belong to several."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise TypeError("a method of an object has no name of its own")
    if "<" in value.__qualname__:
        raise TypeError(f"{value.__qualname__} is the name of several")
    return f"{value.__module__}:{value.__qualname__}"
