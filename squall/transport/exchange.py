"""All links of one worker: sends frames to peers, receives their messages, and carries out the effects of links.

`send` sends a frame, `receive` processes the messages that have arrived, `advance` does what is due. Links decide: they take
events and return effects (see `squall.transport.link`). The exchange carries out the effects: it passes messages to the
carrier, and reports to the `PeerListener` (the worker) received frames, lost trees, and peers that come and go. Refused
messages (garbage, from a superseded incarnation, from a worker that is not in the assignment) are counted by kind and do no
harm.
Must not know: sockets (see `carrier`), tasks, user code, what links remember.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from squall.clock import Clock
from squall.transport import effects, wire
from squall.transport.carrier import CONTROL, DATA, Carrier, Parts
from squall.transport.channels import SILENCE
from squall.transport.errors import BadFrame
from squall.transport.frames import Batch, EpochFrame, Frame, KeepAlive
from squall.transport.in_flight import GONE, SentBatch
from squall.transport.link import Link, LocalWorker
from squall.transport.ordered_link import OrderedLink
from squall.values import Address, Incarnation

_log = logging.getLogger(__name__)

#: The most messages received from one channel in a row, so that a flood on one channel does not hold up everything else.
MOST_AT_ONCE: Final = 64
#: A pause of this worker that is longer than this many seconds is not counted as silence of its peers. The loop never sleeps
#: that long.
OWN_PAUSE: Final = 1.5
#: Seconds between two log lines about refused messages of one kind from one peer.
LOG_SECONDS: Final = 60.0


class PeerPlace(msgspec.Struct, frozen=True):
    """Another worker of the topology: the incarnation of its process, and the address at which it receives."""

    incarnation: Incarnation
    address: Address | None


class PeerListener(Protocol):
    """Receives frames and changes of peers."""

    def deliver(self, frame: Frame) -> None:
        """A frame has arrived."""

    def lost(self, frames: Sequence[SentBatch], why: str) -> None:
        """These batches were never executed: their trees fail for the reason `why`."""

    def frames_gone(self, rewind: int) -> None:
        """Frames of this rewind number, or older ones, are lost: the process of their receiver has ended, or they cannot be
        read."""

    def superseded(self, worker: str) -> None:
        """The process of a peer has ended. A new process may replace it, or its tasks may move."""

    def linked(self, worker: str) -> None:
        """A process of a peer accepts tuples from now on."""

    def closing(self, worker: str) -> None:
        """A peer accepts no more tuples, until a new process of that peer is linked."""

    def overflow(self, batch: Batch) -> None:
        """Too many tuples of a cycle are on their way to a peer: drop the untracked tuples of the batch."""


@dataclass(slots=True, eq=False, repr=False)
class Peer:
    """Another worker: the link to it, and the messages that the carrier has not accepted yet, by channel."""

    name: str
    link: Link
    queues: tuple[deque[Parts], deque[Parts]] = field(default_factory=lambda: (deque(), deque()))


class Exchange:
    """The links of one worker."""

    def __init__(
        self, local: LocalWorker, carrier: Carrier, clock: Clock, listener: PeerListener, loop_buffer: int
    ) -> None:
        """`loop_buffer`: the most tuples in flight to a peer on edges that close a cycle."""
        self.local = local
        self.carrier = carrier
        self.now = clock.now
        self.listener = listener
        self.loop_buffer = loop_buffer
        self.peers: dict[str, Peer] = {}
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
        """Apply a new version of the assignment, or a change of peers in the same version. Call it before `Worker.replan`.

        `component_of`: the component of each task from now on. `renumbered`: the tasks that are created again with this
        version; frames that were sent to them before are lost.
        """
        now = self.now()
        self.local.version = version
        if component_of is not None:
            self.local.streams.component_of = component_of
        for task in renumbered:
            self.local.fences[task] = version
            for peer in self.peers.values():
                self._apply(peer, peer.link.lose_target(task))
        for worker in [worker for worker in self.peers if worker not in peers]:
            peer = self.peers[worker]
            self._apply(peer, peer.link.supersede(Incarnation(0, 0), now))
            del self.peers[worker]
        for worker, place in peers.items():
            if (known := self.peers.get(worker)) is None:
                kind = OrderedLink if self.local.ordered else Link
                known = self.peers[worker] = Peer(worker, kind(self.local, worker, place.incarnation, now))
            self._apply_and_flush(known, known.link.assign(place.incarnation, place.address, now))

    @property
    def settled(self) -> bool:
        """Whether all tuples that were sent have been executed."""
        return all(peer.link.executed for peer in self.peers.values())

    @property
    def linked(self) -> bool:
        """Whether every peer answers."""
        return all(peer.link.up for peer in self.peers.values())

    @property
    def all_ready(self) -> bool:
        """Whether the tasks here and at every peer are prepared."""
        return self.local.ready and all(peer.link.peer_ready for peer in self.peers.values())

    @property
    def awaited_here(self) -> bool:
        """Whether tuples wait at a peer until the tasks of this worker are prepared."""
        return any(peer.link.peer_waits for peer in self.peers.values())

    def ready(self) -> None:
        """Announce that the tasks here are prepared, so that peers may send tuples."""
        if not self.local.ready:
            self.local.ready = True
            self._announce()

    def leave(self) -> None:
        """Ask the peers to send no more tuples."""
        if not self.local.leaving:
            self.local.leaving = True
            self._announce()

    def _announce(self) -> None:
        """Make the next `advance` send a heartbeat to each peer."""
        for peer in self.peers.values():
            peer.link.announce(self.now())

    @property
    def left(self) -> bool:
        """Whether every message to this worker has arrived here, and every message from this worker has arrived at its peer."""
        return all(peer.link.drained and not any(peer.queues) for peer in self.peers.values() if peer.link.up)

    def awaited(self) -> str:
        """Return the reason why `left` is not yet true, for a log."""
        return "; ".join(
            f"{peer.name}: {peer.link.awaited()}, {sum(map(len, peer.queues))} messages unsent"
            for peer in self.peers.values()
            if peer.link.up
        )

    # Frames out.

    def send(self, worker: str, frame: Frame) -> None:
        """Send a frame to a peer. If the peer is gone, the tuples of a batch are lost, and a control frame is dropped."""
        peer = self.peers.get(worker)
        if isinstance(frame, EpochFrame):
            if peer is None:
                self.listener.frames_gone(frame.rewind)
                return
            assert isinstance(peer.link, OrderedLink)
            self._apply(peer, peer.link.send_frame(frame, self.now()))
        elif isinstance(frame, Batch):
            if peer is None:
                self._lose([SentBatch.of(frame)], GONE)
                return
            if not frame.frame and not frame.ended and peer.link.uncredited_tuples >= self.loop_buffer:
                self.listener.overflow(frame)
                if not frame.rows:
                    return
            self._apply(peer, peer.link.send_batch(frame, self.now()))
        elif peer is None:
            return
        else:
            self._apply(peer, peer.link.send_control(frame))
        self._flush(peer)

    def _flush(self, peer: Peer) -> bool:
        """Pass queued messages to the carrier while it accepts them; return whether it accepted any."""
        left = False
        for channel in (CONTROL, DATA):
            queue = peer.queues[channel]
            while queue and self.carrier.send(peer.name, channel, queue[0]):
                queue.popleft()
                left = True
        return left

    # Messages in.

    def receive(self) -> bool:
        """Process the messages that have arrived, control frames first; return whether there were any."""
        received = False
        for channel in (CONTROL, DATA):
            for _ in range(MOST_AT_ONCE):
                if (parts := self.carrier.receive(channel)) is None:
                    break
                received = True
                self.accept(parts)
        return received

    def accept(self, parts: Parts) -> None:
        """Pass a message to the link of its sender."""
        try:
            header, body = wire.open_header(parts)
        except BadFrame as error:
            self._refuse("garbage", "?", str(error))
            return
        if (peer := self.peers.get(header.sender)) is None:
            self._refuse("unknown worker", header.sender, "it is not in the assignment")
        else:
            self._apply_and_flush(peer, peer.link.step(header, body, parts[1:], self.now()))

    # Effects.

    def _apply_and_flush(self, peer: Peer, asked: list[effects.Effect]) -> None:
        """Carry out effects and send messages at once. Control frames of a link that is not open yet wait for `advance`."""
        self._apply(peer, asked)
        data, control = peer.queues
        if data or (control and peer.link.open):
            self._flush(peer)

    def _apply(self, peer: Peer, asked: list[effects.Effect]) -> None:
        """Carry out effects of a peer's link."""
        for effect in asked:
            match effect:
                case effects.SendMessage():
                    peer.queues[effect.channel].append(effect.parts)
                case effects.Deliver():
                    self.listener.deliver(effect.frame)
                case effects.ResendControl():
                    peer.queues[CONTROL].clear()
                    peer.queues[CONTROL].extend(effect.messages)
                case effects.ResendData():
                    peer.queues[DATA].clear()
                    peer.queues[DATA].extend(effect.messages)
                case effects.FramesGone():
                    self.listener.frames_gone(effect.rewind)
                case effects.Connect():
                    self.carrier.connect(peer.name, effect.address)
                case effects.Disconnect():
                    self.carrier.disconnect(peer.name)
                    for queue in peer.queues:
                        queue.clear()
                case effects.LoseBatches():
                    self._lose(effect.batches, effect.reason)
                case effects.PeerSuperseded():
                    self.listener.superseded(peer.name)
                case effects.PeerLinked():
                    self.listener.linked(peer.name)
                case effects.PeerClosing():
                    self.listener.closing(peer.name)
                case effects.LinkUp():
                    _log.info("worker %s: link up, incarnation %d.%d", peer.name, *peer.link.incarnation)
                case effects.Reconnecting():
                    self._count_reconnect(peer, effect)
                case effects.RefuseMessage():
                    self._refuse(effect.kind, effect.sender, effect.reason)
                case effects.CountEvent():
                    self.counters[effect.name] += 1

    def _lose(self, batches: Sequence[SentBatch], reason: str) -> None:
        self.counters["lost frames"] += len(batches)
        self.listener.lost(batches, reason)

    def _count_reconnect(self, peer: Peer, effect: effects.Reconnecting) -> None:
        self.counters["reconnects"] += 1
        if effect.was_open and effect.silent_seconds >= SILENCE:
            _log.warning("worker %s: silent for %.1f s, reconnecting", peer.name, effect.silent_seconds)
        elif effect.was_open:
            _log.warning("worker %s: it does not hear this worker, reconnecting", peer.name)

    def _refuse(self, kind: str, sender: str, reason: str) -> None:
        """Count a refused message; log at most one line a minute for each peer and kind."""
        self.counters[f"refused: {kind}"] += 1
        now = self.now()
        if now - self.last_logged.get((kind, sender), float("-inf")) >= LOG_SECONDS:
            self.last_logged[kind, sender] = now
            _log.warning("refused a message of worker %s (%s): %s", sender, kind, reason)

    # What is due.

    def advance(self) -> bool:
        """Do what is due on all links; return whether the carrier accepted any message."""
        now = self.now()
        pause = now - self.last_advance
        self.last_advance = now
        busy = False
        for peer in self.peers.values():
            if pause > OWN_PAUSE:  # a user's call was running
                peer.link.excuse_silence(pause)
            data, control = peer.queues
            self._apply(peer, peer.link.tick(now, control_blocked=bool(control), data_blocked=bool(data)))
            if data or control:
                busy |= self._flush(peer)
        return busy

    def next_time(self) -> float | None:
        """Return the time at which `advance` is due if no message arrives before that time."""
        return min((peer.link.next_heartbeat for peer in self.peers.values()), default=None)

    def heartbeats_aside(self, held: Mapping[str, Sequence[KeepAlive]]) -> list[tuple[Address, Parts]]:
        """Return messages for another thread to send while the loop is in a user's call: heartbeats to all peers, and the
        keep-alives in `held` (name of the worker that receives them -> keep-alives)."""
        now = self.now()
        messages: list[tuple[Address, Parts]] = []
        for peer in list(self.peers.values()):
            if (address := peer.link.address) is not None:
                messages += ((address, parts) for parts in peer.link.aside(now, held.get(peer.name, ())))
        return messages
