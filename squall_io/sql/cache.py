"""A cache of what a database said: bounded in entries and in age, the least recently used entry goes first.

What is absent is kept too, as any value. Must not know: databases, clocks: the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class AgedCache(Generic[V]):
    """size: the most entries; 0: nothing is kept. ttl: for how many seconds an entry is good; None: while there is room."""

    def __init__(self, size: int, ttl: float | None) -> None:
        self.size = size
        self.ttl = ttl
        self._entries: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, now: float) -> V | None:
        """Return the value; None if there is none that is good."""
        if (entry := self._entries.get(key)) is None:
            return None
        since, value = entry
        # A clock that was set back must not make entries live for ever.
        if self.ttl is not None and not 0 <= now - since < self.ttl:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V, now: float) -> None:
        """Keep a value from now on."""
        self._entries[key] = (now, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self.size:
            self._entries.popitem(last=False)
