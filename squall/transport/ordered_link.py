"""A link of a topology with epochs: its data messages arrive in order, each once, and are sent again when they were lost.

Every frame carries the rewind number to which it belongs. The sender keeps a packed message until the peer has reported it as
received; after a gap, or on new connections, it sends all that it has kept (go-back-N, like control frames). What a peer's
process has got but not yet worked off when it ends is gone: that is a rewind, see `effects.FramesGone`.
Must not know: sockets, what a rewind does.
"""

from __future__ import annotations

from typing import Final

from squall.transport import channels, effects, wire
from squall.transport.carrier import DATA, Parts
from squall.transport.channels import OrderedChannel
from squall.transport.errors import BadFrame
from squall.transport.frames import Batch, Control, EpochBarrier, EpochFrame
from squall.transport.in_flight import SentBatch
from squall.transport.link import HEARTBEAT_SECONDS, Link
from squall.transport.wire import Header, LinkHeartbeat
from squall.values import Incarnation
from topology_api.tuples import Source

#: After this many received data messages a heartbeat reports their number, so that the sender need not keep them.
UNREPORTED_DATA: Final = 64

_NO_SOURCE: Final = Source("", 0, "", ())


class OrderedLink(Link):
    """The messages between this worker and one incarnation of a peer."""

    def _begin(self, incarnation: Incarnation, now: float) -> None:
        super()._begin(incarnation, now)
        self.data = OrderedChannel()
        self.unreported = 0
        #: The newest rewind number of a frame for this incarnation.
        self.newest = -1

    # Events of this worker.

    def send_frame(self, frame: EpochFrame, now: float) -> list[effects.Effect]:
        """Send a frame, or keep it until the link is open."""
        out: list[effects.Effect] = []
        self.newest = max(self.newest, frame.rewind)
        if self.waiting or not self.open:
            self.waiting.append(frame)
        else:
            self._put(frame, now, out)
        return out

    def lose_target(self, target: int) -> list[effects.Effect]:
        """A task is created again: a rewind makes what was sent to it void."""
        return []

    def supersede(self, incarnation: Incarnation, now: float) -> list[effects.Effect]:
        """Start over with a new incarnation of the peer."""
        newest = self.newest
        self._begin(incarnation, now)
        self.address = None
        gone = [effects.FramesGone(newest)] if newest >= 0 else []
        return [effects.PeerSuperseded(), *gone, effects.Disconnect()]

    def tick(self, now: float, control_blocked: bool, data_blocked: bool) -> list[effects.Effect]:
        if self._asks_for_data(now):
            self.next_heartbeat = now
        return super().tick(now, control_blocked, data_blocked)

    def _asks_for_data(self, now: float) -> bool:
        """Return whether data messages are missing here, and may be asked for."""
        return self.data.lacks_frames and now >= self.data.next_request

    # Messages of the peer.

    def _take_numbers(self, heartbeat: LinkHeartbeat, now: float, out: list[effects.Effect]) -> None:
        super()._take_numbers(heartbeat, now, out)
        self.data.acked(heartbeat.data_received)
        for number in [number for number in self.in_flight.by_number if number <= heartbeat.data_received]:
            del self.in_flight.by_number[number]
        if heartbeat.flags & wire.RESEND_DATA and now - self.data.last_resend >= channels.RESEND_SECONDS:
            out.append(effects.ResendData(self.data.resend(now)))

    def _confirm(self, control: Control) -> None:
        """Grants confirm nothing here: a message is kept until it was received."""

    def _take_data(self, header: Header, body: memoryview, further: Parts, out: list[effects.Effect]) -> None:
        channel, number = self.data, header.number
        if header.kind == wire.PING:
            channel.lacks_frames = channel.lacks_frames or number > channel.received
            return
        if number != channel.received + 1:
            channel.accept(number)
            out.append(effects.CountEvent("duplicates" if number <= channel.received else "gaps"))
            return
        channel.accept(number)
        self.arrivals.received = number
        self.unreported += 1
        if self.unreported >= UNREPORTED_DATA:
            self.unreported, self.arrivals.unreported = 0, channels.MOST_UNREPORTED
        try:
            out += map(effects.Deliver, self._unpack(header, body, further))
        except BadFrame:
            # Such as a batch of a task that is not in the assignment any more. Sent again, it would be the same.
            if len(body) >= wire.EPOCH_HEAD.size:
                out.append(effects.FramesGone(wire.open_epoch_batch(body)[0]))
            raise

    def _unpack(self, header: Header, body: memoryview, further: Parts) -> list[Control | EpochFrame]:
        """Return what a data message delivers. Raises BadFrame."""
        streams = self.local.streams
        if header.kind == wire.BARRIER:
            if further:
                raise BadFrame("a barrier with further parts")
            frame = wire.unpack_barrier(body)
            assert isinstance(frame.item, EpochBarrier)
            if frame.item.source not in streams.component_of:
                raise BadFrame(f"a barrier of task {frame.item.source}, which does not exist")
            return [frame]
        if header.kind not in (wire.EPOCH_BATCH, wire.EPOCH_END):
            raise BadFrame(f"a message of kind {header.kind} in a topology with epochs")
        rewind, rest = wire.open_epoch_batch(body)
        local = self.local
        batch, unread, note = wire.open_batch(header, rest, further, local.codec, streams, local.name)
        frame = EpochFrame(rewind, batch, unread=unread)
        return [frame] if note is None else [note, frame]

    # Messages to the peer.

    def _connect(self, address: tuple[str, str], now: float, out: list[effects.Effect]) -> None:
        super()._connect(address, now, out)
        if self.data.unacked:
            out.append(effects.ResendData(self.data.resend(now)))

    def _put(self, parcel: Batch | EpochFrame, now: float, out: list[effects.Effect]) -> None:
        assert isinstance(parcel, EpochFrame)
        local, item = self.local, parcel.item
        number = self.data.sent + 1
        if isinstance(item, EpochBarrier):
            message: list[bytes | bytearray | memoryview] = [
                self._seal(wire.BARRIER, number, wire.pack_barrier(parcel))
            ]
            sent = SentBatch(number, _NO_SOURCE, 0, 0, -1, 0, False, [], {}, len(message[0]))
        else:
            body, further, note = wire.pack_encodable(item, local.codec, local.streams, local.name)
            if note is not None:
                wire.belongs_to(note, parcel)
                out.append(effects.Deliver(note))
            size = len(body) + sum(map(len, further))
            if item.limit is not None and item.rows:
                item.limit.packed(len(item.rows), size)
            kind = wire.EPOCH_END if item.ended else wire.EPOCH_BATCH
            # Copies: the user may change an array after it was emitted, and the message may be sent again.
            parts = [bytes(part) for part in further]
            message = [self._seal(kind, number, wire.seal_epoch_batch(parcel.rewind, body)), *parts]
            sent = SentBatch.of(item, number, size)
        self.data.sent = self.in_flight.sent = number
        self.data.unacked.append((number, message))
        self.in_flight.by_number[number] = sent
        out.append(effects.SendMessage(DATA, message))
        self.next_ping = now + HEARTBEAT_SECONDS

    def _heartbeat(self, now: float, flags: int) -> Parts:
        if not flags & wire.ASIDE:
            self.unreported = 0
            if self._asks_for_data(now):
                flags |= wire.RESEND_DATA
                self.data.lacks_frames = False
                self.data.next_request = now + channels.RESEND_SECONDS
        return super()._heartbeat(now, flags)
