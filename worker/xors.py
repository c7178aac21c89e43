"""XORs of settled tuples on their way back to the trackers: one entry for neighbours of one root.

The value for a tuple is its own edge XORed with the edges of everything anchored to it; a tree is complete when all
values XOR to zero.
Must not know: trackers, links.
"""

from __future__ import annotations

from topology_api.tuples import Tuple
from worker.ids import TASK_SHIFT

#: XORs for one tracker: parallel lists of roots and values.
XorColumns = tuple[list[int], list[int]]


class XorBatch:
    """XORs of many tuples, in order; roots <= 0 (untracked, settled) never get in."""

    __slots__ = ("roots", "xors")

    def __init__(self) -> None:
        self.roots: list[int] = []
        self.xors: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.roots)

    def add(self, root: int, xor: int) -> None:
        """Take the XOR of one tuple into the tree `root`."""
        if root <= 0:
            return
        if self.roots and self.roots[-1] == root:
            self.xors[-1] ^= xor
        else:
            self.roots.append(root)
            self.xors.append(xor)

    def add_tuple(self, tup: Tuple) -> None:
        """Take a settled tuple into each of its trees."""
        self.add(tup._root, tup._xor)
        for root, difference in tup._more:
            self.add(root, tup._xor ^ difference)

    def portions(self, most: int) -> list[XorBatch]:
        """All XORs, in batches of at most so many."""
        roots, xors = self.roots, self.xors
        self.roots, self.xors = [], []
        found = []
        for at in range(0, len(roots), most):
            portion = XorBatch()
            portion.roots, portion.xors = roots[at : at + most], xors[at : at + most]
            found.append(portion)
        return found

    def take(self, only: int = 0) -> dict[int, XorColumns]:
        """All XORs by the spout task whose tracker they are for; `only`: that task, when it is the one there is."""
        if not self.roots:
            return {}
        roots, xors = self.roots, self.xors
        self.roots, self.xors = [], []
        if only:
            return {only: (roots, xors)}
        taken: dict[int, XorColumns] = {}
        for root, xor in zip(roots, xors):
            columns = taken.get(root >> TASK_SHIFT)
            if columns is None:
                columns = taken[root >> TASK_SHIFT] = ([], [])
            columns[0].append(root)
            columns[1].append(xor)
        return taken
