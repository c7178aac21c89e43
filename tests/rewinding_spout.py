"""A spout that can rewind, for tests: subclasses emit number `at` and count it up.

Must not know: what is emitted, when it ends.
"""

from __future__ import annotations

from topology_api import Context, RewindableSpout


class FromPosition(RewindableSpout):
    """Its position is how many tuples it has emitted."""

    def open(self, context: Context) -> None:
        self.at = 0

    def position(self) -> int:
        return self.at

    def rewind(self, position: int | None) -> None:
        self.at = position or 0
