"""Runs a coroutine so that each of its steps is marked as a call: between steps, other calls run.

Must not know: what the mark is for, tasks.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any

from squall.running_calls import CallMark


@types.coroutine
def marked(coroutine: Coroutine[Any, Any, Any], mark: CallMark, roots: list[int]) -> Generator[Any, Any, Any]:
    """Run a coroutine to its end, as `await` does. If the process dies in one of its steps, the mark names its tuple."""
    step: Any = coroutine.send
    value: Any = None
    while True:
        mark.enter(1, roots)
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
