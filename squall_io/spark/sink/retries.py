"""Retries: how long to wait, what to log, and when to give up. One object per piece of work.

Must not know: Spark, batches, what is tried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from squall_io.spark.sink.errors import NotCommitted, Verdict, reason_of, verdict_on

FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 5.0
#: Tries of an error of unknown meaning, in a row.
UNKNOWN_TRIES: Final = 3
#: Seconds between log lines about the same trouble.
LOG_AGAIN: Final = 60.0
#: Why something is no longer retried that might succeed.
STOPPED: Final = "its worker ends"
#: The longest single sleep: progress is reported in between.
_SLICE: Final = 1.0


class Retries:
    """The retries of one piece of work.

    what: what is wrong, for the log and the error: "batch x of 10 rows is not in hdfs://...". limit: seconds after the
        first
        failure at which it is given up though it may succeed later; None: never. stopped: whether its worker is ending,
        which
        also ends it.
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
        #: When the trouble began, if any.
        self.since: float | None = None
        self.failures = 0
        #: Consecutive errors of unknown meaning.
        self.unknown = 0
        self._wait = FIRST_WAIT
        self._logged = 0.0

    def failed(self, error: Exception, in_doubt: bool = False) -> None:
        """Wait until the next try is due; or raise `NotCommitted`, which ends it.

        in_doubt: what was tried may have happened, so it must not be given up while its worker runs.
        """
        now = self.now()
        if self.since is None:
            self.since = now
        self.failures += 1
        verdict = verdict_on(error)
        self.unknown = self.unknown + 1 if verdict is Verdict.UNKNOWN else 0
        if not in_doubt:
            self._give_up_if_due(error, verdict, now)
        if self.failures == 1 or now - self._logged >= LOG_AGAIN:
            self._logged = now
            lasting = f", for {now - self.since:.0f} s now" if self.failures > 1 else ""
            self.log.warning("%s%s: %s; trying again", self.what, lasting, reason_of(error))
        self.pause(self._wait, reason_of(error))
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def succeeded(self, what: str) -> None:
        """End the retries; log it if there was trouble."""
        if self.since is not None:
            self.log.info("%s after %d failures in %.1f s", what, self.failures, self.now() - self.since)
            self.since = None
            self.progress("")

    @property
    def trouble(self) -> float:
        """Seconds since the first failure; 0: there is none."""
        return 0.0 if self.since is None else self.now() - self.since

    def pause(self, seconds: float, reason: str) -> None:
        """Sleep, reporting progress and the reason; `NotCommitted` once its worker ends."""
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
