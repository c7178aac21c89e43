"""Reports progress for calls that do not report their own progress.

Must not know: what the calls do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds for which `keep_alive` reports progress. A call that takes longer is presumed to hang, so the worker may be ended.
PATIENCE: Final = 600.0


@contextmanager
def keep_alive(
    progress: Callable[[], None], every: float = 1.0, patience: float = PATIENCE
) -> Iterator[None]:
    """Call `progress` every `every` seconds in a thread while the `with` block runs, for at most `patience` seconds."""
    over = threading.Event()

    def run() -> None:
        deadline = time.monotonic() + patience
        while not over.wait(every) and time.monotonic() < deadline:
            progress()

    thread = threading.Thread(target=run, name="squall-spark-keepalive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
