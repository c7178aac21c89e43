"""Transports inside one process: frames passed as objects, and messages moved as bytes without a network.

`Loopback` joins the in-process workers of a local cluster: frames go from worker to worker, in order, none lost. With
`encoded` each frame goes through the codec, as it would on a network, so that values without encoding fail here too.
`LoopbackCarrier` is a `Carrier` in memory, for an `Exchange` without sockets: tests of links run over it
and over ZeroMQ.
Must not know: tasks, user code, clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from squall.transport import wire
from squall.transport.carrier import Parts
from squall.transport.control import pack_control, unpack_control
from squall.transport.frames import Batch, Frame
from squall.transport.streams import Streams
from squall.transport.wire import Header
from squall.values import Address, Incarnation

Deliver = Callable[[Frame], None]

NO_INCARNATION = Incarnation(0, 0)


class Loopback:
    """Joins the workers of one topology."""

    def __init__(self, streams: Streams, encoded: bool = False, codec: str = "pickle") -> None:
        self.streams = streams
        self.encoded = encoded
        self.codec = codec
        self.workers: dict[str, Deliver] = {}

    def join(self, worker: str, deliver: Deliver) -> None:
        """Have frames for this worker delivered by `deliver`."""
        self.workers[worker] = deliver

    def leave(self, worker: str) -> None:
        """Lose frames for this worker from now on."""
        self.workers.pop(worker, None)

    def send(self, worker: str, frame: Frame) -> None:
        """Deliver a frame to a worker."""
        deliver = self.workers.get(worker)
        if deliver is None:
            return
        if not self.encoded:
            deliver(frame)
        elif isinstance(frame, Batch):
            deliver(self.batch_through_codec(frame))
        else:
            header = Header(wire.CONTROL_FRAME, frame.sender, NO_INCARNATION, NO_INCARNATION, 0, 0)
            opened, body = wire.open_header([wire.seal(header, pack_control(frame, 0))])
            deliver(unpack_control(opened.sender, body)[0])

    def batch_through_codec(self, batch: Batch) -> Batch:
        """Return the batch after encoding and decoding; tuples with a value that cannot be encoded fail and are left out."""
        body, further, note = wire.pack_encodable(batch, self.codec, self.streams, batch.sender)
        own = self.workers.get(batch.sender)
        if note is not None and own is not None:
            own(note)
        kind = wire.END if batch.ended else wire.BATCH
        first = wire.seal(Header(kind, batch.sender, NO_INCARNATION, NO_INCARNATION, 0, batch.frame), body)
        header, rest = wire.open_header([first])
        return wire.unpack_batch(header, rest, further, self.codec, self.streams.source)


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
