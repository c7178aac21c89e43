"""How far a table has been read: positions as msgpack holds them, and up to which value rows may be read now.

A transaction that commits late shows rows behind those that were read. So a value may be read once it has been there for some
seconds: transactions that were under way when it was seen have ended by then, if they last no longer.
Must not know: databases. The clock is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

#: Types of values that msgpack does not have, or that Python's msgpack gives another type: how text becomes them.
_TEXTS: Final[Mapping[str, tuple[type, Callable[[str], Any]]]] = {
    "datetime": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}
_PLAIN: Final = (int, float, str, bytes)


def packed(values: Sequence[Any]) -> list[Any]:
    """Return values as a position has them. Raises TypeError for a type that no position can have."""
    return [_packed(value) for value in values]


def unpacked(position: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of a position."""
    return tuple(
        _TEXTS[each[0]][1](each[1]) if isinstance(each, (list, tuple)) else each for each in position
    )


def _packed(value: Any) -> Any:
    if isinstance(value, _PLAIN) and not isinstance(value, bool):
        return value
    for name, (kind, _) in _TEXTS.items():
        if type(value) is kind:
            return [name, value.isoformat() if isinstance(value, date) else str(value)]
    raise TypeError(f"{type(value).__name__} cannot be part of a position")


class SeenValues:
    """The greatest values that were seen, and when.

    lag: the seconds after which a value may be read; 0: at once.
    """

    def __init__(self, lag: float) -> None:
        self.lag = lag
        self._seen: deque[tuple[float, Any]] = deque()
        self._ripe: Any = None

    def see(self, greatest: Any, now: float) -> None:
        """Note the greatest value that is there; None: there are no rows."""
        if greatest is not None and (not self._seen or self._seen[-1][1] != greatest):
            self._seen.append((now, greatest))

    def readable(self, now: float) -> Any:
        """Return the value up to which rows may be read; None: none yet."""
        while self._seen and now - self._seen[0][0] >= self.lag:
            self._ripe = self._seen.popleft()[1]
        return self._ripe
