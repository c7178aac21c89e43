"""Calls of a driver that can be waited for: in a thread of its own, so that a server that does not answer can be named.

A driver blocks until the server answers, for ever if the server is frozen. Must not know: statements.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
#: Seconds between two looks at whether a call has ended.
LOOK: Final = 1.0


class CallingThread:
    """One thread that makes one call at a time. It never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def make(self, call: Callable[[], T], waits: Callable[[], object]) -> T:
        """Make a call in the thread; return what it returns, or raise what it raises.

        waits: called each second meanwhile, in the caller's thread. If it raises, the call is left to itself.
        """
        done, found = threading.Event(), _Outcome()

        def run() -> None:
            try:
                found.value = call()
            except BaseException as error:
                found.error = error
            done.set()

        self._calls.put(run)
        while not done.wait(LOOK):
            waits()
        if found.error is not None:
            raise found.error
        value: T = found.value
        return value

    def end(self) -> None:
        """End the thread after the calls that were asked for."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class _Outcome:
    """What a call returned or raised."""

    value: Any = None
    error: BaseException | None = None
