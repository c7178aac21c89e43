"""Encodes the values of a state by msgspec, or by pickle (`pickled=True`), and says which types are immutable.

Must not know: keys, tasks, files.
"""

from __future__ import annotations

import datetime as dt
import enum
import pickle
import types
import typing
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from topology_api import StateError
from topology_api.packing import dumps_by_value
from topology_api.state_rules import name_of
from topology_api.wording import shown, typed
from worker.state.keys import original

#: Types whose values never change.
SCALARS: typing.Final = frozenset(
    (int, float, str, bytes, bool, type(None), Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
)
#: Types that a value must have exactly, so that a wrong value is found when it is written.
EXACT: typing.Final = frozenset((int, str, bytes, bool, float))
#: What helps where msgspec cannot encode a value.
HINT: typing.Final = "; pickled=True keeps any value that can be pickled"


class Codec:
    """How the values of one type are kept."""

    def __init__(self, kind: Any, pickled: bool = False) -> None:
        self.kind = kind
        self.pickled = pickled
        #: Whether the values are immutable.
        self.plain = is_immutable(kind)
        #: The only type that a value may have; the type of NotImplemented, which no state has, if there may be several.
        self.exact: type = kind if kind in EXACT and not pickled else type(NotImplemented)
        self.decoder = None if pickled else msgspec.msgpack.Decoder(kind)

    def encode(self, value: Any, state: Any) -> bytes:
        """Return a value as bytes. Raises StateError, with the state's name, if it cannot be encoded."""
        try:
            if self.pickled:
                return dumps_by_value(value, 5)
            return msgspec.msgpack.encode(value)
        except Exception as error:
            self.cannot(value, state, error)

    def kept(self, value: Any, state: Any) -> bytes:
        """Return a value as bytes that can be read again. Raises StateError if it has not the declared type: most types are not
        checked when a value is written."""
        data = self.encode(value, state)
        if self.decoder is not None and type(value) is not self.exact:
            try:
                self.decoder.decode(data)
            except Exception as error:
                self.cannot(value, state, error)
        return data

    def kept_key(self, value: Any, state: Any) -> bytes:
        """Return the key of an item as bytes, as `kept` does. A NaN that was read again would be another key."""
        if value != value:
            self.cannot(value, state, "it is equal to nothing, so the item could not be found again", "")
        return self.kept(value, state)

    def check_readable(self, data: bytes, state: Any) -> None:
        """Raise StateError if the bytes of a value cannot be read again."""
        if self.decoder is not None:
            try:
                self.decoder.decode(data)
            except Exception as error:
                self.cannot(msgspec.msgpack.decode(data), state, error)

    def decode(self, data: bytes) -> Any:
        """Return the value of bytes."""
        return pickle.loads(data) if self.decoder is None else self.decoder.decode(data)

    def opened(self, data: bytes, state: Any, key: Any) -> Any:
        """Return the value of bytes that a snapshot had for a key. Raises StateError if they do not fit the declared type."""
        try:
            return self.decode(data)
        except Exception as error:
            raise StateError(
                f"{state.table.where}: the saved value of {state.what()}, key {shown(original(key))}, cannot be read as "
                f"{name_of(self.kind)}: {error}: declare the type that it was saved with (new fields need defaults)"
            ) from error

    def fitting(self, value: Any, state: Any) -> Any:
        """Return a value as it is kept. Raises StateError if it has another type than was declared."""
        if self.kind not in EXACT or self.pickled or type(value) is self.kind:
            return value
        if self.kind is float and type(value) is int:
            return float(value)
        if isinstance(value, self.kind) and not isinstance(value, bool):
            return self.kind(value)  # a subclass, such as numpy's float64, is kept as its base
        table = state.table
        raise StateError(
            f"{table.where}: {state.what()}{key_text(state, ' of')} is declared as {name_of(self.kind)}, got {typed(value)}"
        )

    def check(self, value: Any, state: Any) -> None:
        """Raise StateError if a value would not come back equal."""
        data = self.encode(value, state)
        try:
            back = self.decode(data)
        except Exception as error:
            self.cannot(value, state, error)
        if back != value and back == back:  # NaN is not equal to itself
            self.cannot(value, state, f"it comes back as {typed(back)}")

    def cannot(self, value: Any, state: Any, why: object, hint: str = HINT) -> NoReturn:
        """Raise the error for a value that cannot be encoded."""
        table = state.table
        raise StateError(
            f"{table.where}: the value of {state.what()}{key_text(state, ',')}, cannot be kept as {name_of(self.kind)}: "
            f"{typed(value)}: {why}{'' if self.pickled else hint}"
        )


def key_text(state: Any, before: str) -> str:
    """Return the key at hand for a message about a state; "" if the state belongs to no key."""
    if not getattr(state, "keyed", True):
        return ""
    return f"{before} key {shown(original(state.table.key))}"


def is_immutable(kind: Any) -> bool:
    """Return whether no value of this type can be changed in place."""
    if kind in SCALARS:
        return True
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return all(map(is_immutable, typing.get_args(kind)))
    if origin is typing.Literal:
        return True
    if origin in (tuple, frozenset):
        parts = typing.get_args(kind)  # none: a tuple of anything, so also of lists
        return bool(parts) and all(each is Ellipsis or is_immutable(each) for each in parts)
    return isinstance(kind, type) and issubclass(kind, enum.Enum)
