"""The lease: a worker may work only while its supervisor renews the lease. A worker whose lease expires ends itself.

The supervisor writes a rising number into a file. The lease expires when the worker has seen no new number for the length of
the lease, according to its own monotonic clock, which goes on while the process is stopped. By then Nimbus may have assigned
the worker's tasks to other workers. A number that changes after the lease has expired is ignored: it does not show who owns the
tasks. `Lease.now` is the clock of everything in the worker. So a frozen process whose lease has expired does nothing when it
thaws: the first read of the clock, before a frame leaves or a run of calls begins, ends the process.
Must not know: the number's meaning, how a process ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from squall.worker_files import LEASE, path_of


@dataclass(eq=False, repr=False)
class Lease:
    """The lease of a worker, and a clock that ends the process when the lease expires."""

    directory: str
    seconds: float
    #: Called with the seconds since the last renewal; ends the process.
    over: Callable[[float], object]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.seen = self.clock()
        self.until = self.seen + self.seconds
        self.last = b""

    def set_seconds(self, seconds: float) -> None:
        """Set the length of the lease."""
        self.seconds = seconds
        self.until = self.seen + seconds

    def now(self) -> float:
        """Return the time in seconds; does not return once the lease has expired."""
        now = self.clock()
        if now >= self.until:
            self.over(now - self.seen)
        return now

    def renew(self) -> None:
        """Renew the lease if the supervisor has written a new number. An unreadable file changes nothing."""
        now = self.now()
        try:
            with open(path_of(self.directory, LEASE), "rb") as file:
                number = file.read()
        except OSError:
            return
        if number != self.last:
            self.last = number
            self.seen = now
            self.until = now + self.seconds
