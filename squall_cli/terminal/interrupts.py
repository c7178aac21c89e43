"""Ctrl-C, SIGTERM and SIGHUP: the first one asks for an orderly end, the second one ends at once, further ones are ignored.

The end after the second signal takes a bounded time. If it were interrupted, files and processes would be left behind.

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
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the interrupted code cleans up."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_DFL  # otherwise it is ignored, for example under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class EndNow(BaseException):
    """The second signal: interrupts the main thread."""


class Interrupts:
    """Handles these signals inside its `with` block; `name` is the name of the first signal.

    After the second signal, all stay ignored even after the block: the process is about to end and must still say why.
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
                continue  # under nohup the process must outlive its terminal
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
