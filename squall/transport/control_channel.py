"""Control frames of one link, both ways: each is kept until the peer has it, and sent again if it was lost (go-back-N).

So each frame is applied once, in order. Must not know: what is in a frame, who the peer is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from squall.transport.carrier import Parts

#: Seconds between two requests for what is missing, and between two answers to "send again".
RESEND_SECONDS: Final = 0.2
#: Control frames received after which a heartbeat reports their number, if no control frame did.
UNREPORTED: Final = 64


class ControlChannel:
    """What was sent, what was received, and what the peer may lack."""

    __slots__ = ("lacks_frames", "last_resend", "next_request", "received", "reported", "sent", "unacked")

    def __init__(self) -> None:
        self.sent = self.received = 0
        #: Frames received, as last confirmed to the peer.
        self.reported = 0
        #: Frames that the peer may not have, by number.
        self.unacked: deque[tuple[int, Parts]] = deque()
        #: Whether frames of the peer's are missing here.
        self.lacks_frames = False
        self.last_resend = self.next_request = float("-inf")

    def accept(self, number: int) -> bool:
        """Whether a received frame is the next one; after a gap the missing ones are requested."""
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
