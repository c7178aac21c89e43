"""Reports progress again and again while a blocking call is in flight that reports none itself.

A call that has not returned after a long time is no longer reported: it hangs, and its watcher may end it.
Must not know: what is called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds for which a call is reported to be in progress.
PATIENCE: Final = 600.0


@contextmanager
def keep_alive(
    progress: Callable[[], None], every: float = 1.0, patience: float = PATIENCE
) -> Iterator[None]:
    """Call `progress` every `every` seconds, in a thread of its own, while the `with` block runs; for `patience` seconds at
    most.
    """
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
