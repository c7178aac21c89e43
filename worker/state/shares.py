"""Divides the cells that a snapshot holds by their key groups, so that its file has them in the order of groups.

Groups are taken together until about a part's worth of cells shares a list: few cells cost as few parts as they did without
groups, and of so few that they fill one or two parts, no key is hashed.
Must not know: handles, files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from topology_api import StateError
from topology_api.wording import shown
from worker.routing.key_groups import GroupRange, cut, group_of
from worker.routing.text_hash import spread
from worker.state.keys import original
from worker.state.plain_values import PlainValueHandle, key_of_cell, spread_cells
from worker.state.table import StateHandle

#: With fewer lists, cells are not divided: to hash their keys does not pay.
LEAST_LISTS: Final = 3


class Shares:
    """The cells of one state, in lists by their groups."""

    def __init__(self, own: GroupRange, cells: int, most: int, items: bool) -> None:
        """`own`: the groups of the task's keys. `cells`: how many there are; `most`: those of a part. `items`: the cells are
        (key, item of its map), not keys."""
        self.own, self.items = own, items
        # A quarter less, so that few lists are longer than a part.
        number = min(own.end - own.first, cells * 4 // (most * 3))
        self.ranges = cut(own, number) if number >= LEAST_LISTS else [own]
        self.lists: list[list[Any]] = [[] for _ in self.ranges]
        #: Group -> the list of its cells; None: the group is another task's.
        self.by_group: list[list[Any] | None] = []
        if self.divides:
            self.by_group = [None] * own.groups
            for groups, cells_of in zip(self.ranges, self.lists):
                self.by_group[groups.first : groups.end] = [cells_of] * (groups.end - groups.first)

    @property
    def divides(self) -> bool:
        """Whether cells are divided at all."""
        return len(self.ranges) > 1

    def divide(self, cells: list[Any], handle: StateHandle) -> None:
        """Divide some cells. Raises StateError for a key that is not this task's: no task would find it again."""
        # Texts are the most common keys: they take a third of the time of others.
        done = 0
        if isinstance(handle, PlainValueHandle):
            done = spread_cells(cells, self.by_group)
        elif not self.items:
            done = spread(cells, self.by_group)
        groups, by_group = self.own.groups, self.by_group
        for cell in cells[done:]:
            group = group_of(self.key_of(cell), groups)
            found = by_group[group]
            if found is None:
                raise self.not_own(cell, group, handle)
            found.append(cell)

    def key_of(self, cell: Any) -> Any:
        """Return the key of a cell, as the user has it."""
        return original(cell[0] if self.items else key_of_cell(cell))

    def keep_all(self, cells: list[Any]) -> None:
        """Keep all cells together: they are too few."""
        self.lists[0] = cells

    def in_order(self) -> Iterator[tuple[GroupRange, list[Any]]]:
        """Yield groups, and the cells that have one of them."""
        for groups, cells in zip(self.ranges, self.lists):
            if cells:
                yield groups, cells

    def not_own(self, cell: Any, group: int, handle: StateHandle) -> StateError:
        """Return the error for a key of another task."""
        return StateError(
            f"{handle.table.where}: {handle.what()} has key {shown(self.key_of(cell))} of key group {group}, and this task has "
            f"groups {self.own.first} to {self.own.end - 1}: keys that are equal must have equal types and fields in all tuples"
        )
