"""When the connections to a peer are made again: it is silent, it does not hear this worker, or no data message gets through.

Must not know: messages, addresses, sockets, clocks (times come as arguments).
"""

from __future__ import annotations

from typing import Final

from squall.transport.in_flight import InFlight

#: Seconds without any message after which the connections are made again, and between two attempts.
SILENCE: Final = 2.5
RECONNECT_SECONDS: Final = 2.0
#: Bytes a second that a connection is assumed to carry at least, before it counts as stalled.
SLOWEST_BYTES: Final = 4_000_000


class ConnectionWatch:
    """Whether the connections to one process of a peer work."""

    __slots__ = ("last_heard", "next_reconnect", "stalled_since", "wants_reconnect")

    def __init__(self, now: float) -> None:
        self.last_heard = now
        self.next_reconnect = now + SILENCE
        self.wants_reconnect = False
        #: Since when the peer, which reads, has received none of what was sent.
        self.stalled_since: float | None = None

    def connected(self, now: float) -> None:
        """Give new connections their time."""
        self.wants_reconnect = False
        self.next_reconnect = now + RECONNECT_SECONDS

    def reported(self, received: int, silence: float, in_flight: InFlight, now: float) -> None:
        """Check what the peer's loop reports: the data messages that it has received, and for how long it heard nothing.

        Heartbeats have a connection of their own: tuples may be stuck on theirs while these go on. So when the peer reports
        for `SILENCE` seconds, plus the time that what is in flight may take, that no more has arrived, the connections are
        made again.
        """
        may_reconnect = now >= self.next_reconnect
        if received > in_flight.received or received >= in_flight.sent:
            self.stalled_since = None
        elif self.stalled_since is None:
            self.stalled_since = now
        elif may_reconnect and now - self.stalled_since >= SILENCE:
            size = sum(sent.size_bytes for sent in in_flight.after(received))
            if now - self.stalled_since >= SILENCE + size / SLOWEST_BYTES:
                self.stalled_since = None
                self.wants_reconnect = True
        if may_reconnect and silence >= SILENCE:
            self.wants_reconnect = True
