"""Hints that are added to an error, one line each, when a worker lacks one of the author's modules or files.

Must not know: reports, tasks, what has been shipped.
"""

from __future__ import annotations

import re
import sys
from typing import Final

MODULE: Final = (
    "(not on this host: use `squall submit --include PATH` to send one of your own modules, or `--requirements FILE` to have"
    " packages installed)"
)
FILE: Final = (
    "(paths refer to the worker's host: use `squall submit --resource PATH` to send a file; it is then placed beside the"
    " topology's file)"
)
#: The folder into which a supervisor unpacks a submitted topology's code. In a local cluster, no such folder is on the module
#: path.
SHIPPED: Final = re.compile(r"/code/[0-9a-f]{64}$")
#: The first calls of a task.
BEGINNINGS: Final = ("start", "open", "prepare")


def hint_for(call: str, error: BaseException) -> str | None:
    """Return the hint for an error that a user's call raised; None: the error needs no hint."""
    cause: BaseException | None = error
    seen: set[int] = set()  # a user's errors may be raised from each other in a circle
    while cause is not None and not isinstance(cause, ImportError | FileNotFoundError):
        seen.add(id(cause))
        cause = None if id(cause.__cause__) in seen else cause.__cause__
    if cause is None or not any(SHIPPED.search(folder) for folder in sys.path):
        return None
    if isinstance(cause, ImportError):
        return MODULE
    return FILE if call in BEGINNINGS else None
