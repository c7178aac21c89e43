"""Decides which warnings are logged: each at most once a minute, because the supervisor's loop meets a lasting fault many
times a second.

Must not know: what the warnings are about, clocks.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

#: Seconds between two warnings of one kind.
WARN_EVERY: Final = 60.0
#: If more kinds are remembered, those whose time has passed are forgotten.
_MANY: Final = 256


class RareWarnings:
    """When each kind of warning was logged last. `now` is any clock's time in seconds."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, float] = {}

    def due(self, kind: Hashable, now: float) -> bool:
        """Return whether to log a warning of this kind now; if so, remember that it was logged."""
        last = self._logged.get(kind)
        if last is not None and now < last + WARN_EVERY:
            return False
        if len(self._logged) >= _MANY:
            self._logged = {key: at for key, at in self._logged.items() if now < at + WARN_EVERY}
        self._logged[kind] = now
        return True
