"""Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends at once, more of them change nothing.

The end after the second takes a bounded time; cut short, it would leave files and processes behind.

Must not know: what is ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


@contextmanager
def all_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP end what is going on as Ctrl-C does, so that it clears away what it has made."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_DFL  # else it is ignored: under nohup, say
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class EndNow(BaseException):
    """The second signal: leave whatever is going on in the main thread."""


class Interrupts:
    """Handles these signals while it is entered; `name` is that of the first one that came.

    After a second one they stay ignored: the process is about to end, and is to say why.
    """

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self.before: dict[int, Any] = {}
        self.held = False
        self.ending = False

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: it is to outlive its terminal
            self.before[number] = signal.signal(number, self.handle)
        return self

    def __exit__(self, *raised: object) -> None:
        if self.count >= 2:
            return
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. Must not take a lock: the main thread may hold it."""
        self.count += 1
        if self.count == 1:
            self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        elif self.count == 2 and not self.held and not self.ending:
            raise EndNow

    def hold(self) -> None:
        """Defer `EndNow`: the main thread is starting what must be ended later."""
        self.held = True

    def release(self) -> None:
        """End the deferral; raise `EndNow` if the second signal came meanwhile."""
        self.held = False
        if self.count >= 2 and not self.ending:
            raise EndNow

    def ignore(self) -> None:
        """Ignore further signals: everything is being ended in a bounded time."""
        self.ending = True
