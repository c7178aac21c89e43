"""Several blocking calls at once, and reports of progress while one is in flight that reports none itself.

Apart, so that the manifest, which decides what counts, imports no threads itself. Must not know: the functions.
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

#: Calls to a file system in flight at once: each mostly waits.
_AT_ONCE: Final = 8
#: Seconds for which a call is reported to be in progress. One that takes longer hangs, and its watcher may end it.
PATIENCE: Final = 600.0


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return the function's results in order, several calls at once; the first error is raised."""
    listed = list(items)
    if len(listed) < 2:
        return list(map(function, listed))
    with ThreadPoolExecutor(min(_AT_ONCE, len(listed)), thread_name_prefix="squall-files") as pool:
        return list(pool.map(function, listed))


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
