"""Clocks as arguments: code without I/O gets a clock instead of reading the time itself.

`RealClock` is the machine's monotonic clock; `ManualClock` advances only when `move_to` is called (simulated time).
Must not know: who waits for what.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time in seconds; only differences have a meaning."""

    def now(self) -> float:
        """Return the seconds since some fixed time; the result never decreases."""


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
        """Move forward to the time `moment`. Raises `ValueError` if this time has passed."""
        if moment < self._now:
            raise ValueError(f"time does not go back: it is {self._now}, asked for {moment}")
        self._now = moment
