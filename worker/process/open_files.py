"""The files that a worker may open: raises the limit, reserves one descriptor for end.json, says why there are none left.

Each peer takes several descriptors, and so do strangers until they are refused. User code that does not close what it opens,
or lowers the limit, leaves a worker that cannot even write its heartbeat.
Must not know: what is opened.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress


class OpenFiles:
    """The limit on open files. Made before anything else is opened: the reserved descriptor must be below any later limit."""

    def __init__(self) -> None:
        self._reserved: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # a kernel may refuse its own maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    def release_reserved(self) -> None:
        """Close the reserved descriptor, so that end.json can be written."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            with suppress(OSError):  # user code has closed it, with all others
                os.close(reserved)

    def why_none(self) -> str:
        """Say why no more files can be opened, once the system has refused one."""
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now < self.allowed:
            why = f"user code has lowered RLIMIT_NOFILE from {self.allowed} to {now}"
        else:
            why = f"all {now} that RLIMIT_NOFILE allows are in use (by user code that does not close what it opens?)"
        return f"it cannot open any more files: {why}"
