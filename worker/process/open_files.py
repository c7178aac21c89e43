"""The files that a worker may have open: as many as it can get, one that is kept for its last words, why there are none left.

Each peer takes several, and so do strangers until they are turned away. User code that forgets to close what it opens, or
lowers the limit, leaves a worker that cannot even say that it lives.
Must not know: what is opened.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress


class OpenFiles:
    """Made before anything else is opened: the descriptor that is kept must be below any limit that is set later."""

    def __init__(self) -> None:
        self._kept: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # a kernel may refuse what it calls the most
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    def give_up_kept(self) -> None:
        """The last words are to be written."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(OSError):  # user code has closed it, with all others
                os.close(kept)

    def why_none(self) -> str:
        """Why no more can be opened, after the system has said so."""
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now < self.allowed:
            why = f"user code has lowered RLIMIT_NOFILE from {self.allowed} to {now}"
        else:
            why = f"all {now} that RLIMIT_NOFILE allows are in use (by user code that does not close what it opens?)"
        return f"it can open no file any more: {why}"
