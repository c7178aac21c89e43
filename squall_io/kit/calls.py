"""Calls of a driver that can be waited for: in a thread of its own, so that a server that does not answer can be named.

A driver blocks until the server answers, for ever if the server is frozen. Must not know: statements.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")
#: Seconds between two looks at whether a call has ended.
LOOK: Final = 1.0


class Call(Generic[T]):
    """A call that was begun."""

    def __init__(self, call: Callable[[], T], ended: Callable[[], object]) -> None:
        self._call, self._ended = call, ended
        self._over = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call."""
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        self._over.set()
        self._ended()

    def is_over(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, within these seconds."""
        return self._over.wait(seconds)

    def result(self) -> T:
        """Return what it returned, or raise what it raised; it is over."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


class CallingThread:
    """One thread that makes one call at a time. It never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, call: Callable[[], T], ended: Callable[[], object] = bool) -> Call[T]:
        """Have a call made in the thread. ended: called there when it is over; it must not raise."""
        begun = Call(call, ended)
        self._calls.put(begun)
        return begun

    def make(self, call: Callable[[], T], waits: Callable[[], object]) -> T:
        """Make a call in the thread; return what it returns, or raise what it raises.

        waits: called each second meanwhile, in the caller's thread. If it raises, the call is left to itself.
        """
        begun = self.begin(call)
        while not begun.is_over(LOOK):
            waits()
        return begun.result()

    def end(self) -> None:
        """End the thread after the calls that were asked for."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
