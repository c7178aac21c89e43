"""When a bolt task that is down executes its next tuple: one at a time, with growing pauses.

Must not know: tuples, queues, clocks.
"""

from __future__ import annotations

from random import Random
from typing import Final

#: Seconds between the first two probes, and between later probes at most.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


class Probing:
    """The probes of one task, from the moment when it paused to its first success."""

    __slots__ = ("_pause", "_random", "due")

    def __init__(self, now: float, random: Random) -> None:
        self._pause = FIRST_PAUSE
        self._random = random
        #: The time of the next probe.
        self.due = now
        self.failed(now)

    def failed(self, now: float) -> None:
        """Set the time of the next probe: after a pause that doubles each time. Up to a quarter of it is left out at random, so
        that tasks that wait for the same service do not call it all at once.
        """
        self.due = now + self._pause * self._random.uniform(0.75, 1.0)
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
