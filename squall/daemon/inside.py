"""Whether this process is a worker: set once, when a worker begins.

A worker also imports user code. Code that must not run in a worker (such as starting a cluster) calls `is_worker` first. A
child process of a worker is not a worker.
Must not know: what a worker does.
"""

from __future__ import annotations

import os

_worker = 0


def begin_worker() -> None:
    """Mark this process as a worker."""
    global _worker
    _worker = os.getpid()


def is_worker() -> bool:
    """Return whether this very process is a worker."""
    return _worker == os.getpid()
