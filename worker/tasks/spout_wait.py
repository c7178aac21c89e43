"""Decides when `next_tuple` is called again: after an empty call, after an error, or after the wait that a call returned.

Must not know: trees, emitters, user code.
"""

from __future__ import annotations

from numbers import Real

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

#: Waits after empty calls double up to this many seconds (an idle topology must take almost no processor time).
LONGEST_EMPTY_WAIT = 0.02
#: Seconds to wait after a call of `next_tuple` that raised: the first wait, and the longest. Waits double from one to the next.
FIRST_ERROR_WAIT, LONGEST_ERROR_WAIT = 0.1, 10.0


def seconds_of(wait: object) -> float | None:
    """Return as a float the seconds of a wait that next_tuple returned, which may be a numpy number; None if it is invalid."""
    if isinstance(wait, bool) or not isinstance(wait, Real):
        return None
    try:
        seconds = float(wait)
    except BaseException:  # an int too large for a float, or a number class of the user's
        return None
    return seconds if 0 <= seconds < float("inf") else None


class SpoutWait:
    """The wait of one spout task."""

    def __init__(self, empty_wait: float) -> None:
        self.empty_wait = empty_wait
        #: The time of the next call of next_tuple, at the earliest.
        self.not_before = 0.0
        #: The end of the last wait that next_tuple returned.
        self.asked_until = 0.0
        self.empties = 0
        self.errors_in_a_row = 0
        #: Whether `wake` was called since the last run of next_tuple began.
        self.woken = False
        #: In simulated time: how many calls of next_tuple one instant allows. None: any number.
        self.calls_an_instant: int | None = None
        #: In simulated time: the instant of the last call.
        self.instant = -1.0
        #: How many calls were made at this instant.
        self.instant_calls = 0

    def wake(self) -> None:
        """Call next_tuple at the next opportunity. Other threads may call this while a run is ending. The order of the writes
        matters: such a run either sees the flag, or has already set its wait, which this call then cancels.
        """
        self.woken = True
        self.not_before = 0.0
        self.empties = 0

    def ask(self, seconds: float, empty: bool, now: float) -> None:
        """Wait for the time that next_tuple returned."""
        self.not_before = self.asked_until = now + seconds
        self.empties = 1 if seconds > 0 and empty else 0

    @cython.locals(now=cython.double)
    def emitted(self, empty: bool, finished: bool, now: float) -> None:
        """Handle a call of next_tuple that returned no wait: after an `empty` call wait a little, longer each time."""
        if not empty:
            self.empties = 0
        elif not finished and self.not_before <= now:
            wait = self.empty_wait * 2 ** min(self.empties // 8, 20)
            self.not_before = now + min(wait, max(LONGEST_EMPTY_WAIT, self.empty_wait))
            self.empties += 1

    def fail(self, now: float) -> None:
        """Wait after a call that raised, longer each time."""
        wait = min(LONGEST_ERROR_WAIT, FIRST_ERROR_WAIT * 2 ** min(self.errors_in_a_row, 20))
        self.errors_in_a_row += 1
        self.not_before = now + wait

    def count_calls(self, calls: int, now: float) -> None:
        """Count calls in simulated time, where they take no time: after `calls_an_instant` the spout waits a millisecond."""
        if self.calls_an_instant is None:
            return
        if now != self.instant:
            self.instant, self.instant_calls = now, 0
        self.instant_calls += calls
        if self.instant_calls >= self.calls_an_instant:
            self.not_before = max(self.not_before, now + 0.001)
