"""The keyed state of a simulated task: rows by key, undone by the `StateHistory` of real tasks.

Must not know: tasks, clusters.
"""

from __future__ import annotations

from typing import Any

from worker.epochs.snapshot_files import TaskSnapshot

Row = tuple[Any, ...]


class SimulatedKeys:
    """Key -> rows: the only state of a task, as a handle keeps it."""

    def __init__(self) -> None:
        self.cells: dict[int, list[Row]] = {}
        #: The keys that have changed since the last marker, with what they were then; None: they had no rows.
        self.touched: dict[int, list[Row] | None] = {}

    def append(self, key: int, row: Row) -> int:
        """Add a row to a key; return how many it has."""
        rows = self.cells.get(key)
        self.touched.setdefault(key, None if rows is None else list(rows))
        self.cells.setdefault(key, []).append(row)
        return len(self.cells[key])

    def merge_older(self, found: dict[int, Any], older: dict[int, Any]) -> None:
        """See `StateHandle`."""
        found.update(older)

    def bring_back(self, cells: dict[int, Any]) -> None:
        """See `StateHandle`."""
        for key, rows in cells.items():
            if rows is None:
                self.cells.pop(key, None)
            else:
                self.cells[key] = rows

    def take_over(self, other: SimulatedKeys) -> None:
        """See `StateHandle`."""
        self.cells = other.cells


def keys_in(snapshot: TaskSnapshot) -> dict[int, list[Row]]:
    """The rows of each key in the parts of a snapshot."""
    return {
        key: [tuple(row) for row in rows] for part in snapshot.parts for key, rows in part["keys"].items()
    }
