"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once, a third does not even wait for us.

Must not know: what is ended.
"""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any


class EndNow(BaseException):
    """The second signal: leave whatever is going on in the main thread."""


class Interrupts:
    """Handles both signals while it is entered; `name` is that of the first one that came."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self.take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def take(self, number: int, frame: FrameType | None) -> None:
        """A signal has come. Nothing here may take a lock: the main thread may hold it."""
        self.count += 1
        if self.count == 1:
            self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        elif self.count == 2:
            raise EndNow
        else:
            os._exit(1)
