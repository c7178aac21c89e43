"""What moves messages between workers: ZeroMQ sockets (`sockets.py`), or lists in memory (`loopback.py`).

A message is a list of byte parts. A worker hears messages on two channels: batches of tuples on one, everything else on the
other, so that acks never queue behind tuples. A carrier promises little: what one peer sends on one channel comes in its
order, or not at all. Everything else (loss, doubles, who may speak) is the business of `squall.transport.link`.
Must not know: what is in a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from squall.worker_files import Address

DATA: Final = 0
CONTROL: Final = 1

Part = bytes | bytearray | memoryview
Parts = Sequence[Part]


class Carrier(Protocol):
    """Messages to peers and from them. Nothing of it waits; all of it is called by one thread."""

    @property
    def address(self) -> Address:
        """Where peers reach this worker: the data and the control endpoint."""

    def connect(self, peer: str, address: Address) -> None:
        """Make the connections to a peer; those that there were are dropped, with what was queued on them."""

    def disconnect(self, peer: str) -> None:
        """Drop the connections to a peer; none there is fine."""

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """Hand a message over. False: there is no room now, or no such peer; it was not taken."""

    def receive(self, channel: int) -> Parts | None:
        """The next message that has come on a channel; None: there is none."""

    def close(self) -> None:
        """Give everything back."""
