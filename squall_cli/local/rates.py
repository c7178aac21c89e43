"""The rate of each component in tuples per second, from its counters at two moments a few seconds apart.

Counters of worker processes arrive once a second, so a count has the time at which its last change was seen.
Must not know: where counters come from, where rates are shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from squall.status import ComponentStatus

#: The length of a rate's window in seconds: long enough that the number can be read, short enough that it follows changes.
WINDOW = 5.0
#: The minimum number of seconds between two recorded moments.
STEP = 0.25
#: Seconds after which an unchanged count means a rate of 0.
STILL = 1.5


def done(component: ComponentStatus) -> int:
    """Return the count for a component's rate: emissions of a spout, executions of a bolt."""
    return component.emitted if component.kind == "spout" else component.executed


class Count(msgspec.Struct, frozen=True):
    """A count, and the moment at which its last change was seen."""

    number: int
    changed: float

    def time(self, now: float) -> float:
        """Return the time of the last change, or `now` if the count has not changed for STILL seconds."""
        return self.changed if now - self.changed <= STILL else now


class Rates:
    """Remembers the counters of the last seconds."""

    def __init__(self, now: float, components: Mapping[str, ComponentStatus]) -> None:
        self.latest: dict[str, Count] = {}
        self.moments: deque[tuple[float, dict[str, Count]]] = deque()
        self.record(now, components)

    def record(self, now: float, components: Mapping[str, ComponentStatus]) -> None:
        """Record the counters of this moment; forget counters that are older than the window."""
        for name, component in components.items():
            last = self.latest.get(name)
            if last is None or last.number != done(component):
                self.latest[name] = Count(done(component), now)
        if self.moments and now - self.moments[-1][0] < STEP:
            return
        self.moments.append((now, dict(self.latest)))
        while len(self.moments) > 2 and self.moments[1][0] <= now - WINDOW:
            self.moments.popleft()

    def at(self, now: float, components: Mapping[str, ComponentStatus]) -> dict[str, float | None]:
        """Return the rate of each component over the window; None until enough time has passed."""
        self.record(now, components)
        then, counts = self.moments[0]
        if now - then < STEP:
            return dict.fromkeys(components)
        return {name: self.rate(name, counts.get(name), then, now) for name in components}

    def rate(self, name: str, before: Count | None, then: float, now: float) -> float | None:
        """Return the rate of one component since its count was `before`."""
        latest = self.latest[name]
        if before is None or latest.number <= before.number:
            return 0.0
        seconds = latest.time(now) - before.time(then)
        return (latest.number - before.number) / seconds if seconds > 0 else None
