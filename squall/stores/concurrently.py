"""Runs several blocking calls at once.

This is a separate module so that the manifest, which decides which batches count, imports no threads.
Must not know: what the calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Calls to a file system in flight at once; each one mostly waits.
_AT_ONCE: Final = 8


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call the function for all items, several at once; return the results in order. Raises the first error."""
    listed = list(items)
    if len(listed) < 2:
        return list(map(function, listed))
    with ThreadPoolExecutor(min(_AT_ONCE, len(listed)), thread_name_prefix="squall-files") as pool:
        return list(pool.map(function, listed))
