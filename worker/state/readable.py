"""Saved keys and values as JSON, for people who read a snapshot without the topology's classes.

What JSON has stays as it is; tuples become lists; times, UUID and Decimal become the text that a state keeps for them; a dict
with keys that are not all texts is `{"items": [[key, value], ...]}`. Everything else is `{"repr": text}`. A class that cannot
be imported here costs only the values that it is in.
Must not know: tasks, files, how states are saved.
"""

from __future__ import annotations

import datetime as dt
import io
import math
import pickle
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from topology_api.wording import class_name, message_of, shown
from worker.state.codecs import Codec

#: How a pickle of protocol 5 begins. To msgpack the first byte is a whole empty map, so no value that it encoded begins so.
PICKLED: Final = b"\x80\x05"
#: Values are shown up to this depth.
DEEPEST: Final = 100
#: Bits of the longest number that is shown: Python makes no text of a much longer one.
LONGEST: Final = 10_000
_UNTYPED: Final = Codec(Any)


class GoneClass(type):
    """The class of stand-ins for classes that cannot be imported."""

    def __getattr__(cls, name: str) -> Any:
        """Stand for a member, such as that of an enum."""
        if name.startswith("_"):
            raise AttributeError(name)
        return cls(name)


class GoneObject(metaclass=GoneClass):
    """A stand-in for an object of a class that cannot be imported. It takes whatever a pickle gives to the object."""

    #: What the class was called, and why there is none.
    why = ""
    parts: list[Any]

    def __new__(cls, *parts: Any, **named: Any) -> GoneObject:
        made = super().__new__(cls)  # an unpickler calls no __init__
        made.parts = [*parts, *named.items()]
        return made

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append((key, value))

    def append(self, part: Any) -> None:
        """Take an element, as a list does."""
        self.parts.append(part)

    def extend(self, parts: Any) -> None:
        """Take elements, as a list does."""
        self.parts.extend(parts)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parts == getattr(other, "parts", None)

    def __hash__(self) -> int:
        return hash(shown(self.parts))

    def __repr__(self) -> str:
        return f"<cannot be read: {self.why}>"


@cache
def class_called(module: str, name: str) -> Any:
    """Return what a pickle means by a name, or a stand-in."""
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except Exception as error:
        return GoneClass(name, (GoneObject,), {"why": f"{module}.{name}: {message_of(error)}"})


class ForgivingUnpickler(pickle.Unpickler):
    """Opens pickles whose classes may be gone."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return class_called(module_name, global_name)


def unpickled(data: bytes) -> Any:
    """Return the value of a pickle. Raises whatever the classes in it raise."""
    return ForgivingUnpickler(io.BytesIO(data)).load()


def unreadable_value(error: BaseException) -> Any:
    """Return what stands for a value that cannot be read."""
    return type("GoneValue", (GoneObject,), {"why": f"{class_name(error)}: {message_of(error)}"})()


def value_of(data: bytes) -> Any:
    """Return the value that a codec of any type has encoded, without its type: a Struct is a dict."""
    try:
        return unpickled(data) if data.startswith(PICKLED) else _UNTYPED.decode(data)
    except Exception as error:
        return unreadable_value(error)


def json_form(value: Any, depth: int = 0) -> Any:
    """Return a value in the form of this module."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if (kind is int and value.bit_length() < LONGEST) or (kind is float and math.isfinite(value)):
        return value
    if depth < DEEPEST:
        if isinstance(value, (list, tuple)):
            return [json_form(part, depth + 1) for part in value]
        if kind is dict:
            return form_of_items(value.items(), depth + 1)
    if kind in (dt.datetime, dt.date, dt.time):
        return value.isoformat()
    return str(value) if kind in (UUID, Decimal) else {"repr": _text_of(value)}


def form_of_items(items: Iterable[tuple[Any, Any]], depth: int = 0) -> dict[str, Any]:
    """Return the form of a dict, from its items."""
    pairs = [[json_form(key, depth), json_form(part, depth)] for key, part in items]
    texts = {key: part for key, part in pairs if type(key) is str}
    return texts if len(texts) == len(pairs) else {"items": pairs}


def _text_of(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # that of a user's class
        return shown(value)
