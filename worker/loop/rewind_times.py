"""How long the tasks of one worker took to return to the last commit, and how: for the log.

Must not know: tasks, how they return.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class RewindTimes:
    """The rewind at hand."""

    def __init__(self) -> None:
        #: When its order came.
        self.since = 0.0
        #: The tasks that have returned, with what is to be shown outside, and of all of them those that did so in memory.
        self.ready: set[int] = set()
        self.in_memory: set[int] = set()

    def begin(self, now: float) -> None:
        """A rewind begins."""
        self.since, self.ready, self.in_memory = now, set(), set()

    def returned(self, task: int, epoch: int, tasks: int, now: float) -> None:
        """A task is ready. `tasks`: how many there are. With the last one, the log says how long it took."""
        self.ready.add(task)
        if len(self.ready) == tasks and epoch:
            held = len(self.in_memory)
            how = "in memory" if held == tasks else f"{held} in memory, {tasks - held} by reading snapshots"
            _log.info("%d tasks have returned to epoch %d in %.3f s: %s", tasks, epoch, now - self.since, how)
