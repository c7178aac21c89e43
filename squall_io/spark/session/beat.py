"""Says that it goes on, again and again, while a call of somebody else's code is under way that says nothing itself.

A call that has not come back after a long time is not spoken for any more: it hangs, and whoever watches may end it.
Must not know: what is called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

__all__ = ["PATIENCE", "Beat"]

#: Seconds for which a call is spoken for.
PATIENCE: Final = 600.0
_EVERY: Final = 1.0


class Beat:
    """Calls `progress` every second, from a thread of its own, while its `with` block runs."""

    def __init__(
        self, progress: Callable[[], None], every: float = _EVERY, patience: float = PATIENCE
    ) -> None:
        self._progress = progress
        self._every = every
        self._patience = patience
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="squall-spark-beat", daemon=True)

    def _run(self) -> None:
        deadline = time.monotonic() + self._patience
        while not self._over.wait(self._every) and time.monotonic() < deadline:
            self._progress()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
