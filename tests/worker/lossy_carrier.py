"""A carrier that loses, doubles, changes and reorders messages before another one moves them: in memory, or over ZeroMQ.

Must not know: the content of messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from squall.transport.carrier import Carrier, Parts
from squall.values import Address


class Faults:
    """The faults of one network: messages are lost, doubled, changed and reordered with the given chances, while `bad`."""

    def __init__(
        self, random: Random, lose: float = 0.0, double: float = 0.0, swap: float = 0.0, flip: float = 0.0
    ) -> None:
        self.random = random
        self.chances = lose, double, swap, flip
        self.bad = True
        #: How many messages had each fault.
        self.losses = self.doubles = self.swaps = self.flips = 0
        #: Messages that never arrive, whatever the chances: those to an address for which this is true.
        self.cut: Callable[[Address, int], bool] = lambda address, channel: False

    def become_of(self, address: Address, channel: int, parts: Parts) -> list[Parts]:
        """The messages that are sent on instead of one."""
        if self.cut(address, channel):
            self.losses += 1
            return []
        if not self.bad:
            return [parts]
        lose, double, _, flip = self.chances
        draw = self.random.random
        if draw() < lose:
            self.losses += 1
            return []
        if draw() < flip:
            self.flips += 1
            first = bytearray(parts[0])
            first[self.random.randrange(len(first))] ^= 1 << self.random.randrange(8)
            parts = [bytes(first), *parts[1:]]
        if draw() < double:
            self.doubles += 1
            return [parts, parts]
        return [parts]

    def swapped(self) -> bool:
        """Whether a message is overtaken by the next one."""
        if not self.bad or self.random.random() >= self.chances[2]:
            return False
        self.swaps += 1
        return True


class LossyCarrier:
    """A `Carrier` over another one, with faults."""

    def __init__(self, carrier: Carrier, faults: Faults) -> None:
        self.carrier = carrier
        self.faults = faults
        self.peers: dict[str, Address] = {}
        #: How often the connections to each peer were made.
        self.connections: Counter[str] = Counter()
        #: Messages that the next one of their channel overtakes.
        self.held: dict[tuple[str, int], Parts] = {}

    @property
    def address(self) -> Address:
        """See `Carrier`."""
        return self.carrier.address

    def connect(self, peer: str, address: Address) -> None:
        """See `Carrier`."""
        self.forget(peer)
        self.peers[peer] = address
        self.connections[peer] += 1
        self.carrier.connect(peer, address)

    def disconnect(self, peer: str) -> None:
        """See `Carrier`."""
        self.forget(peer)
        self.carrier.disconnect(peer)

    def forget(self, peer: str) -> None:
        """Messages held for a peer are lost with its connections."""
        self.peers.pop(peer, None)
        self.held = {key: parts for key, parts in self.held.items() if key[0] != peer}

    def send(self, peer: str, channel: int, parts: Parts) -> bool:
        """See `Carrier`. A message that a fault has swallowed counts as accepted."""
        if peer not in self.peers:
            return False
        key = peer, channel
        messages = self.faults.become_of(self.peers[peer], channel, parts)
        if key in self.held:
            messages.append(self.held.pop(key))
        elif messages and self.faults.swapped():
            self.held[key] = messages.pop()
        for position, message in enumerate(messages):
            if not self.carrier.send(peer, channel, message) and not position:
                return False
        return True

    def receive(self, channel: int) -> Parts | None:
        """See `Carrier`."""
        return self.carrier.receive(channel)

    def close(self) -> None:
        """See `Carrier`. No waiting message leaves any more: the process has died."""
        for peer in list(self.peers):
            self.disconnect(peer)
        self.carrier.close()
