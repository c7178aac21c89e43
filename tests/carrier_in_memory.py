"""A `Carrier` in memory, for an `Exchange` without sockets: tests of links run over it and over ZeroMQ."""

from __future__ import annotations

from collections import deque

from squall.transport.carrier import Parts
from squall.values import Address


class LoopbackNetwork:
    """The queues of all workers of one process, by address."""

    def __init__(self) -> None:
        self.queues: dict[Address, tuple[deque[Parts], deque[Parts]]] = {}
        self.opened = 0

    def join(self) -> Address:
        """Return a new address."""
        self.opened += 1
        address = (f"loopback:{self.opened}:data", f"loopback:{self.opened}:control")
        self.queues[address] = (deque(), deque())
        return address

    def carry(self, address: Address, channel: int, parts: Parts) -> None:
        """Move a message; one to an unknown address is lost."""
        if address in self.queues:
            self.queues[address][channel].append([bytes(part) for part in parts])


class LoopbackCarrier:
    """A `Carrier` over a `LoopbackNetwork`."""

    def __init__(self, network: LoopbackNetwork, room: int = 1000) -> None:
        """`room`: messages that may wait at a peer before `send` returns False."""
        self.network = network
        self.room = room
        self.address = network.join()
        self.peers: dict[str, Address] = {}

    def connect(self, peer: str, address: Address) -> None:
        """See `Carrier`."""
        self.peers[peer] = address

    def disconnect(self, peer: str) -> None:
        """See `Carrier`."""
        self.peers.pop(peer, None)

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """See `Carrier`."""
        address = self.peers.get(peer)
        if address is None:
            return False
        waiting = self.network.queues.get(address)
        if waiting is not None and len(waiting[channel]) >= self.room:
            return False
        self.network.carry(address, channel, parts)
        return True

    def receive(self, channel: int) -> Parts | None:
        """See `Carrier`."""
        queues = self.network.queues.get(self.address)
        return queues[channel].popleft() if queues is not None and queues[channel] else None

    def close(self) -> None:
        """See `Carrier`."""
        self.network.queues.pop(self.address, None)
