"""The interface of carriers, which move messages between workers: ZeroMQ sockets, and lists in memory in tests.

A message is a list of byte parts. A worker receives messages on two channels: batches of tuples on one, everything else on the
other, so that acks never queue behind tuples. A carrier promises only that messages of one peer on one channel arrive in order
or not at all. `squall.transport.link` handles everything else (loss, duplicates, which process may send).
Must not know: what is in a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from squall.values import Address

DATA: Final = 0
CONTROL: Final = 1

Part = bytes | bytearray | memoryview
Parts = Sequence[Part]


class Carrier(Protocol):
    """Moves messages to peers and from them. No method blocks; one thread calls them all."""

    @property
    def address(self) -> Address:
        """The endpoints at which peers reach this worker: data and control."""

    def connect(self, peer: str, address: Address) -> None:
        """Connect to a peer. Earlier connections are dropped, with their queued messages."""

    def disconnect(self, peer: str) -> None:
        """Drop the connections to a peer, if there are any."""

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """Queue a message; return False if it was not accepted: the queue is full, or there is no such peer."""

    def receive(self, channel: int) -> Parts | None:
        """Return the next message that has arrived on a channel, or None."""

    def close(self) -> None:
        """Close all connections and free their resources."""
