"""How many tuples may wait on the edges that close a cycle, so that no cycle can fill the memory.

These edges take no credit, or the tasks of a cycle would wait for each other. So nothing slows down a cycle from inside, and
the bound is kept from outside, in two steps:

| what waits at one task | what happens | until |
|---|---|---|
| the limit | all spouts pause: nothing new enters | half of it has been executed at each such task |
| twice the limit | the cycle makes more tuples than leave it: further ones become dead letters of the task | there is room |

Only the spouts wait for a task of the cycle, and they take barriers all the same: so what waits is executed, and epochs end.
Must not know: tasks, messages, how tuples become dead letters.
"""

from __future__ import annotations

from typing import Final

#: At how many times the limit tuples become dead letters.
MOST_OVER: Final = 2


class CycleBound:
    """What waits at one task."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting = 0
        #: Since when the spouts are to pause because of this task; None: they need not.
        self.full_since: float | None = None
        #: How many tuples have become dead letters since then.
        self.given_up = 0

    def admit(self, tuples: int) -> int:
        """Tuples have come; return how many of them may wait here. The others become dead letters."""
        taken = max(0, min(tuples, MOST_OVER * self.limit - self.waiting))
        self.waiting += taken
        self.given_up += tuples - taken
        return taken

    def executed(self, tuples: int) -> None:
        """Tuples that waited have been executed, or will not be."""
        self.waiting -= tuples

    def changed(self, now: float) -> bool:
        """Return whether this is the moment from which on the spouts are to pause, or need not pause any more."""
        if self.full_since is None and self.waiting >= self.limit:
            self.full_since, self.given_up = now, 0
            return True
        if self.full_since is not None and self.waiting <= self.limit // 2:
            self.full_since = None
            return True
        return False
