"""Clocks as arguments: code without I/O gets one instead of reading the time itself.

`RealClock` is the machine's monotonic clock; `ManualClock` moves only when it is moved (simulated time).
Must not know: who waits for what.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time in seconds; only differences have a meaning."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class RealClock:
    """The machine's monotonic clock."""

    now = staticmethod(time.monotonic)


class ManualClock:
    """A clock that does not move by itself."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self._now

    def move_to(self, moment: float) -> None:
        """Move forward to `moment`; a moment that has passed raises `ValueError`."""
        if moment < self._now:
            raise ValueError(f"time does not go back: it is {self._now}, asked for {moment}")
        self._now = moment
