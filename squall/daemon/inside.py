"""Whether this process is a worker: set once, when one begins.

User code is imported by workers too; what must not happen there (another cluster) asks here. A child process of a worker is
another process, and none.
Must not know: what a worker does.
"""

from __future__ import annotations

import os

_worker = 0


def begin_worker() -> None:
    """This process is a worker from now on."""
    global _worker
    _worker = os.getpid()


def is_worker() -> bool:
    """Return whether this very process is a worker."""
    return _worker == os.getpid()
