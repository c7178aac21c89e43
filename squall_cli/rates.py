"""Tuples a second of each component, from the counters of two moments a few seconds apart.

Must not know: where counters come from, where rates are shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from squall.status import ComponentStatus

#: A rate is taken over so many seconds: long enough to be read, short enough to follow what happens.
WINDOW = 5.0
#: Moments closer to each other than this are not kept apart.
STEP = 0.25


def done(component: ComponentStatus) -> int:
    """What a component's rate counts: emissions of a spout, executions of a bolt."""
    return component.emitted if component.kind == "spout" else component.executed


class Rates:
    """Remembers the counters of the last seconds."""

    def __init__(self, now: float, components: Mapping[str, ComponentStatus]) -> None:
        self.moments: deque[tuple[float, dict[str, int]]] = deque()
        self.note(now, components)

    def note(self, now: float, components: Mapping[str, ComponentStatus]) -> None:
        """Remember the counters of this moment; forget those of before the window."""
        if self.moments and now - self.moments[-1][0] < STEP:
            return
        self.moments.append((now, {name: done(component) for name, component in components.items()}))
        while len(self.moments) > 2 and self.moments[1][0] <= now - WINDOW:
            self.moments.popleft()

    def at(self, now: float, components: Mapping[str, ComponentStatus]) -> dict[str, float | None]:
        """The rate of each component over the window; None while too little time has passed to tell."""
        then, counts = self.moments[0]
        seconds = now - then
        if seconds < STEP:
            return dict.fromkeys(components)
        return {
            name: max(0, done(component) - counts.get(name, 0)) / seconds
            for name, component in components.items()
        }
