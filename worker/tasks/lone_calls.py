"""Calls that run alone in their process, so that a death in one of them has no other cause.

Threads may be in calls of several tasks when their worker dies. Then each of their tuples is a suspect, and is executed alone
the next time: it waits for the calls that are running, and those that come wait for it. No call waits longer than its patience,
so that a long one delays, but stops nothing. A death in a call that began beside others counts against none.
Must not know: tasks, marks.
"""

from __future__ import annotations

import threading


class LoneCalls:
    """The running calls of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        #: How many calls that are to be alone run, or wait for their turn.
        self._alone = self._waiting = 0

    def enter(self, alone: bool, patience: float) -> None:
        """Begin a call when it may; at the latest after `patience` seconds."""
        with self._changed:
            if alone:
                self._waiting += 1
                self._changed.wait_for(lambda: not self._running, patience)
                self._waiting -= 1
                self._alone += 1
            else:
                self._changed.wait_for(lambda: not (self._alone or self._waiting), patience)
            self._running += 1

    def leave(self, alone: bool) -> None:
        """End a call."""
        with self._changed:
            self._running -= 1
            self._alone -= alone
            self._changed.notify_all()
