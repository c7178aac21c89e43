"""Connections that a worker's sockets refused. All are counted; at most one a minute is logged for each peer.

`Handshakes` follows the connections of one listening socket through ZeroMQ's reports, and classifies each connection that ended
before its handshake succeeded. ZeroMQ does not name the connection in all reports: if several handshakes run at once, a refusal
for which ZeroMQ gives no reason may be counted late and logged without the address.
Must not know: sockets, keys, how a clock works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

#: Seconds between two log lines about one peer.
QUIET_SECS: Final = 60.0
#: The number of peers that are remembered; all further peers share one entry.
MOST_PEERS: Final = 1024

#: kind -> its explanation in the log.
KINDS: Final = {
    "stranger": "it does not have this topology's key",
    "garbage": "what it sent is not ZeroMQ, is not encrypted, or is not meant for this topology",
    "unfinished": "it did not finish the handshake",
}
UNKNOWN: Final = "an address that could not be read"


class Refusals:
    """Counts and logs refused connections. `clock` returns monotonic seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        self.log = log
        self.clock = clock
        #: The number of refusals by kind; every kind has an entry.
        self.counts = dict.fromkeys(KINDS, 0)
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def record(self, kind: str, peer: str | None) -> None:
        """Count a refused connection of this kind. `peer`: its host and port, or its user and process on this host (see
        `other_end`); None if that could not be read."""
        self.counts[kind] += 1
        host = UNKNOWN if peer is None else peer.rpartition(":")[0]
        if host not in self._said and len(self._said) >= MOST_PEERS:
            host = "further addresses"
        now = self.clock()
        if now - self._said.get(host, -QUIET_SECS) < QUIET_SECS:
            self._unsaid[host] = self._unsaid.get(host, 0) + 1
            return
        self._said[host] = now
        more = self._unsaid.pop(host, 0)
        others = f"; {more} more from there since the last such line" if more else ""
        where = peer if peer is not None and host != UNKNOWN else host
        self.log.warning(
            "refused a connection from %s: %s. The links of this worker are not affected%s",
            where,
            KINDS[kind],
            others,
        )


class Handshakes:
    """The connections of one listening socket whose handshake is not finished."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self._shaking: dict[int, str | None] = {}
        self._reason: str | None = None
        self._let_in = 0

    def accepted(self, descriptor: int, peer: str | None) -> None:
        """A connection was accepted; its handshake begins."""
        self._shaking[descriptor] = peer

    def let_in(self) -> None:
        """One of the handshakes succeeded."""
        self._let_in += 1
        # ZeroMQ does not report which connection succeeded, so forget all pending addresses.
        self._shaking = dict.fromkeys(self._shaking)
        self._settle()

    def failed(self, kind: str) -> None:
        """A handshake failed; ZeroMQ reports the end of that connection next."""
        self._reason = kind

    def ended(self, descriptor: int) -> None:
        """A connection was closed."""
        shaking = descriptor in self._shaking
        peer = self._shaking.pop(descriptor, None)
        kind, self._reason = self._reason, None
        if kind is not None:
            self.refusals.record(kind, peer)
        elif shaking and self._let_in:
            self._let_in -= 1
        elif shaking:
            self.refusals.record("garbage", peer)
        self._settle()

    def _settle(self) -> None:
        if self._let_in >= len(self._shaking):  # all pending handshakes have succeeded
            self._shaking.clear()
            self._let_in = 0
