"""The channels of one link as numbers and times: which messages arrived, which the peer may lack, whether the connections work.

Must not know: what is in a message, who the peer is, addresses, sockets, clocks (times come as arguments).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Final

from squall.transport.carrier import Parts
from squall.transport.in_flight import InFlight

#: After this many received batches without credit, a heartbeat reports them; their sender waits for this report.
MOST_UNREPORTED: Final = 4
#: Seconds between two requests for missing messages, and between two answers to "send again".
RESEND_SECONDS: Final = 0.2
#: After this many received control frames, a heartbeat reports their number, unless a control frame has already reported it.
UNREPORTED: Final = 64
#: After this many seconds without any message the connections are made again.
SILENCE: Final = 2.5
#: Seconds between two attempts to make the connections again.
RECONNECT_SECONDS: Final = 2.0
#: A working connection is assumed to carry at least this many bytes a second; a slower connection is considered stalled.
SLOWEST_BYTES: Final = 4_000_000


@dataclass(slots=True, eq=False, repr=False)
class Arrivals:
    """The numbers of the data messages that one process of a peer has sent."""

    received: int = 0
    #: Numbers that did not arrive and that no control frame has reported yet, as ranges.
    missing: list[tuple[int, int]] = field(default_factory=list)
    #: How many batches without credit were received since the last heartbeat.
    unreported: int = 0
    #: The number of the peer's last batch, once the peer knows that this worker accepts no more batches.
    last: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the peer sends no more batches, and all batches that it sent have arrived."""
        return self.last is not None and self.received >= self.last


@dataclass(slots=True, eq=False, repr=False)
class OrderedChannel:
    """Messages in both directions, control frames or the data of topologies with epochs: each sent message is kept until the
    peer has it, and sent again if it was lost (go-back-N).

    So each message is processed once, in order.
    """

    sent: int = 0
    received: int = 0
    #: The value of `received` that was last reported to the peer.
    reported: int = 0
    #: Messages that may not have reached the peer, each with its number.
    unacked: deque[tuple[int, Parts]] = field(default_factory=deque)
    #: Whether frames of the peer are missing here.
    lacks_frames: bool = False
    last_resend: float = -inf
    next_request: float = -inf

    def accept(self, number: int) -> bool:
        """Return whether a received frame is the next in order; after a gap the missing frames are requested."""
        if number != self.received + 1:
            self.lacks_frames = self.lacks_frames or number > self.received
            return False
        self.received = number
        return True

    def acked(self, received: int) -> None:
        """Forget the frames up to a number: the peer has them."""
        while self.unacked and self.unacked[0][0] <= received:
            self.unacked.popleft()

    def resend(self, now: float) -> list[Parts]:
        """Return the messages to send again."""
        self.last_resend = now
        return [message for _, message in self.unacked]


class ConnectionWatch:
    """Decides when the connections to a process of a peer are made again: when the process is silent, when it receives nothing
    from this worker, or when no data message gets through.
    """

    __slots__ = ("last_heard", "next_reconnect", "stalled_since", "wants_reconnect")

    def __init__(self, now: float) -> None:
        self.last_heard = now
        self.next_reconnect = now + SILENCE
        self.wants_reconnect = False
        #: The time since which the peer's reports show that none of the data messages on their way have arrived; None if some
        #: have arrived.
        self.stalled_since: float | None = None

    def connected(self, now: float) -> None:
        """Restart the waiting times, because the connections are new."""
        self.wants_reconnect = False
        self.next_reconnect = now + RECONNECT_SECONDS

    def reported(self, received: int, silence: float, in_flight: InFlight, now: float) -> None:
        """Check a report of the peer's loop: how many data messages it has received, and for how long it has heard nothing from
        this worker.

        Heartbeats have their own connection, so they may arrive while tuples are stuck on the other connection. The
        connections are made again if the peer keeps reporting that nothing more has arrived: for `SILENCE` seconds plus the
        time that the tuples in flight may take.
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
