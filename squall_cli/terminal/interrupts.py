"""Ctrl-C, SIGTERM and SIGHUP: the first signal requests an orderly end, the second ends the command at once, further signals
are ignored.

The end after the second signal takes a bounded time. If it were interrupted, files and processes would be left behind.

Must not know: the work that is ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def all_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the interrupted code cleans up."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_DFL  # not if the signal is ignored, for example under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class EndNow(BaseException):
    """Raised in the main thread by the second signal."""


class Interrupts:
    """Handles the three signals inside its `with` block; `name` is the name of the first signal that arrived.

    After the second signal, all signals stay ignored even after the block: the process is about to end, but must still print
    the reason.
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
        """Handle a signal. This method must not take a lock, since the main thread may hold that lock."""
        self.count += 1
        if self.count == 1:
            self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        elif self.count == 2 and not self.held and not self.ending:
            raise EndNow

    def hold(self) -> None:
        """Defer `EndNow`: the main thread is starting something that must be ended later."""
        self.held = True

    def release(self) -> None:
        """End the deferral; raise `EndNow` if the second signal has arrived meanwhile."""
        self.held = False
        if self.count >= 2 and not self.ending:
            raise EndNow

    def ignore(self) -> None:
        """Ignore further signals: everything is being ended in a bounded time."""
        self.ending = True
