"""XORs of acked tuples on their way back to the trackers. Consecutive tuples of the same root share one entry.

The value of a tuple is its own edge id XORed with the edge ids of all tuples anchored to it. A tree is complete when all its
values XOR to zero.
Must not know: trackers, links.
"""

from __future__ import annotations

from typing import Any

from squall.transport.id_columns import IdColumn, Ids, view_of
from topology_api.tuples import Tuple
from worker.tracking.ids import TASK_SHIFT

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

_TASK_SHIFT = cython.declare(cython.longlong, TASK_SHIFT)

#: XORs for one tracker: a column of roots and a column of values.
AckColumns = tuple[Any, Any]


class AckBatch:
    """XORs of many tuples, in order. Tuples with a root <= 0 (untracked, or already acked or failed) are left out."""

    __slots__ = ("roots", "xors")

    def __init__(self) -> None:
        self.roots = Ids()
        self.xors = Ids()

    def __bool__(self) -> bool:
        return bool(self.roots)

    @cython.locals(roots=IdColumn, xors=IdColumn)
    def add(self, root: int, xor: int) -> None:
        """Add the XOR of one tuple of the tree `root`."""
        if root <= 0:
            return
        roots, xors = self.roots, self.xors
        if roots and roots[-1] == root:
            xors[-1] ^= xor
        else:
            roots.append(root)
            xors.append(xor)

    @cython.locals(root=cython.longlong, difference=cython.longlong)
    def add_tuple(self, tup: Tuple) -> None:
        """Add an acked tuple to each of its trees."""
        self.add(tup._root, tup._xor)
        for root, difference in tup._more:
            self.add(root, tup._xor ^ difference)

    def portions(self, most: int) -> list[AckBatch]:
        """Remove all XORs, and return them in batches of at most `most`."""
        roots, xors = self.roots, self.xors
        self.roots, self.xors = Ids(), Ids()
        portions = []
        for at in range(0, len(roots), most):
            portion = AckBatch()
            portion.roots, portion.xors = roots[at : at + most], xors[at : at + most]
            portions.append(portion)
        return portions

    @cython.locals(
        roots=IdColumn,
        xors=IdColumn,
        to_roots=IdColumn,
        to_xors=IdColumn,
        root_at=cython.longlong[::1],
        xor_at=cython.longlong[::1],
        at=cython.Py_ssize_t,
        root=cython.longlong,
        task=cython.longlong,
        last=cython.longlong,
    )
    def by_tracker(self, only: int = 0) -> dict[int, AckColumns]:
        """Remove all XORs, and return them by spout task. `only`: the spout task, if the topology has just one; else 0."""
        if not self.roots:
            return {}
        roots, xors = self.roots, self.xors
        self.roots, self.xors = Ids(), Ids()
        if only:
            return {only: (roots, xors)}
        taken: dict[int, AckColumns] = {}
        root_at, xor_at = view_of(roots), view_of(xors)
        last = 0
        to_roots = to_xors = roots
        for at in range(len(roots)):
            root = root_at[at]
            task = root >> _TASK_SHIFT
            if task != last:
                last = task
                if task not in taken:
                    taken[task] = (Ids(), Ids())
                to_roots, to_xors = taken[task]
            to_roots.append(root)
            to_xors.append(xor_at[at])
        return taken
