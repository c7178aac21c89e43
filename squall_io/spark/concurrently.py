"""Runs several blocking calls at once, and reports progress for calls that do not report their own progress.

This is a separate module so that the manifest, which decides which batches count, imports no threads.
Must not know: what the calls do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Calls to a file system in flight at once; each one mostly waits.
_AT_ONCE: Final = 8
#: Seconds for which `keep_alive` reports progress. A call that takes longer is presumed to hang, so the worker may be ended.
PATIENCE: Final = 600.0


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call the function for all items, several at once; return the results in order. Raises the first error."""
    listed = list(items)
    if len(listed) < 2:
        return list(map(function, listed))
    with ThreadPoolExecutor(min(_AT_ONCE, len(listed)), thread_name_prefix="squall-files") as pool:
        return list(pool.map(function, listed))


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
