"""A timing wheel over the slots of a tracker's table: it finds the trees whose last keep-alive is older than the timeout.

A tick is a twentieth of the timeout T. A slot stamped in tick k is due when tick k + 21 begins, so between T and 1.05 T after
the stamp. Each slot is in the wheel at most once, however often it is used or stamped: a slot that comes up early moves to the
spoke of its last stamp. So a stamp costs two stores, and memory is bounded by the number of slots.
(After Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, with lazy moves.)
Must not know: trees, tuples.
"""

from __future__ import annotations

from typing import Final

TICKS_PER_TIMEOUT: Final = 20
LIFE: Final = TICKS_PER_TIMEOUT + 1
SPOKES: Final = 32


class TimingWheel:
    """Stamps and due slots; the caller passes the time, in seconds."""

    __slots__ = ("inside", "spokes", "stamps", "tick", "tick_length", "turned")

    def __init__(self, timeout: float, now: float) -> None:
        self.tick_length = timeout / TICKS_PER_TIMEOUT
        #: The current tick: slots are stamped with it.
        self.tick = int(now / self.tick_length)
        #: The last tick whose spoke was emptied.
        self.turned = self.tick
        self.stamps: list[int] = []
        self.inside = bytearray()
        self.spokes: list[list[int]] = [[] for _ in range(SPOKES)]

    def grow(self, slots: int) -> None:
        """Make room for slots 0 … slots-1."""
        self.stamps += [0] * (slots - len(self.stamps))
        self.inside += bytes(slots - len(self.inside))

    def set_time(self, now: float) -> None:
        """Set the time of later stamps. No slot becomes due by this call."""
        tick = int(now / self.tick_length)
        if tick > self.tick:
            self.tick = tick

    def stamp(self, slot: int) -> None:
        """Stamp this slot with the time last set."""
        tick = self.tick
        self.stamps[slot] = tick
        if not self.inside[slot]:
            self.inside[slot] = 1
            self.spokes[(tick + LIFE) % SPOKES].append(slot)

    def due(self) -> list[int]:
        """Turn the wheel to the time last set; remove and return the slots whose last stamp is older than the timeout, whether
        they are in use or not.
        """
        tick = self.tick
        due: list[int] = []
        first = max(self.turned + 1, tick - SPOKES + 1)
        for passed in range(first, tick + 1):
            spoke, self.spokes[passed % SPOKES] = self.spokes[passed % SPOKES], []
            for slot in spoke:
                ends = self.stamps[slot] + LIFE
                if ends > tick:
                    self.spokes[ends % SPOKES].append(slot)
                else:
                    self.inside[slot] = 0
                    due.append(slot)
        self.turned = tick
        return due
