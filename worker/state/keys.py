"""The form in which a key is a dictionary's key: equal for the keys that fields grouping takes for equal.

Python's `==` already makes 1, 1.0, True and Decimal(1) one key of a dict. What is left are NaN, which is not equal to itself,
and keys that cannot be hashed: lists and dataclasses. Must not know: tasks, streams.
"""

from __future__ import annotations

import dataclasses
from typing import Any


class BoxedKey:
    """A key that cannot be a dictionary's key itself. `form` is what it is compared by."""

    __slots__ = ("form", "key")

    def __init__(self, key: Any, form: Any) -> None:
        self.key = key
        self.form = form

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxedKey) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)

    def __repr__(self) -> str:
        return repr(self.key)


def canonical(key: Any) -> Any:
    """Return the form of a key in dictionaries: mostly the key itself."""
    kind = type(key)
    if kind is str or kind is int or kind is bytes or kind is bool or key is None:
        return key
    form = form_of(key)
    return key if form is key else BoxedKey(key, form)


def original(key: Any) -> Any:
    """Return the key that `canonical` got."""
    return key.key if type(key) is BoxedKey else key


def form_of(key: Any) -> Any:
    """Return what a key is compared by: the key itself if it can be a dictionary's key. Raises TypeError if it can be none."""
    kind = type(key)
    if isinstance(key, tuple):
        parts = [form_of(part) for part in key]
        same = all(part is old for part, old in zip(parts, key))
        return key if same else tuple(parts)
    if kind is list:
        return ("list", *map(form_of, key))
    if key != key:
        return ("nan",)
    try:
        hash(key)
    except TypeError:
        if not dataclasses.is_dataclass(key):
            raise
        parts = [form_of(getattr(key, field.name)) for field in dataclasses.fields(key) if field.compare]
        return (kind.__qualname__, *parts)
    return key
