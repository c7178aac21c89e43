"""How long a task's calls of user code take, and which share of the time the task is in them.

The task measures runs of calls, not each call: a bolt reads the clock after as many calls as fit into some milliseconds
(`Pace`), so a tuple costs nothing. A run that takes much longer is taken for one slow call among fast ones; the runs after it
are single calls until they are fast again. So a slow call is never lost in an average.
Must not know: who reads the numbers, threads.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from squall.reports.histogram import LatencyHistogram

#: A run of several calls that takes longer than these seconds holds a slow call.
SLOW_SECONDS: Final = 0.01
#: The span of the busy share, in seconds, and the least time between two of its samples.
SPAN: Final = 10.0
SAMPLE_EVERY: Final = 0.5


class WorkTime:
    """The time that one task has spent in calls of user code."""

    __slots__ = ("calls", "samples", "seconds", "usual")

    def __init__(self, now: float) -> None:
        #: The time of a call, in seconds.
        self.calls = LatencyHistogram()
        #: Seconds in calls, of every kind.
        self.seconds = 0.0
        #: Seconds that a call took in the last run without a slow call.
        self.usual: float | None = None
        #: (time, seconds in calls until then), the oldest first.
        self.samples: deque[tuple[float, float]] = deque([(now, 0.0)])

    def took(self, calls: int, seconds: float) -> None:
        """Add a run of `calls` calls that took `seconds` in total."""
        if calls < 1:
            return
        seconds = max(0.0, seconds)
        self.seconds += seconds
        each = seconds / calls
        if calls == 1 or seconds < SLOW_SECONDS or self.usual is None:
            self.usual = each
            self.calls.add(each, calls)
            return
        fast = min(self.usual, each)
        self.calls.add(fast, calls - 1)
        self.calls.add(seconds - fast * (calls - 1))

    def share(self, now: float, running: float) -> float | None:
        """Return the share of the last ten seconds that was spent in calls; None if too little time has passed.

        `running`: seconds for which the present call has been running.
        """
        spent, samples = self.seconds + running, self.samples
        while len(samples) > 1 and samples[1][0] <= now - SPAN:
            samples.popleft()
        begin, before = samples[0]
        if now - samples[-1][0] >= SAMPLE_EVERY:
            samples.append((now, spent))
        if now - begin < SAMPLE_EVERY:
            return None
        return min(1.0, max(0.0, (spent - before) / (now - begin)))
