"""When the values of one state were written, and which are over (`ttl`).

Kept is the time of writing, not the time of death, so that a new version of the topology may change `ttl`. The times are in the
order of writing, so that a sweep looks only at what is over.
Must not know: what the values are.
"""

from __future__ import annotations

from typing import Any


class Expiry:
    """The times of writing of one state's cells."""

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        #: Cell -> time of writing, the oldest first, except for cells that an undone call had written.
        self.written: dict[Any, float] = {}

    def wrote(self, cell: Any, now: float) -> None:
        """Record that a cell was written."""
        written = self.written
        if cell in written:
            del written[cell]  # it becomes the last one
        written[cell] = now

    def forget(self, cell: Any) -> None:
        """Drop the time of a cell that is gone."""
        self.written.pop(cell, None)

    def written_at(self, cell: Any) -> float | None:
        """Return when a cell was written; None if it is absent."""
        return self.written.get(cell)

    def restore(self, cell: Any, time: float | None) -> None:
        """Set the time of a cell back after an undone call."""
        if time is None:
            self.written.pop(cell, None)
        else:
            self.written[cell] = time

    def is_over(self, cell: Any, now: float) -> bool:
        """Return whether a cell was written `ttl` seconds ago or earlier."""
        time = self.written.get(cell)
        return time is not None and now - time >= self.ttl

    def over(self, now: float, most: int) -> list[Any]:
        """Return up to `most` cells that are over, the oldest first."""
        found: list[Any] = []
        for cell, time in self.written.items():
            if len(found) >= most or now - time < self.ttl:
                break
            found.append(cell)
        return found
