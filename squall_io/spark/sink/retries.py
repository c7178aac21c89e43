"""Trying again: how long to wait, what to log, and when to give up. One object for one piece of work.

Must not know: Spark, batches, what is tried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from squall_io.spark.sink.errors import NotCommitted, Verdict, reason_of, verdict_on

__all__ = ["STOPPED", "Retries"]

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
#: Errors that nobody knows are given so many chances, one after the other.
UNKNOWN_TRIES: Final = 3
#: Seconds between two lines of the log about the same trouble.
TELL_AGAIN: Final = 60.0
#: Why something is not tried any more that might succeed.
STOPPED: Final = "its worker ends"
#: The longest that is slept at once: in between it is said that the wait goes on.
_SLICE: Final = 1.0


class Retries:
    """What becomes of one piece of work that fails and is tried again.

    what: what is the matter, for the log and for the error: "batch x of 10 rows is not in hdfs://...". limit: seconds after the
        first failure at which it is given up though it may succeed later; None: never. stopped: whether nobody waits for it
        any more, which ends it as well.
    """

    def __init__(
        self,
        what: str,
        log: logging.Logger,
        progress: Callable[[str], None],
        limit: float | None = None,
        stopped: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.what = what
        self.log = log
        self.progress = progress
        self.limit = limit
        self.stopped = stopped
        self.now = now
        self.sleep = sleep
        #: When the trouble began; None: there is none.
        self.since: float | None = None
        self.failures = 0
        #: How many of the last errors, without another one between, nobody knows.
        self.unknown = 0
        self._wait = FIRST_WAIT
        self._told = 0.0

    def failed(self, error: Exception, in_doubt: bool = False) -> None:
        """Wait until it is to be tried again; or raise `NotCommitted`, which ends it.

        in_doubt: what was tried may have happened, so it must not be given up as long as somebody waits for it.
        """
        now = self.now()
        if self.since is None:
            self.since = now
        self.failures += 1
        verdict = verdict_on(error)
        self.unknown = self.unknown + 1 if verdict is Verdict.UNKNOWN else 0
        if not in_doubt:
            self._give_up_if_due(error, verdict, now)
        if self.failures == 1 or now - self._told >= TELL_AGAIN:
            self._told = now
            lasting = f", for {now - self.since:.0f} s now" if self.failures > 1 else ""
            self.log.warning("%s%s: %s; trying again", self.what, lasting, reason_of(error))
        self.pause(self._wait, reason_of(error))
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def succeeded(self, what: str) -> None:
        """It is done; say so if there was trouble."""
        if self.since is not None:
            self.log.info("%s after %d failures in %.1f s", what, self.failures, self.now() - self.since)
            self.since = None
            self.progress("")

    @property
    def trouble(self) -> float:
        """Seconds since the trouble began; 0: there is none."""
        return 0.0 if self.since is None else self.now() - self.since

    def pause(self, seconds: float, reason: str) -> None:
        """Sleep, and say all the while that it goes on, and why; `NotCommitted` as soon as nobody waits for it any more."""
        until = self.now() + seconds
        while True:
            if self.stopped():
                raise NotCommitted(f"{self.what}: {reason}; {STOPPED}")
            self.progress(f"waiting for storage for {self.trouble:.0f} s: {reason}")
            if (left := until - self.now()) <= 0:
                return
            self.sleep(min(left, _SLICE))

    def _give_up_if_due(self, error: Exception, verdict: Verdict, now: float) -> None:
        assert self.since is not None
        tried = f" (tried {self.failures} times in {now - self.since:.0f} s)" if self.failures > 1 else ""
        late = self.limit is not None and now - self.since >= self.limit
        if verdict is Verdict.REFUSED or late or self.unknown >= UNKNOWN_TRIES:
            raise NotCommitted(f"{self.what}{tried}: {reason_of(error)}") from error
