"""The lease: a worker may work only while its supervisor says so. A worker that was away for longer ends itself.

The supervisor writes a rising number into a file. The worker's time is up when it has not seen a new number for the lease's
seconds of its own monotonic clock, which goes on while the process is stopped: Nimbus may have given its tasks to others.
A number that has changed meanwhile does not count: it says nothing about who owns the tasks.
`Lease.now` is the clock of everything in the worker, so that a process that thaws does nothing any more: whoever is first to
look at the clock, before a frame goes out or a run of calls begins, finds that time is up.
Must not know: the number's meaning, how a process ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from squall.worker_files import LEASE


class Lease:
    """The time that is left, and the clock that keeps to it."""

    def __init__(
        self,
        directory: str,
        seconds: float,
        over: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`over` gets the seconds that the supervisor has been away, and ends the process."""
        self.path = os.path.join(directory, LEASE)
        self.clock = clock
        self.over = over
        self.seconds = seconds
        self.seen = clock()
        self.until = self.seen + seconds
        self.last = b""

    def set_seconds(self, seconds: float) -> None:
        """New orders: the lease is so long."""
        self.seconds = seconds
        self.until = self.seen + seconds

    def now(self) -> float:
        """The time in seconds; there is none after the lease."""
        now = self.clock()
        if now >= self.until:
            self.over(now - self.seen)
        return now

    def look(self) -> None:
        """See whether the supervisor has written anew; a file that cannot be read says nothing."""
        now = self.now()
        try:
            with open(self.path, "rb") as file:
                found = file.read()
        except OSError:
            return
        if found != self.last:
            self.last = found
            self.seen = now
            self.until = now + self.seconds
