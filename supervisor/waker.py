"""Wakes the supervisor's loop from any thread and any signal.

A pipe, not a condition variable: on a signal Python itself writes into it (`signal.set_wakeup_fd`), whatever the main thread is
doing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading


class Waker:
    """A wait that `wake` ends; calls of `wake` since the last wait end the next one at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the wait. From any thread, but not from a signal's handler."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is woken already
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
