"""Paces Python's garbage collector while a cluster runs in this process.

Python's thresholds suit programs that make garbage in cycles. Squall frees tuples by reference counting, so a collection finds
nothing; but tuples that are held or pending survive it, and Python visits survivors again and again: with 100,000 tuples held
and 200,000 pending, collections take as much time as everything else. So after a collection of all objects that found nothing,
collections wait for more new objects, and survivors are visited rarely: a pending tuple once or twice (with the compiled core
never, if its values are in no cycle: see topology_api/tuples.pxd). When a later collection
finds garbage, Python's thresholds apply again, until a collection of all objects finds nothing: so a bolt that makes cycles,
which die at once or after a while, needs no more memory than without Squall. (One that begins to make cycles after a long time
without any may need more, once.) The collector itself stays on (or off). Nothing is frozen, unlike in a worker process: here
the objects are the user's, whose finalizers have to run; Python 3.12 freezes objects of its own, which `gc.unfreeze` would not
leave frozen; and visits of all objects are so rare that freezing saves no time (measured).

The collector is looked at between the calls of components. A callback of the collector's own (`gc.callbacks`) would run at any
depth of a component's recursion, and fail where no depth is left.

The first cluster of the process changes the thresholds, the last one restores them, unless other code has changed them.
Must not know: clusters.
"""

from __future__ import annotations

import gc
import sys
from threading import Lock
from typing import Final

Thresholds = tuple[int, int, int]

#: The most new objects before a collection of the young generation, and the most such collections before one of the middle
#: generation. Higher numbers save no more time (measured), and let more garbage wait.
MOST: Final = (10_000, 50)
#: A collection of new objects that frees one of this number of them has found garbage.
GARBAGE_IN: Final = 4
#: So has one of all objects that frees one of this number. It is stricter, because ten times as much will wait for the next.
GARBAGE_IN_ALL: Final = 100
#: New objects may wait for a collection of the middle generation until they are one of this number of all.
WAITING_IN: Final = 4
#: How many blocks of memory there are for each object that the collector visits (measured; more where the compiled core leaves
#: out pending tuples of plain values, so the number of objects is estimated too high then). `gc.get_objects` would count them;
#: but while its list is alive, a tuple that another thread is making has two references, and Python raises SystemError there.
BLOCKS_OF_AN_OBJECT: Final = 4


def relaxed(before: Thresholds, alive: int) -> Thresholds:
    """Return the thresholds after a collection of all objects that found nothing, with this number of
    objects alive. A threshold of 0 turns the automatic collection off, and stays."""
    young, middle, old = before
    if not young:
        return before
    young = max(young, MOST[0])
    return young, max(middle, min(alive // WAITING_IN // young, MOST[1])), old


def adapted(now: Thresholds, before: Thresholds, generation: int, freed: int, alive: int) -> Thresholds:
    """Return the thresholds after a collection of `generation` (0: young, 1: middle, 2: all) that freed this number of objects.

    `before`: the thresholds without a cluster. `alive`: the number of objects after a collection of all. For the others the
    number of visited objects is an estimate, from the thresholds.
    """
    young, middle, _ = now
    if generation == 2:
        return before if freed * GARBAGE_IN_ALL >= alive else relaxed(before, alive)
    visited = young * max(middle, 1) if generation else young
    return before if freed * GARBAGE_IN >= visited else now


class CollectorPace:
    """The thresholds of this process's collector. Any thread may call `begin` and `end`."""

    def __init__(self) -> None:
        self._lock = Lock()
        #: How many clusters run.
        self.clusters = 0
        self._before: Thresholds = (0, 0, 0)
        self._now: Thresholds = (0, 0, 0)
        #: The statistics of the collector at the last call of `adapt`.
        self._seen = gc.get_stats()

    def begin(self) -> None:
        """A cluster begins."""
        with self._lock:
            self.clusters += 1
            if self.clusters == 1:
                self._before = gc.get_threshold()
                self._set(self._before)
                self._seen = gc.get_stats()

    def end(self) -> None:
        """A cluster has ended."""
        with self._lock:
            self.clusters -= 1
            if not self.clusters and self._is_ours():
                gc.set_threshold(*self._before)

    def adapt(self) -> None:
        """Adapt the thresholds to the collections since the last call. Clusters call this between the calls of components."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.clusters and self._is_ours():
                self._follow()
        finally:
            self._lock.release()

    def _follow(self) -> None:
        before, self._seen = self._seen, gc.get_stats()
        for generation in (2, 1, 0):  # garbage that the last of them finds decides
            old, new = before[generation], self._seen[generation]
            if times := new["collections"] - old["collections"]:
                freed = (new["collected"] - old["collected"]) // times
                alive = sys.getallocatedblocks() // BLOCKS_OF_AN_OBJECT if generation == 2 else 0
                self._set(adapted(self._now, self._before, generation, freed, alive))

    def _is_ours(self) -> bool:
        """Return whether the thresholds are those that were set here: other code in the process may have its own."""
        return gc.get_threshold() == self._now

    def _set(self, thresholds: Thresholds) -> None:
        self._now = thresholds
        gc.set_threshold(*thresholds)


#: The pace of this process: there is only one collector.
PACE: Final = CollectorPace()
