"""Wakes the supervisor's loop from any thread and any signal.

The module uses a pipe instead of a condition variable: on a signal, Python itself writes into the pipe
(`signal.set_wakeup_fd`), regardless of what the main thread is doing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading


class Waker:
    """Lets a thread wait until `wake` is called. If `wake` is called between two waits, the second wait ends at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the wait. May be called from any thread, but not from a signal handler."""
        # If the pipe is full, the loop will wake in any case.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.descriptor >= 0:
                os.write(self.descriptor, b"w")

    def wait(self, seconds: float) -> None:
        """Wait until `wake` is called, or the time has passed."""
        select.select([self._read], [], [], max(seconds, 0.0))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Close the pipe. Later calls of `wake` do nothing."""
        with self._lock:
            descriptors = (self._read, self.descriptor)
            self._read = self.descriptor = -1
        for descriptor in descriptors:
            os.close(descriptor)
