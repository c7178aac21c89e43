"""Runs a coroutine so that each of its steps is marked as a call: between steps, other calls run.

If a worker has died between steps (in a thread that a coroutine awaits), one call runs at a time, and is marked as a whole.

Must not know: what the mark is for, tasks.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from topology_api.tuples import Tuple

if TYPE_CHECKING:
    from worker.tasks.marked_calls import MarkedCalls


@types.coroutine
def marked(coroutine: Coroutine[Any, Any, Any], mark: MarkedCalls, tup: Tuple) -> Generator[Any, Any, Any]:
    """Run a coroutine to its end, as `await` does. If the process dies in one of its steps, the mark names its tuple."""
    step: Any = coroutine.send
    value: Any = None
    if mark.is_whole:
        mark.enter((tup,))
        try:
            return (yield from coroutine.__await__())
        finally:
            mark.leave()
    key = mark.key_of(tup)
    while True:
        mark.enter((tup,), key)
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value
        finally:
            mark.leave()
        try:
            value, step = (yield awaited), coroutine.send
        except BaseException as error:  # a cancellation, for example
            value, step = error, coroutine.throw
