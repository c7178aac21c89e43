"""All links of one worker: frames out to peers, messages in from them, and what becomes of a peer.

The worker sends frames by `send`; `receive` takes what has come, `advance` does what is due. Frames that came, trees that
were lost, peers that come and go are told to the `Listener`, which is the worker. What is refused (garbage, a superseded
incarnation, a stranger to the assignment) is counted by kind and does no harm.
Must not know: sockets (see `carrier`), tasks, user code.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from squall.clock import Clock
from squall.transport import wire
from squall.transport.carrier import CONTROL, DATA, Carrier, Parts
from squall.transport.control import pack_control, unpack_control
from squall.transport.errors import BadFrame, Unencodable
from squall.transport.frames import Batch, Control, Frame, Held, Unsent
from squall.transport.link import GREETING, SILENCE, Link, Sent, remembered
from squall.transport.streams import Streams
from squall.transport.wire import Header, Sign, Undecodable
from squall.worker_files import Address, Incarnation
from topology_api import Failure

_log = logging.getLogger(__name__)

#: Messages taken of one channel in one go, so that a flood on one does not hold up everything else.
MOST_AT_ONCE: Final = 64
#: A pause of our own that is longer than this (and than any sleep of the loop) is not taken for a silence of the peers.
OWN_PAUSE: Final = 1.5
#: Seconds between two lines of the log about what one peer is refused for.
LOG_SECONDS: Final = 60.0

# Why tuples are lost, as `Failure.error` says it.
GONE: Final = "its worker is gone"
MISSING: Final = "the connection to its worker lost it"
RENUMBERED: Final = "its task was made anew"


@dataclass(frozen=True)
class PeerPlace:
    """Another worker of the topology: its process, and where that hears."""

    incarnation: Incarnation
    address: Address | None


class Listener(Protocol):
    """What is told of frames and peers."""

    def deliver(self, frame: Frame) -> None:
        """A frame has come."""

    def lost(self, frames: Sequence[Sent], why: str) -> None:
        """These batches were never executed: their trees fail, for this reason."""

    def superseded(self, worker: str) -> None:
        """The process of a peer is over; another one may come, or its tasks move."""

    def linked(self, worker: str) -> None:
        """A process of a peer takes tuples from now on."""

    def closing(self, worker: str) -> None:
        """A peer takes no more tuples, until another process of it is linked."""

    def overflow(self, batch: Batch) -> None:
        """Too many tuples of a cycle are on their way to a peer: those of the batch that nobody tracks are to be dropped."""


class Exchange:
    """The links of one worker."""

    def __init__(
        self,
        worker: str,
        incarnation: Incarnation,
        carrier: Carrier,
        clock: Clock,
        streams: Streams,
        codec: str,
        window_of: Callable[[int], int],
        listener: Listener,
        loop_buffer: int = 10_000,
    ) -> None:
        """`window_of`: frames under way to a task; `loop_buffer`: tuples under way to a peer on edges that close a cycle."""
        self.worker = worker
        self.incarnation = incarnation
        self.carrier = carrier
        self.now = clock.now
        self.streams = streams
        self.codec = codec
        self.window_of = window_of
        self.listener = listener
        self.loop_buffer = loop_buffer
        self.version = -1
        self.links: dict[str, Link] = {}
        self.addresses: dict[str, Address | None] = {}
        #: Tasks that were made anew with a version: what an older one sends them is refused.
        self.fences: dict[int, int] = {}
        self.leaving = self.is_ready = False
        self.counters: Counter[str] = Counter()
        self.last_logged: dict[tuple[str, str], float] = {}
        self.last_advance = clock.now()

    # Peers.

    def assign(
        self,
        version: int,
        peers: Mapping[str, PeerPlace],
        component_of: Mapping[int, str] | None = None,
        renumbered: Iterable[int] = (),
    ) -> None:
        """A new version of the assignment, or news of peers by the same one. Call it before `Worker.replan`.

        `component_of`: the component of each task from now on; `renumbered`: tasks that are made anew with this version: what
        was sent to them before is lost.
        """
        now = self.now()
        self.version = version
        if component_of is not None:
            self.streams.component_of = component_of
        self.fence(renumbered)
        for worker in [worker for worker in self.links if worker not in peers]:
            self.supersede(self.links[worker], (0, 0))
            del self.links[worker]
            self.addresses.pop(worker, None)
            self.carrier.disconnect(worker)
        for worker, place in peers.items():
            link = self.links.get(worker)
            if link is None:
                link = self.links[worker] = Link(
                    self.worker,
                    self.incarnation,
                    worker,
                    place.incarnation,
                    version,
                    now,
                    self.pack,
                    self.carrier.address,
                )
            elif place.incarnation > link.incarnation:
                self.supersede(link, place.incarnation)
            link.version = version
            link.next_sign = now
            current = place.incarnation == link.incarnation
            if current and place.address is not None and place.address != self.addresses.get(worker):
                self.addresses[worker] = place.address
                self.connect(link)
            self.open_if_ready(link)

    def fence(self, renumbered: Iterable[int]) -> None:
        """These tasks are made anew with this version."""
        for task in renumbered:
            self.fences[task] = self.version
            for link in self.links.values():
                self.lose(link.forget_target(task), RENUMBERED)

    @property
    def settled(self) -> bool:
        """Whether all tuples that were sent have been executed."""
        return not any(link.unconfirmed or link.waiting for link in self.links.values())

    def connect(self, link: Link) -> None:
        """Make the connections to a peer, anew if there were any."""
        address = self.addresses.get(link.peer)
        if address is not None:
            self.carrier.connect(link.peer, address)
            link.reconnected(self.now())

    def supersede(self, link: Link, incarnation: Incarnation) -> None:
        """The process of a peer is over."""
        lost = link.supersede(incarnation, self.now())
        self.listener.superseded(link.peer)
        self.lose(lost, GONE)
        # What is queued for the old process must not reach the new one, nor wait where that is not.
        self.addresses.pop(link.peer, None)
        self.carrier.disconnect(link.peer)

    def lose(self, frames: list[Sent], why: str) -> None:
        """Batches are lost: say so."""
        if frames:
            self.counters["lost frames"] += len(frames)
            self.listener.lost(frames, why)

    @property
    def linked(self) -> bool:
        """Whether every peer answers."""
        return all(link.up for link in self.links.values())

    def ready(self) -> None:
        """The tasks here are prepared: peers may send tuples."""
        if not self.is_ready:
            self.is_ready = True
            self.sign_soon()

    def sign_soon(self) -> None:
        """Have all peers hear of this worker with the next `advance`."""
        for link in self.links.values():
            link.next_sign = self.now()

    # Frames out.

    def send(self, worker: str, frame: Frame) -> None:
        """Send a frame to a peer. To one that is gone: tuples are lost, the rest is of no use."""
        link = self.links.get(worker)
        if isinstance(frame, Batch):
            if link is None:
                self.lose([remembered(frame, 0)], GONE)
                return
            if not frame.frame and not frame.ended and link.loop_tuples >= self.loop_buffer:
                self.listener.overflow(frame)
                if not frame.rows:
                    return
            link.send_batch(frame, self.now())
        elif link is None:
            return
        else:
            link.send_control(frame)
        self.pump(link)

    def pump(self, link: Link) -> bool:
        """Hand what is ready to the carrier; whether anything left."""
        left = False
        for channel in (CONTROL, DATA):
            out = link.out[channel]
            while out:
                if not self.carrier.send(link.peer, channel, out[0]):
                    break
                out.popleft()
                left = True
        return left

    def pack(self, batch: Batch) -> tuple[bytes, Parts]:
        """The bytes of a batch; tuples with a value that cannot be encoded fail and are left out."""
        note = Control(self.worker)
        while True:
            try:
                packed = wire.pack_batch(batch, self.codec, self.streams.numbers)
                break
            except Unencodable as error:
                leave_out(batch, error, note)
        if note:
            self.listener.deliver(note)
        return packed

    # Messages in.

    def receive(self) -> bool:
        """Take what has come, control frames first; whether anything had."""
        took = False
        for channel in (CONTROL, DATA):
            for _ in range(MOST_AT_ONCE):
                parts = self.carrier.receive(channel)
                if parts is None:
                    break
                took = True
                self.take(parts, channel)
        return took

    def take(self, parts: Parts, channel: int) -> None:
        """One message."""
        try:
            header, body = wire.open_header(parts)
            link = self.link_of(header)
            if link is None:
                return
            if header.kind == wire.SIGN:
                self.take_sign(link, wire.unpack_sign(body))
            elif header.kind == wire.CONTROL_FRAME:
                self.take_control(link, header, body)
            else:
                self.take_data(link, header, body, parts[1:])
        except BadFrame as error:
            self.refuse("garbage", "?", str(error))

    def link_of(self, header: Header) -> Link | None:
        """The link that a message belongs to, None when it is refused."""
        link = self.links.get(header.sender)
        if link is None:
            self.refuse("unknown worker", header.sender, "it is not in the assignment")
            return None
        if header.incarnation != link.incarnation:
            if header.incarnation < link.incarnation:
                self.refuse("superseded", header.sender, f"incarnation {header.incarnation} is over")
                return None
            if header.incarnation[0] != link.incarnation[0]:
                return None  # of an assignment that is not known here yet: it will say so again
            self.supersede(link, header.incarnation)  # its supervisor has started it again
        if header.receiver != self.incarnation:
            if header.kind != wire.SIGN:
                self.refuse("for another incarnation", header.sender, f"meant for {header.receiver}")
            return None
        if not link.up:
            _log.info("worker %s: the link is up, incarnation %d.%d", link.peer, *link.incarnation)
        link.heard(header, self.now())
        self.open_if_ready(link)
        return link

    def open_if_ready(self, link: Link) -> None:
        """Tuples may go to the peer: those that waited go, and the worker hears it once."""
        if not link.open:
            return
        if not link.was_open:
            link.was_open = True
            self.listener.linked(link.peer)
        link.flush_waiting(self.now())
        self.pump(link)

    def take_sign(self, link: Link, sign: Sign) -> None:
        """A sign of life."""
        left = link.peer_leaves
        link.take_sign(sign, self.now())
        if self.addresses.get(link.peer) is None:  # started again, and nobody else has said where
            self.addresses[link.peer] = sign.address
            self.connect(link)
        self.open_if_ready(link)
        if link.peer_leaves and not left:
            link.next_sign = self.now()
            self.listener.closing(link.peer)
        if sign.flags & wire.ASIDE:
            self.hold_untaken(link, sign.data_received)

    def hold_untaken(self, link: Link, taken: int) -> None:
        """The peer's loop is inside a user's call: what it has not taken yet merely waits, and it cannot know of it."""
        held = [
            Held(self.streams.component_of.get(sent.target, "?"), sent.target, tuple(sent.trees()))
            for sent in link.unconfirmed.values()
            if sent.number > taken and not sent.lost
        ]
        if held:
            self.listener.deliver(Control(self.worker, held=held))

    def take_control(self, link: Link, header: Header, body: memoryview) -> None:
        """A control frame: what is missing, grants, and what is the worker's."""
        control, received = unpack_control(header.sender, body)
        if header.number == 0:  # sent aside, by a worker that is in a user's call
            self.listener.deliver(control)
            return
        if not link.take_control(header):
            self.counters["control frames twice or early"] += 1
            return
        link.acked(received)
        if control.missing:
            self.lose(link.take_missing(control.missing, self.now()), MISSING)
            self.pump(link)
        for target, upto in control.grants.items():
            link.confirm(target, upto - self.window_of(target))
        self.listener.deliver(control)

    def take_data(self, link: Link, header: Header, body: memoryview, further: Parts) -> None:
        """A message of the data channel."""
        gaps = len(link.missing)
        new = link.take_data(header)
        self.counters["gaps"] += len(link.missing) - gaps
        if header.kind == wire.PING:
            return
        if not new:
            self.counters["duplicates"] += 1
            return
        try:
            batch = wire.unpack_batch(header, body, further, self.codec, self.streams.source)
        except Undecodable as error:
            self.fail_undecodable(error)
            self.listener.deliver(error.batch)
            return
        except BadFrame:
            link.missing.append((header.number, header.number))
            raise
        if header.version < self.fences.get(batch.target, -1):
            self.refuse("of an older assignment", header.sender, f"for task {batch.target}")
            link.missing.append((header.number, header.number))
            return
        link.untold_loops += not batch.frame
        self.listener.deliver(batch)

    def fail_undecodable(self, error: Undecodable) -> None:
        """Values that cannot be decoded here: their trees fail, and the batch comes empty, so that its credit goes back."""
        batch = error.batch
        component = self.streams.component_of.get(batch.target)
        failure = Failure("failed", component, batch.target, str(error), 0)
        note = Control(self.worker)
        note.failures = [(root, failure) for root in sorted(error.roots)]
        note.unsent.append(Unsent(component or "?", batch.target, (), str(error), -1, call=""))
        self.listener.deliver(note)

    def refuse(self, kind: str, sender: str, why: str) -> None:
        """Count what is refused; one line a minute for each peer and kind."""
        self.counters[f"refused: {kind}"] += 1
        now = self.now()
        if now - self.last_logged.get((kind, sender), float("-inf")) >= LOG_SECONDS:
            self.last_logged[kind, sender] = now
            _log.warning("refused a message of worker %s (%s): %s", sender, kind, why)

    # What is due.

    def advance(self) -> bool:
        """Signs of life, repetitions, connections that are silent; whether anything was handed to the carrier."""
        now = self.now()
        flags = (wire.READY if self.is_ready else 0) | (wire.LEAVING if self.leaving else 0)
        pause = now - self.last_advance
        self.last_advance = now
        busy = False
        for link in self.links.values():
            if pause > OWN_PAUSE:  # a user's call was running: the peers may have spoken all the time
                link.last_heard += pause
            link.advance(now, flags)
            if link.wants_reconnect:
                self.reconnect(link, now)
            busy |= self.pump(link)
        return busy

    def reconnect(self, link: Link, now: float) -> None:
        """A peer is silent, or says that it does not hear this worker."""
        link.wants_reconnect = False
        if self.addresses.get(link.peer) is None:
            return
        self.counters["reconnects"] += 1
        silence = now - link.last_heard
        if link.was_open and silence >= SILENCE:
            _log.warning("worker %s: silent for %.1f s, connecting anew", link.peer, silence)
        elif link.was_open:
            _log.warning("worker %s: it does not hear this worker, connecting anew", link.peer)
        self.connect(link)

    def next_time(self) -> float | None:
        """When something is due though nothing comes in."""
        return min((link.next_time() for link in self.links.values()), default=None)

    # Leaving.

    def leave(self) -> None:
        """Ask the peers to send no more tuples."""
        if not self.leaving:
            self.leaving = True
            self.sign_soon()

    @property
    def left(self) -> bool:
        """Whether all that was sent to this worker has come, and all that it had to say is known to the peers."""
        return all(
            link.quiet and link.peer_left_at is not None and link.data_received >= link.peer_left_at
            for link in self.links.values()
            if link.up
        )

    def awaited(self) -> str:
        """What keeps `left` from being true, for a log."""
        return "; ".join(
            f"{link.peer}: {len(link.unacked)} control frames unknown to it, {len(link.waiting)} batches without credit,"
            f" {len(link.out[DATA])} and {len(link.out[CONTROL])} messages unsent, it has sent"
            f" {'what nobody knows' if link.peer_left_at is None else link.peer_left_at}, {link.data_received} have come"
            for link in self.links.values()
            if link.up
        )

    def signs(self, held: Mapping[str, Iterable[Held]]) -> list[tuple[Address, Parts]]:
        """For another thread, while the loop is in a user's call: signs of life to all peers, and what waits here by the
        worker that is to know."""
        now = self.now()
        messages: list[tuple[Address, Parts]] = []
        for worker, link in list(self.links.items()):
            address = self.addresses.get(worker)
            if address is None or link.state == GREETING:
                continue
            messages.append((address, link.sign(now, wire.ASIDE)))
            if parts := list(held.get(worker, ())):
                control = Control(self.worker, held=parts)
                header = link.header(wire.CONTROL_FRAME, 0)
                messages.append((address, [wire.seal(header, pack_control(control, 0))]))
        return messages


def leave_out(batch: Batch, error: Unencodable, note: Control) -> None:
    """Take the tuple at fault out of a batch; the note to its worker says so, and that its trees failed."""
    at, source = error.position, batch.source
    failure = Failure("failed", source.component, source.task, str(error), 0)
    roots = [batch.roots[at], *(root for root, _ in batch.more.get(at, ()))]
    note.failures += [(root, replace(failure)) for root in roots if root > 0]
    note.unsent.append(
        Unsent(source.component, source.task, batch.rows[at], str(error), batch.cycle, batch.target)
    )
    del batch.rows[at], batch.roots[at], batch.edges[at]
    batch.more = {place - (place > at): pairs for place, pairs in batch.more.items() if place != at}
