"""Finds the object that a dict has for a key that is equal to another one: 2 for 2.0, or for True 1.

Must not know: tasks, states.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any


class _EqualKey:
    """Is found where a key is, and notes the object that it was compared with."""

    __slots__ = ("key", "met")

    def __init__(self, key: Any) -> None:
        self.key = self.met = key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if other is not self.key and other != self.key:
            return False
        self.met = other
        return True


def stored_key(key: Any, there: Container[Any]) -> Any:
    """Return the key of a dict that is equal to `key`; `key` itself if there is none, or if the class of the stored one
    compares objects of other classes itself, instead of leaving that to them.
    """
    probe = _EqualKey(key)
    return probe.met if probe in there else key
