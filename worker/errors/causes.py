"""Which errors led to an error: what it was raised from, what was being handled, what a group of errors holds.

As in Python, `raise ... from cause` takes precedence over what was being handled, and `from None` hides it.
Must not know: how errors are worded, reports.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

#: Groups of errors, which Python has since 3.11.
GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", ())
#: The most errors that are visited: a group may hold thousands, each with causes.
MOST: Final = 100

CAUSED: Final = "caused by"
HANDLING: Final = "raised while handling"
HELD: Final = "it holds"


def causes_of(
    error: BaseException, leave_out: Callable[[BaseException], bool]
) -> list[tuple[str, BaseException]]:
    """Return the errors that led to this one, each with how it did, the nearest first and none twice.

    Those that a group holds come before what the group was raised from. An error to leave out is skipped with its own causes.
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
    """Return what led to an error directly."""
    found = [(HELD, member) for member in error.exceptions[:MOST]] if isinstance(error, GROUP) else []
    if error.__cause__ is not None:
        found.append((CAUSED, error.__cause__))
    elif error.__context__ is not None and not error.__suppress_context__:
        found.append((HANDLING, error.__context__))
    return found
