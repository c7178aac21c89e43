"""Waiting for a system that is away: when to try again, what the log says, and what `squall status` shows meanwhile.

A connector waits for what waiting helps: a server that does not answer. It gives up what waiting does not help, such as a wrong
password or a missing topic, with an error that says what to change. Which error is which, only the connector knows.
Must not know: servers, threads. The clock and the log are arguments; nothing here sleeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from topology_api import SquallError

#: Seconds before the second attempt; each further wait is twice as long.
FIRST_WAIT: Final = 0.2
#: The most seconds between two attempts.
LONGEST_WAIT: Final = 5.0
#: Seconds between log lines about the same trouble.
LOG_AGAIN: Final = 60.0


class SystemAway(SquallError):
    """A system does not answer, and waiting helps. The text says what its client or the network says, on one line."""


class DoublingWait:
    """The seconds between attempts: each wait is twice as long as the one before."""

    first = FIRST_WAIT

    def __init__(self) -> None:
        self._next = self.first

    def next(self) -> float:
        """Return how long to wait now."""
        wait, self._next = self._next, min(2 * self._next, LONGEST_WAIT)
        return wait

    def reset(self) -> None:
        """Begin again with the first wait: an attempt has succeeded."""
        self._next = self.first


class Waiting:
    """The trouble of one task with one system.

    what: the system, for the log and the status: "Kafka at broker:9092".
    show: takes the text for `squall status`, "" for none; mostly `Context.progress`. May be called with the same text again.
    now: the time in seconds; mostly `Context.now`.
    """

    def __init__(
        self, what: str, log: logging.Logger, show: Callable[[str], object], now: Callable[[], float]
    ) -> None:
        self.what = what
        self._log = log
        self._show = show
        self._now = now
        self._backoff = DoublingWait()
        self._since: float | None = None
        self._logged = 0.0
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why it waits, as the other system says it; "" if it does not wait."""
        return self._reason

    @property
    def seconds(self) -> float:
        """For how long it has waited; 0 if it does not. May be read in another thread."""
        return 0.0 if (since := self._since) is None else self._now() - since

    def failed(self, reason: str) -> float:
        """Note a failed attempt; return the seconds until the next one.

        The first failure is logged, and then one a minute. reason: what the other system says, on one line.
        """
        now = self._now()
        if self._since is None:
            self._since = self._logged = now
            self._log.warning("waits for %s: %s", self.what, reason)
        elif now - self._logged >= LOG_AGAIN:
            self._logged = now
            self._log.warning("still waits for %s, for %.0f s now: %s", self.what, self.seconds, reason)
        self._reason = reason
        self.shown()
        return self._backoff.next()

    def shown(self) -> None:
        """Show again for how long it waits; for calls in between, while an attempt lasts."""
        if self._since is not None:
            self._show(f"waiting for {self.what} for {self.seconds:.0f} s: {self._reason}")

    def succeeded(self) -> None:
        """Note that an attempt has succeeded; costs next to nothing if none had failed."""
        if self._since is None:
            return
        self._log.info("%s answers again after %.1f s", self.what, self.seconds)
        self._since, self._reason = None, ""
        self._backoff.reset()
        self._show("")
