"""Finds the errors that led to an error: its cause, the error that was being handled, and the members of a group.

As in Python, `raise ... from cause` takes precedence over the error that was being handled, and `from None` hides that error.
Must not know: how errors are worded, reports.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

#: The class of exception groups, which exists since Python 3.11.
GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", ())
#: The most errors that are visited: a group may hold thousands, each with causes.
MOST: Final = 100

CAUSED: Final = "caused by"
HANDLING: Final = "raised while handling"
HELD: Final = "it holds"


def causes_of(
    error: BaseException, leave_out: Callable[[BaseException], bool]
) -> list[tuple[str, BaseException]]:
    """Return the errors that led to this error: each once, with its relation (`CAUSED`, ...), the nearest first.

    The members of a group come before the group's cause. An error for which `leave_out` returns True is skipped, together with
    its causes.
    """
    found: list[tuple[str, BaseException]] = []
    seen = {id(error)}
    ahead = _next_to(error)[::-1]
    while ahead and len(found) < MOST:
        how, cause = ahead.pop()
        if id(cause) in seen or leave_out(cause):
            continue
        seen.add(id(cause))
        found.append((how, cause))
        ahead += _next_to(cause)[::-1]
    return found


def _next_to(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return the errors that led to an error directly."""
    found = [(HELD, member) for member in error.exceptions[:MOST]] if isinstance(error, GROUP) else []
    if error.__cause__ is not None:
        found.append((CAUSED, error.__cause__))
    elif error.__context__ is not None and not error.__suppress_context__:
        found.append((HANDLING, error.__context__))
    return found
