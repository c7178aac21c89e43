"""The data messages of a peer: how many have arrived, and which are missing.

Must not know: what is in a message, who the peer is, clocks.
"""

from __future__ import annotations

from typing import Final

#: Batches without credit received after which a heartbeat says so: their sender holds back until it hears.
MOST_UNREPORTED: Final = 4


class Arrivals:
    """The numbers of the data messages that one process of a peer has sent."""

    __slots__ = ("last", "missing", "received", "unreported")

    def __init__(self) -> None:
        self.received = 0
        #: Numbers that did not arrive and that no control frame has reported yet, as ranges.
        self.missing: list[tuple[int, int]] = []
        #: Batches without credit received since the last heartbeat.
        self.unreported = 0
        #: The number of the peer's last batch, once it knows that none is taken here any more.
        self.last: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the peer sends no more, and all that it sent has arrived."""
        return self.last is not None and self.received >= self.last

    def skip_to(self, number: int) -> None:
        """Give up the messages up to a number: they were sent, and did not arrive."""
        self.missing.append((self.received + 1, number))
        self.received = number
