"""Who was turned away at a worker's sockets, and why: counted always, logged at most once a minute per peer.

`Arrivals` follows the connections of one listening socket from what ZeroMQ reports about them. It says for each that ended
before it was let in which kind of stranger it was. ZeroMQ does not name the connection in all reports: where several peers
shake hands at once, one that is turned away without a reason may be counted late, and then nobody's name is given.
Must not know: sockets, keys, what a clock is made of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

#: Seconds between two log lines about one peer.
QUIET_SECS: Final = 60.0
#: So many peers are remembered; further ones share one place.
MOST_PEERS: Final = 1024

#: kind -> what the log says about it.
KINDS: Final = {
    "stranger": "it does not have this topology's key",
    "garbage": "what it sent is no ZeroMQ, is not encrypted, or not for this topology",
    "unfinished": "it did not finish the handshake",
}
UNKNOWN: Final = "an address that could not be read"


class Refusals:
    """What was turned away so far. `clock` gives seconds that only rise."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        self.log = log
        self.clock = clock
        #: By kind; a number of each kind is always there.
        self.counts = dict.fromkeys(KINDS, 0)
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def note(self, kind: str, peer: str | None) -> None:
        """A connection of this kind was refused; `peer` is its host and port, or its user and process on this host (see
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
        others = f"; {more} more from there since this was last said" if more else ""
        where = peer if peer is not None and host != UNKNOWN else host
        self.log.warning(
            "refused a connection from %s: %s. The links of this worker are not affected%s",
            where,
            KINDS[kind],
            others,
        )


class Arrivals:
    """The connections of one listening socket that have not been let in yet."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self._shaking: dict[int, str | None] = {}
        self._reason: str | None = None
        self._let_in = 0

    def accepted(self, descriptor: int, peer: str | None) -> None:
        """A connection was made; who it is remains to be seen."""
        self._shaking[descriptor] = peer

    def let_in(self) -> None:
        """One of the connections has finished the handshake."""
        self._let_in += 1
        self._shaking = dict.fromkeys(self._shaking)  # which of them it was is not said: name none of them
        self._settle()

    def failed(self, kind: str) -> None:
        """A handshake failed; the end of that connection is what is reported next."""
        self._reason = kind

    def ended(self, descriptor: int) -> None:
        """A connection is over."""
        shaking = descriptor in self._shaking
        peer = self._shaking.pop(descriptor, None)
        kind, self._reason = self._reason, None
        if kind is not None:
            self.refusals.note(kind, peer)
        elif shaking and self._let_in:
            self._let_in -= 1
        elif shaking:
            self.refusals.note("garbage", peer)
        self._settle()

    def _settle(self) -> None:
        if self._let_in >= len(self._shaking):  # all that were still shaking hands are in
            self._shaking.clear()
            self._let_in = 0
