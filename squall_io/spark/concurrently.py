"""Several blocking calls at once, results in order.

Apart, so that the manifest, which decides what counts, imports no threads itself. Must not know: what is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Calls to a file system in flight at once: each mostly waits.
_AT_ONCE = 8


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return the function's results in order, several calls at once; the first error is raised."""
    listed = list(items)
    if len(listed) < 2:
        return list(map(function, listed))
    with ThreadPoolExecutor(min(_AT_ONCE, len(listed)), thread_name_prefix="squall-files") as pool:
        return list(pool.map(function, listed))
