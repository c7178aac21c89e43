"""Watches over the rights in the store while a Nimbus leads: a leader seals no secret into a tree that strangers can write.

A process that may write to the store can add a Nimbus with a key of its own, and the leader would seal the operators' token to
that key. So the leader checks every value before its term begins, and then repeatedly, a page at a time, so that a large tree
delays no round. What it finds ends the term, and keeps this Nimbus from leading until a later check finds nothing. Topologies
continue to run.
A store that is not shared with others (in memory, a file) has nothing to check.
Must not know: elections, secrets, the kind of store.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import Final

from squall.cluster.store import Deposed, OpenToStrangers, Shared, Store

_log = logging.getLogger(__name__)

#: Seconds between the end of a walk over all values and the next walk. Only someone with rights can open a value that was
#: closed, so that a walk finds mistakes of operators, which are not urgent.
PAUSE_SECS: Final = 60.0
#: Seconds between two pages of a walk.
PAGE_SECS: Final = 0.25
#: Seconds until a Nimbus that found something checks again whether it may lead.
AGAIN_SECS: Final = 5.0


class StoreAccess:
    """The checks of one Nimbus, in its control thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: Iterator[int] | None = None
        self._next = -math.inf if isinstance(store, Shared) else math.inf
        #: What was found; None: nothing. This Nimbus must not lead while there is something.
        self.problem: str | None = None

    def check_all(self, now: float, goes_on: Callable[[], bool]) -> None:
        """Check every value and set `problem`. Raises `Deposed` when `goes_on`, which is called after each page, returns
        false."""
        self._pages = self._walk()
        while self._one_page(now):
            if not goes_on():
                raise Deposed(
                    "the access to the store is not checked to the end: this Nimbus does not lead any more"
                )

    def tick(self, now: float) -> None:
        """Check the next page, if it is due."""
        if now < self._next:
            return
        if self._pages is None:
            self._pages = self._walk()
        self._one_page(now)

    def why_not(self, now: float) -> str | None:
        """Return why this Nimbus should not lead; None if it may. What was found earlier is checked again now and then."""
        if self.problem is not None and now >= self._next:
            self.check_all(now, lambda: True)
        return self.problem

    def next_time(self, now: float) -> float:
        """Return the time at which `tick` has something to do."""
        return max(now, self._next)

    def _walk(self) -> Iterator[int]:
        return self._store.walk_access() if isinstance(self._store, Shared) else iter(())

    def _one_page(self, now: float) -> bool:
        """Check a page; return whether there may be another one. After an error of the store, the next walk is a new one."""
        pages, self._pages = self._pages, None
        assert pages is not None
        try:
            more = next(pages, None) is not None
        except OpenToStrangers as error:
            self.problem = str(error)
            self._next = now + AGAIN_SECS
            return False
        if more:
            self._pages, self._next = pages, now + PAGE_SECS
            return True
        if self.problem is not None:
            _log.info("the access to the store is in order again")
        self.problem = None
        self._next = now + PAUSE_SECS if isinstance(self._store, Shared) else math.inf
        return False
