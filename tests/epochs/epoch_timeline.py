"""Simulated time: events in their order, and processes that die, freeze and thaw.

Must not know: epochs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class Process:
    """Something that runs: its events are dropped when it is dead, and wait while it is frozen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []


class Timeline:
    """The events of one run."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.draw = random.random
        self.now = 0.0
        self.number = 0
        self.queue: list[tuple[float, int, Process | None, Callable[..., None], tuple[Any, ...]]] = []
        self.events = 0

    def after(
        self, delay: float, process: Process | None, call: Callable[..., None], *arguments: Any
    ) -> None:
        """Call something in a process, or outside of all."""
        self.number += 1
        heapq.heappush(self.queue, (self.now + delay, self.number, process, call, arguments))

    def soon(self, most: float, process: Process | None, call: Callable[..., None], *arguments: Any) -> None:
        """Call something at a random time."""
        self.after(self.draw() * most, process, call, *arguments)

    def step(self) -> bool:
        """Let the next event happen; return whether there was one."""
        if not self.queue:
            return False
        self.now, _, process, call, arguments = heapq.heappop(self.queue)
        self.events += 1
        if process is None:
            call(*arguments)
        elif process.alive:
            if process.frozen:
                process.deferred.append((call, arguments))
            else:
                call(*arguments)
        return True

    def thaw(self, process: Process) -> None:
        """Let a process go on: what waited for it happens now."""
        process.frozen = False
        waited, process.deferred = process.deferred, []
        for call, arguments in waited:
            self.after(0.0, process, call, *arguments)
