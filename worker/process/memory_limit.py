"""What follows from the memory that a worker process uses: a warning, a drain, the end (`topology.worker.memory.mb`).

Must not know: how memory is measured, how a process drains or ends.
"""

from __future__ import annotations

from typing import Final, Literal

#: The share of the limit at which a warning is due, and the share below which another one may follow.
WARN, CALM = 0.8, 0.7
#: The share at which the process ends without a drain: it grows too fast.
MUCH: Final = 1.25
#: Seconds that the process has for draining.
DRAIN_SECS: Final = 45.0
_MEGABYTE: Final = 1_000_000

Step = Literal["warn", "drain", "end"]


class MemoryLimit:
    """The limit of one process, in bytes; None: there is none."""

    def __init__(self, megabytes: int | None) -> None:
        self.most = None if megabytes is None else megabytes * _MEGABYTE
        self.warned = False
        self.reached_at: float | None = None

    def step(self, used: int, now: float) -> Step | None:
        """Return what is due, once, for the memory that is used now, in bytes."""
        most = self.most
        if most is None:
            return None
        if self.reached_at is not None:
            return "end" if used >= MUCH * most or now - self.reached_at >= DRAIN_SECS else None
        if used >= most:
            self.reached_at = now
            return "end" if used >= MUCH * most else "drain"
        if used >= WARN * most and not self.warned:
            self.warned = True
            return "warn"
        self.warned = self.warned and used >= CALM * most
        return None

    def text(self, used: int, tasks: str, grew: tuple[str, int] | None = None) -> str:
        """Return a sentence about the memory that is used. `tasks`: those that run in the process; `grew`: the task with most
        of the growth, and its bytes."""
        assert self.most is not None
        limit = f"{self.most // _MEGABYTE:,} MB of topology.worker.memory.mb"
        text = f"{used // _MEGABYTE:,} MB of memory are used, of {limit}, by the process that runs {tasks}"
        return (
            text
            if grew is None
            else f"{text}; {grew[1] // _MEGABYTE:,} MB of the growth are from calls of {grew[0]}"
        )
