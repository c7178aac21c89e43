"""The link between this worker and one peer as a state machine, which keeps track of the messages that were sent, that have
arrived, and that are missing.

An event goes in (a message by `step`, time by `tick`, a batch, a control frame, a new assignment, a new incarnation), effects
come out (see `effects`). A link does no I/O and starts nothing by itself.

| state | meaning | begins with | ends with |
|---|---|---|---|
| GREETING | heartbeats are sent; the peer has not started, or does not know this worker | a new incarnation | any message |
| UP | the peer answers | any message | silence, or a new incarnation |
| SILENT | no message came for `SILENCE` seconds: connections are made again | silence | any message |

Messages of each channel are numbered. Tuples that are lost are not sent again: the receiver reports the missing numbers, the
sender fails the trees of these messages at once and sends an empty frame in place of each message, so that the credit comes
back. Control frames are kept until the peer has them, and are sent again if they were lost (go-back-N), so each XOR is applied
once, in order. A frame is *confirmed* when its grant has arrived: then it was executed. Frames that a superseded incarnation
has not confirmed are lost.

Tuples go to a peer only once its tasks are prepared, and only while it runs the same version of the assignment as this worker,
or a later version: see `open`.
Must not know: sockets, how values are encoded, clocks (times come as arguments), tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from squall.transport import channels, effects, wire
from squall.transport.carrier import CONTROL, DATA, Parts
from squall.transport.channels import Arrivals, ConnectionWatch, OrderedChannel
from squall.transport.control import pack_control, unpack_control
from squall.transport.errors import BadFrame
from squall.transport.frames import Batch, Control, EpochFrame, KeepAlive
from squall.transport.in_flight import GONE, MISSING, RENUMBERED, InFlight, SentBatch
from squall.transport.wire import Header, LinkHeartbeat, Streams, Undecodable
from squall.values import Address, Incarnation

#: Seconds between two heartbeats to a peer that has not answered yet.
GREETING_SECONDS: Final = 0.05
#: Seconds between two heartbeats to a peer that has answered.
HEARTBEAT_SECONDS: Final = 0.5

GREETING: Final = "GREETING"
UP: Final = "UP"
SILENT: Final = "SILENT"


@dataclass(slots=True, eq=False, repr=False)
class LocalWorker:
    """This worker, as all its links present it to their peers. The exchange writes it, links read it."""

    name: str
    incarnation: Incarnation
    #: The endpoints at which this worker receives: data and control.
    address: Address
    codec: str
    streams: Streams
    #: Returns the most frames that may be in flight to a task.
    window_of: Callable[[int], int]
    #: Returns whether tuples wait until a peer accepts them.
    waits_for: Callable[[str], bool] = lambda peer: False
    #: Whether data arrives in order, each message once: `OrderedLink`.
    ordered: bool = False
    version: int = -1
    #: Whether this worker's tasks are prepared, so that peers may send tuples.
    ready: bool = False
    #: Whether peers must send no more tuples.
    leaving: bool = False
    #: Tasks that were created again -> the version that created them. Batches of an older version are refused.
    fences: dict[int, int] = field(default_factory=dict)


class Link:
    """The messages between this worker and one incarnation of a peer."""

    def __init__(self, local: LocalWorker, peer: str, incarnation: Incarnation, now: float) -> None:
        self.local = local
        self.peer = peer
        #: The address at which the peer receives; None while that is unknown.
        self.address: Address | None = None
        self._begin(incarnation, now)

    def _begin(self, incarnation: Incarnation, now: float) -> None:
        """Start over, for a new process of the peer."""
        self.incarnation = incarnation
        self.state = GREETING
        self.peer_version = -1
        self.peer_ready = False
        self.was_open = False
        #: Whether the peer accepts no more tuples.
        self.peer_leaves = False
        #: Whether tuples wait at the peer until the tasks here are prepared.
        self.peer_waits = False
        self.arrivals = Arrivals()
        self.in_flight = InFlight()
        self.control = OrderedChannel()
        #: Batches that wait until the link is open.
        self.waiting: deque[Any] = deque()
        self.watch = ConnectionWatch(now)
        #: The time at which `tick` is due if no message arrives before that time.
        self.next_heartbeat = now
        self.next_ping = now + HEARTBEAT_SECONDS

    # Questions.

    @property
    def up(self) -> bool:
        """Whether the peer answers."""
        return self.state == UP

    @property
    def open(self) -> bool:
        """Whether tuples may go to the peer now."""
        return self.peer_ready and self.state != GREETING and self.peer_version >= self.local.version

    @property
    def executed(self) -> bool:
        """Whether the peer has executed all tuples that were sent to it."""
        return not (self.in_flight or self.waiting)

    @property
    def drained(self) -> bool:
        """Whether all tuples of the peer have arrived here, and the peer has all control frames of this worker."""
        return self.arrivals.complete and not (self.control.unacked or self.waiting)

    @property
    def uncredited_tuples(self) -> int:
        """Tuples that were sent without credit and have perhaps not reached the peer."""
        return self.in_flight.uncredited_tuples

    def awaited(self) -> str:
        """Return the reason why the link is not drained, for a log."""
        last = "an unknown number of" if self.arrivals.last is None else self.arrivals.last
        return (
            f"{len(self.control.unacked)} control frames unacknowledged, {len(self.waiting)} batches waiting,"
            f" it has sent {last} batches, {self.arrivals.received} have arrived"
        )

    # Events of this worker.

    def assign(self, incarnation: Incarnation, address: Address | None, now: float) -> list[effects.Effect]:
        """Apply an assignment: the peer's process that the supervisors report, and its address if that is known."""
        out: list[effects.Effect] = []
        if incarnation > self.incarnation:
            out += self.supersede(incarnation, now)
        self.next_heartbeat = now
        if incarnation == self.incarnation and address is not None and address != self.address:
            self._connect(address, now, out)
        self._open_if_ready(now, out)
        return out

    def send_batch(self, batch: Batch, now: float) -> list[effects.Effect]:
        """Send tuples, or keep them until the link is open."""
        out: list[effects.Effect] = []
        if not batch.frame:
            self.in_flight.uncredited_tuples += len(batch.rows)
        if self.waiting or not self.open:
            self.waiting.append(batch)
        else:
            self._put(batch, now, out)
        return out

    def send_control(self, control: Control) -> list[effects.Effect]:
        """Send a control frame; it is kept until the peer has it. The frame also carries the numbers of missing messages: a
        grant that arrived before these numbers would confirm a lost batch.
        """
        control.missing += self.arrivals.missing
        self.arrivals.missing = []
        channel = self.control
        channel.sent += 1
        channel.reported = channel.received
        message = [self._seal(wire.CONTROL_FRAME, channel.sent, pack_control(control, channel.received))]
        channel.unacked.append((channel.sent, message))
        return [] if self.state == GREETING else [effects.SendMessage(CONTROL, message)]

    def lose_target(self, target: int) -> list[effects.Effect]:
        """A task is created again: lose the batches that it has not executed. No empty frame takes their place."""
        lost = self.in_flight.lose_target(target)
        waiting = [batch for batch in self.waiting if batch.target == target]
        self.in_flight.uncredited_tuples -= sum(len(batch.rows) for batch in waiting if not batch.frame)
        lost += map(SentBatch.of, waiting)
        self.waiting = deque(batch for batch in self.waiting if batch.target != target)
        return [effects.LoseBatches(lost, RENUMBERED)] if lost else []

    def supersede(self, incarnation: Incarnation, now: float) -> list[effects.Effect]:
        """Start over with a new incarnation of the peer. Batches that the old incarnation has not confirmed are lost."""
        lost = [*self.in_flight.by_number.values(), *map(SentBatch.of, self.waiting)]
        self._begin(incarnation, now)
        # Messages queued for the old process must neither reach the new process nor wait for it at the old address.
        self.address = None
        losses = [effects.LoseBatches(lost, GONE)] if lost else []
        return [effects.PeerSuperseded(), *losses, effects.Disconnect()]

    def announce(self, now: float) -> None:
        """Make the next `tick` send a heartbeat."""
        self.next_heartbeat = now

    def excuse_silence(self, seconds: float) -> None:
        """Subtract a pause of this worker from the peer's silence: the peer may have sent messages all the time."""
        self.watch.last_heard += seconds

    def tick(self, now: float, control_blocked: bool, data_blocked: bool) -> list[effects.Effect]:
        """Do what is due: send heartbeats, request missing messages, reconnect. `*_blocked`: whether messages already wait
        for the carrier; if so, optional messages are not sent.
        """
        out: list[effects.Effect] = []
        if self.arrivals.missing:
            out += self.send_control(Control(self.local.name))
        channel = self.control
        asks = channel.lacks_frames and now >= channel.next_request
        if (
            now >= self.next_heartbeat
            or asks
            or channel.received - channel.reported >= channels.UNREPORTED
            or self.arrivals.unreported >= channels.MOST_UNREPORTED
        ):
            if not (control_blocked or out):
                out.append(effects.SendMessage(CONTROL, self._heartbeat(now, wire.RESEND if asks else 0)))
                if asks:
                    channel.lacks_frames = False
                    channel.next_request = now + channels.RESEND_SECONDS
                channel.reported = channel.received
                self.arrivals.unreported = 0
            self.next_heartbeat = now + (GREETING_SECONDS if self.state == GREETING else HEARTBEAT_SECONDS)
        if self.in_flight.sent > self.in_flight.received and now >= self.next_ping and self.state != GREETING:
            self.next_ping = now + HEARTBEAT_SECONDS
            if not data_blocked:
                out.append(effects.SendMessage(DATA, [self._seal(wire.PING, self.in_flight.sent, b"")]))
        silence = now - self.watch.last_heard
        if self.watch.wants_reconnect or (silence >= channels.SILENCE and now >= self.watch.next_reconnect):
            if silence >= channels.SILENCE:
                self.state = SILENT
            self.watch.connected(now)
            if self.address is not None:
                out.append(effects.Reconnecting(silence, self.was_open))
                self._connect(self.address, now, out)
        return out

    def aside(self, now: float, held: Sequence[KeepAlive]) -> list[Parts]:
        """Return messages for another thread to send while the loop is in a user's call: a heartbeat, and keep-alives for the
        trees that wait here and that the peer tracks. Changes nothing.
        """
        if self.state == GREETING:
            return []
        messages: list[Parts] = [self._heartbeat(now, wire.ASIDE)]
        if held:
            control = Control(self.local.name, keep_alives=list(held))
            messages.append([self._seal(wire.CONTROL_FRAME, 0, pack_control(control, 0))])
        return messages

    # Messages of the peer.

    def step(self, header: Header, body: memoryview, further: Parts, now: float) -> list[effects.Effect]:
        """Process a message of the peer. Invalid messages, and messages from or to a process that is not current, are
        refused."""
        out: list[effects.Effect] = []
        if not self._is_current(header, now, out):
            return out
        if self.state != UP:
            out.append(effects.LinkUp())
            if self.state == GREETING:
                out.append(effects.ResendControl(self.control.resend(now)))
                self.next_heartbeat = now  # so that the peer learns at once that this worker knows the peer
            self.state = UP
        self.watch.last_heard = now
        if header.version > self.peer_version:
            self.peer_version = header.version
        if self.waiting or not self.was_open:
            self._open_if_ready(now, out)
        try:
            if header.kind == wire.HEARTBEAT:
                self._take_heartbeat(wire.unpack_heartbeat(body), now, out)
            elif header.kind == wire.CONTROL_FRAME:
                self._take_control(header, body, now, out)
            else:
                self._take_data(header, body, further, out)
        except BadFrame as error:
            out.append(effects.RefuseMessage("garbage", "?", str(error)))
        return out

    def _is_current(self, header: Header, now: float, out: list[effects.Effect]) -> bool:
        """Return whether a message is from the peer's current process to this process. A newer process of the same assignment
        supersedes the known process: its supervisor has restarted the worker.
        """
        if header.incarnation != self.incarnation:
            if header.incarnation < self.incarnation:
                reason = f"incarnation {header.incarnation} has ended"
                out.append(effects.RefuseMessage("superseded", header.sender, reason))
                return False
            if header.incarnation.version != self.incarnation.version:
                return False  # the sender's assignment is not known here yet; the message will be sent again
            out += self.supersede(header.incarnation, now)
        if header.receiver != self.local.incarnation:
            if header.kind != wire.HEARTBEAT:
                reason = f"meant for {header.receiver}"
                out.append(effects.RefuseMessage("for another incarnation", header.sender, reason))
            return False
        return True

    def _open_if_ready(self, now: float, out: list[effects.Effect]) -> None:
        """Once tuples may go to the peer, send the waiting batches, and announce the peer the first time."""
        if not self.open:
            return
        while self.waiting:
            self._put(self.waiting.popleft(), now, out)
        if not self.was_open:
            self.was_open = True
            out.append(effects.PeerLinked())

    def _take_heartbeat(self, heartbeat: LinkHeartbeat, now: float, out: list[effects.Effect]) -> None:
        # The numbers of a heartbeat that was sent aside say nothing about control frames.
        is_aside = bool(heartbeat.flags & wire.ASIDE)
        left = self.peer_leaves
        if not is_aside:
            self._take_numbers(heartbeat, now, out)
        if self.address is None:  # the process was started again, and no supervisor has reported its address
            self._connect(heartbeat.address, now, out)
        self._open_if_ready(now, out)
        if self.peer_leaves and not left:
            self.next_heartbeat = now
            out.append(effects.PeerClosing())
        # The peer's loop is in a user's call: it cannot keep alive the trees of batches that it has not received.
        if is_aside and (unheard := self.in_flight.after(heartbeat.data_received)):
            component_of = self.local.streams.component_of
            held = [
                KeepAlive(component_of.get(sent.target, "?"), sent.target, tuple(sent.trees()))
                for sent in unheard
            ]
            out.append(effects.Deliver(Control(self.local.name, keep_alives=held)))

    def _take_numbers(self, heartbeat: LinkHeartbeat, now: float, out: list[effects.Effect]) -> None:
        """Process the numbers of a heartbeat of the peer's loop."""
        control, received = self.control, heartbeat.data_received
        control.acked(heartbeat.control_received)
        control.lacks_frames = control.lacks_frames or heartbeat.control_sent > control.received
        if heartbeat.flags & wire.RESEND and now - control.last_resend >= channels.RESEND_SECONDS:
            out.append(effects.ResendControl(control.resend(now)))
        self.watch.reported(received, heartbeat.silence, self.in_flight, now)
        self.in_flight.received = max(self.in_flight.received, received)
        # If control frames have not arrived yet, a report of missing batches may be among them.
        if heartbeat.control_sent <= control.received:
            self.in_flight.arrived(received)
        self.peer_ready |= bool(heartbeat.flags & wire.READY)
        self.peer_leaves |= bool(heartbeat.flags & wire.LEAVING)
        self.peer_waits = bool(heartbeat.flags & wire.WAITS)
        if heartbeat.flags & wire.LEFT:
            self.arrivals.last = heartbeat.data_sent

    def _take_control(self, header: Header, body: memoryview, now: float, out: list[effects.Effect]) -> None:
        control, received = unpack_control(header.sender, body)
        if header.number:  # 0: sent aside, by a worker that is in a user's call
            if not self.control.accept(header.number):
                out.append(effects.CountEvent("control frames twice or early"))
                return
            self.control.acked(received)
            if control.missing:
                self._lose_missing(control.missing, now, out)
            self._confirm(control)
        out.append(effects.Deliver(control))

    def _confirm(self, control: Control) -> None:
        """Forget the batches that were executed, as the grants of a control frame show."""
        for target, upto in control.grants.items():
            self.in_flight.confirm(target, upto - self.local.window_of(target))

    def _lose_missing(self, ranges: Iterable[tuple[int, int]], now: float, out: list[effects.Effect]) -> None:
        """Lose the messages that the peer has reported as missing; empty frames take their places."""
        lost = []
        for first, last in ranges:
            for number in range(max(first, 1), min(last, self.in_flight.sent) + 1):
                if (sent := self.in_flight.lose(number)) is None:
                    continue
                lost.append(sent)
                if sent.frame or sent.ended:
                    self._put(sent.void(), now, out)
        if lost:
            out.append(effects.LoseBatches(lost, MISSING))

    def _take_data(self, header: Header, body: memoryview, further: Parts, out: list[effects.Effect]) -> None:
        arrivals, number = self.arrivals, header.number
        is_ping = header.kind == wire.PING
        last = number if is_ping else number - 1
        if last > arrivals.received:
            # The messages up to `last` were sent but did not arrive.
            arrivals.missing.append((arrivals.received + 1, last))
            arrivals.received = last
            out.append(effects.CountEvent("gaps"))
        if is_ping:
            return
        if number <= arrivals.received:
            out.append(effects.CountEvent("duplicates"))
            return
        arrivals.received = number
        streams = self.local.streams
        try:
            batch = wire.unpack_batch(header, body, further, self.local.codec, streams.source)
        except Undecodable as error:
            note = wire.undecodable_note(error, self.local.name, streams.component_of.get(error.batch.target))
            out += (effects.Deliver(note), effects.Deliver(error.batch))
            return
        except BadFrame:
            arrivals.missing.append((number, number))
            raise
        if header.version < self.local.fences.get(batch.target, -1):
            arrivals.missing.append((number, number))
            reason = f"for task {batch.target}"
            out.append(effects.RefuseMessage("of an older assignment", header.sender, reason))
            return
        arrivals.unreported += not batch.frame
        out.append(effects.Deliver(batch))

    # Connections.

    def _connect(self, address: Address, now: float, out: list[effects.Effect]) -> None:
        """Make new connections. Control frames are sent again; tuples on the old connections are lost."""
        self.address = address
        out.append(effects.Connect(address))
        self.watch.connected(now)
        self.next_heartbeat = now
        if self.state != GREETING:
            out.append(effects.ResendControl(self.control.resend(now)))

    # Messages to the peer.

    def _seal(self, kind: int, number: int, body: bytes) -> bytes:
        """Return the first part of a message to the peer: its header, and its body."""
        local = self.local
        header = Header(kind, local.name, local.incarnation, self.incarnation, local.version, number)
        return wire.seal(header, body)

    def _put(self, parcel: Batch | EpochFrame, now: float, out: list[effects.Effect]) -> None:
        """Number what is to be sent, remember it, and send it."""
        assert isinstance(parcel, Batch)
        local, batch, tuples = self.local, parcel, len(parcel.rows)
        body, further, note = wire.pack_encodable(batch, local.codec, local.streams, local.name)
        if note is not None:
            out.append(effects.Deliver(note))
        size = len(body) + sum(map(len, further))
        if batch.limit is not None and tuples:
            batch.limit.packed(tuples, size)
        self.in_flight.add(batch, size)
        kind = wire.END if batch.ended else wire.BATCH
        message = [self._seal(kind, self.in_flight.sent, body), *further]
        out.append(effects.SendMessage(DATA, message))
        self.next_ping = now + HEARTBEAT_SECONDS

    def _heartbeat(self, now: float, flags: int) -> Parts:
        """Return a heartbeat with these flags, and with this worker's flags unless it is sent aside."""
        local = self.local
        if not flags & wire.ASIDE:
            flags |= (wire.READY if local.ready else 0) | (wire.LEAVING if local.leaving else 0)
            flags |= wire.WAITS if not self.peer_ready and local.waits_for(self.peer) else 0
        if self.peer_leaves and not self.waiting:
            flags |= wire.LEFT
        heartbeat = LinkHeartbeat(
            self.control.sent,
            self.control.received,
            self.in_flight.sent,
            self.arrivals.received,
            0.0 if self.state == GREETING else max(0.0, now - self.watch.last_heard),
            flags,
            local.address,
        )
        return [self._seal(wire.HEARTBEAT, 0, wire.pack_heartbeat(heartbeat))]
