"""Which errors led to an error: what it was raised from, what was being handled, what a group of errors holds.

As Python has it: `raise ... from cause` beats what was being handled, and `from None` says that nothing is to be told.
Must not know: how errors are worded, reports.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

#: Groups of errors, which Python has since 3.11.
GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", ())
#: Errors looked at: a group may hold thousands, and they may have causes in turn.
MOST: Final = 100

CAUSED: Final = "caused by"
HANDLING: Final = "raised while handling"
HELD: Final = "it holds"


def causes_of(
    error: BaseException, leave_out: Callable[[BaseException], bool]
) -> list[tuple[str, BaseException]]:
    """The errors that led to this one, each with how it did: the nearest first, those that a group holds before what the
    group was raised from. One that is to be left out, and what led to that, is not among them; none is there twice."""
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
    """What led to an error directly."""
    found = [(HELD, each) for each in error.exceptions[:MOST]] if isinstance(error, GROUP) else []
    if error.__cause__ is not None:
        found.append((CAUSED, error.__cause__))
    elif error.__context__ is not None and not error.__suppress_context__:
        found.append((HANDLING, error.__context__))
    return found
