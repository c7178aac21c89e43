"""The link between this worker and one peer, as a state machine: what was sent, what has come, what is missing.

| state | meaning | begins with | ends with |
|---|---|---|---|
| GREETING | signs are sent; the peer is not there yet, or does not know this one | a new incarnation | any message |
| UP | the peer answers | any message | silence, or a new incarnation |
| SILENT | nothing came for `SILENCE` seconds: connections are made anew | silence | any message |

Messages of each channel are numbered. Tuples that are lost are not sent again: the receiver names the numbers that are
missing, the sender fails their trees at once and sends an empty frame in their place, so that their credit comes back.
Control frames are kept until the peer has them, and sent again (go-back-N): an XOR is applied once, in order. A frame is
*confirmed* when its grant has come: it was executed. What a superseded incarnation has not confirmed is lost.

Tuples go to a peer only once its tasks are prepared, and while it runs the same version of the assignment, or a later one:
see `open`.
Must not know: sockets, how values are encoded, clocks (times come as arguments), tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from squall.transport import wire
from squall.transport.carrier import CONTROL, DATA, Parts
from squall.transport.control import pack_control
from squall.transport.frames import NO_MORE, Batch, Control, More
from squall.transport.wire import Header, Sign, seal
from squall.worker_files import Address, Incarnation
from topology_api.tuples import Source

#: Seconds between two signs of life: to a peer that has not answered yet, and to one that has.
GREETING_SECONDS: Final = 0.05
SIGN_SECONDS: Final = 0.5
#: Seconds without any message after which the connections are made anew, and between two attempts.
SILENCE: Final = 2.5
RECONNECT_SECONDS: Final = 2.0
#: Bytes a second that a connection is taken to carry at least, before it is taken to stand still.
SLOWEST_BYTES: Final = 4_000_000
#: Seconds between two questions for what is missing, and between two answers to "send again".
RESEND_SECONDS: Final = 0.2
#: Control frames received after which a sign says so, where no control frame of ours does.
UNTOLD: Final = 64
#: The same for batches that take no credit: their sender holds back when it hears nothing.
UNTOLD_LOOPS: Final = 4

GREETING: Final = "GREETING"
UP: Final = "UP"
SILENT: Final = "SILENT"

TABLE: Final = {
    (GREETING, "heard"): UP,
    (GREETING, "superseded"): GREETING,
    (GREETING, "silence"): SILENT,
    (UP, "heard"): UP,
    (UP, "silence"): SILENT,
    (UP, "superseded"): GREETING,
    (SILENT, "heard"): UP,
    (SILENT, "silence"): SILENT,
    (SILENT, "superseded"): GREETING,
}

Pack = Callable[[Batch], tuple[bytes, Parts]]


@dataclass(slots=True)
class Sent:
    """What is remembered of a batch until it is confirmed: enough to fail its trees and to fill its place."""

    number: int
    source: Source
    target: int
    frame: int
    cycle: int
    size: int
    ended: bool
    roots: list[int]
    more: More
    lost: bool = False
    #: Its size on the wire.
    size_bytes: int = 0

    def trees(self) -> set[int]:
        """The trees of its tuples."""
        roots = set(self.roots)
        for pairs in self.more.values():
            roots.update(root for root, _ in pairs)
        roots.discard(0)
        return roots


def remembered(batch: Batch, number: int) -> Sent:
    """What is remembered of a batch."""
    return Sent(
        number,
        batch.source,
        batch.target,
        batch.frame,
        batch.cycle,
        len(batch.rows),
        batch.ended,
        batch.roots,
        batch.more,
    )


class Link:
    """What this worker and one incarnation of a peer say to each other."""

    def __init__(
        self,
        worker: str,
        own: Incarnation,
        peer: str,
        incarnation: Incarnation,
        version: int,
        now: float,
        pack: Pack,
        address: Address,
    ) -> None:
        """`address`: where this worker hears; the peer is told."""
        self.worker = worker
        self.address = address
        self.own = own
        self.peer = peer
        self.version = version
        self.pack = pack
        #: Messages to hand to the carrier, by channel.
        self.out: tuple[deque[Parts], deque[Parts]] = (deque(), deque())
        self.begin(incarnation, now)

    def begin(self, incarnation: Incarnation, now: float) -> None:
        """Everything anew, for a peer that knows nothing yet."""
        self.incarnation = incarnation
        self.state = GREETING
        self.peer_version = -1
        self.peer_ready = False
        self.was_open = False
        #: The peer takes no more tuples; where its own stream of tuples to us ends, once it knows that we take no more.
        self.peer_leaves = False
        self.peer_left_at: int | None = None
        self.data_sent = self.data_received = 0
        self.control_sent = self.control_received = 0
        self.peer_data_received = 0
        #: What was sent and not confirmed: by number; the credited ones also by target, the others in order.
        self.unconfirmed: dict[int, Sent] = {}
        self.by_target: dict[int, deque[Sent]] = {}
        self.uncredited: deque[Sent] = deque()
        #: Control frames that the peer may not have.
        self.unacked: deque[tuple[int, Parts]] = deque()
        #: Batches that wait until the link is open.
        self.waiting: deque[Batch] = deque()
        self.missing: list[tuple[int, int]] = []
        self.wants_resend = self.wants_reconnect = False
        self.told_received = self.untold_loops = 0
        #: Tuples that were sent without credit and that the peer may not have.
        self.loop_tuples = 0
        #: Since when the peer, which reads, has got nothing of what is on its way to it.
        self.stalled_since: float | None = None
        self.last_heard = now
        self.next_sign = now
        self.next_ping = now + SIGN_SECONDS
        self.next_reconnect = now + SILENCE
        self.last_resend = self.next_question = float("-inf")
        for channel in self.out:
            channel.clear()

    def step(self, event: str) -> None:
        """Go on in the table."""
        self.state = TABLE[self.state, event]

    # Questions.

    @property
    def up(self) -> bool:
        """Whether the peer knows this incarnation."""
        return self.state == UP

    @property
    def open(self) -> bool:
        """Whether tuples may go to the peer now."""
        return self.peer_ready and self.state != GREETING and self.peer_version >= self.version

    @property
    def quiet(self) -> bool:
        """Whether the peer has all control frames, and nothing waits to be handed to the carrier."""
        return not (self.unacked or self.waiting or self.out[DATA] or self.out[CONTROL])

    # What this worker says.

    def header(self, kind: int, number: int) -> Header:
        """The header of a message to this peer."""
        return Header(kind, self.worker, self.own, self.incarnation, self.version, number)

    def send_batch(self, batch: Batch, now: float) -> None:
        """Send tuples, or keep them until the link is open."""
        if not batch.frame:
            self.loop_tuples += len(batch.rows)
        if self.waiting or not self.open:
            self.waiting.append(batch)
        else:
            self.put_batch(batch, now)

    def put_batch(self, batch: Batch, now: float) -> None:
        """Number a batch, remember it, and hand it over."""
        tuples = len(batch.rows)
        body, further = self.pack(batch)
        if batch.limit is not None and tuples:
            batch.limit.packed(tuples, len(body) + sum(map(len, further)))
        self.data_sent += 1
        kind = wire.END if batch.ended else wire.BATCH
        sent = remembered(batch, self.data_sent)
        sent.size_bytes = len(body) + sum(map(len, further))
        self.remember(sent)
        self.out[DATA].append([seal(self.header(kind, self.data_sent), body), *further])
        self.next_ping = now + SIGN_SECONDS

    def remember(self, sent: Sent) -> None:
        """Keep what must be known until it is confirmed."""
        self.unconfirmed[sent.number] = sent
        if sent.frame:
            frames = self.by_target.get(sent.target)
            if frames is None:
                frames = self.by_target[sent.target] = deque()
            frames.append(sent)
        else:
            self.uncredited.append(sent)

    def send_control(self, control: Control) -> None:
        """Send a control frame; it is kept until the peer has it. What is missing goes with it: a grant that came first would
        say that it was executed."""
        control.missing += self.missing
        self.missing = []
        self.control_sent += 1
        self.told_received = self.control_received
        header = self.header(wire.CONTROL_FRAME, self.control_sent)
        message = [seal(header, pack_control(control, self.control_received))]
        self.unacked.append((self.control_sent, message))
        if self.state != GREETING:
            self.out[CONTROL].append(message)

    def sign(self, now: float, flags: int) -> Parts:
        """A sign of life."""
        silence = 0.0 if self.state == GREETING else max(0.0, now - self.last_heard)
        sign = Sign(
            self.control_sent,
            self.control_received,
            self.data_sent,
            self.data_received,
            silence,
            flags | (wire.LEFT if self.peer_leaves and not self.waiting else 0),
            self.address,
        )
        return [seal(self.header(wire.SIGN, 0), wire.pack_sign(sign))]

    def flush_waiting(self, now: float) -> None:
        """The link is open: what waited goes."""
        while self.waiting and self.open:
            self.put_batch(self.waiting.popleft(), now)

    def advance(self, now: float, flags: int) -> None:
        """Do what is due: signs (with these flags), questions for what is missing, silence."""
        if self.missing:
            self.send_control(Control(self.worker))
        untold = self.control_received - self.told_received >= UNTOLD or self.untold_loops >= UNTOLD_LOOPS
        asks = self.wants_resend and now >= self.next_question
        if now >= self.next_sign or asks or untold:
            if not self.out[
                CONTROL
            ]:  # else the connection takes nothing now, and this would only be one more that waits
                self.out[CONTROL].append(self.sign(now, flags | (wire.RESEND if asks else 0)))
                if asks:
                    self.wants_resend = False
                    self.next_question = now + RESEND_SECONDS
                self.told_received = self.control_received
                self.untold_loops = 0
            self.next_sign = now + (GREETING_SECONDS if self.state == GREETING else SIGN_SECONDS)
        if now >= self.next_ping and self.state != GREETING and self.data_sent > self.peer_data_received:
            self.next_ping = now + SIGN_SECONDS
            if not self.out[DATA]:
                self.out[DATA].append([seal(self.header(wire.PING, self.data_sent), b"")])
        if now - self.last_heard >= SILENCE and now >= self.next_reconnect:
            self.step("silence")
            self.wants_reconnect = True
            self.next_reconnect = now + RECONNECT_SECONDS

    def next_time(self) -> float:
        """When something is due though nothing comes in."""
        return self.next_sign

    def reconnected(self, now: float) -> None:
        """The connections are new. Control frames go again; of tuples, those that were on the way are gone."""
        self.wants_reconnect = False
        self.next_reconnect = now + RECONNECT_SECONDS
        self.next_sign = now
        if self.state != GREETING:
            self.resend(now)

    def resend(self, now: float) -> None:
        """Send all control frames again that the peer may not have."""
        self.last_resend = now
        self.out[CONTROL].clear()
        self.out[CONTROL].extend(message for _, message in self.unacked)

    # What the peer says.

    def heard(self, header: Header, now: float) -> None:
        """A message of this incarnation of the peer, to this incarnation."""
        greeting = self.state == GREETING
        self.last_heard = now
        self.peer_version = max(self.peer_version, header.version)
        self.step("heard")
        if greeting:
            self.resend(now)
            self.next_sign = now  # so that the peer knows at once that it is known

    def take_data(self, header: Header) -> bool:
        """Whether a message of the data channel is new; what is missing before it is noted."""
        number = header.number
        ping = header.kind == wire.PING
        last = number if ping else number - 1
        if last > self.data_received:
            self.missing.append((self.data_received + 1, last))
        if ping:
            self.data_received = max(self.data_received, number)
            return False
        if number <= self.data_received:
            return False
        self.data_received = number
        return True

    def take_control(self, header: Header) -> bool:
        """Whether a control frame is the next one; after a gap they are asked for again."""
        if header.number != self.control_received + 1:
            self.wants_resend = self.wants_resend or header.number > self.control_received
            return False
        self.control_received = header.number
        return True

    def acked(self, received: int) -> None:
        """The peer has the control frames up to this number."""
        while self.unacked and self.unacked[0][0] <= received:
            self.unacked.popleft()

    def take_sign(self, sign: Sign, now: float) -> None:
        """A sign of life of the peer."""
        if sign.flags & wire.ASIDE:
            return
        self.acked(sign.control_received)
        self.wants_resend = self.wants_resend or sign.control_sent > self.control_received
        if sign.flags & wire.RESEND and now - self.last_resend >= RESEND_SECONDS:
            self.resend(now)
        self.notice_stall(sign, now)
        self.peer_data_received = max(self.peer_data_received, sign.data_received)
        if sign.control_sent <= self.control_received:  # else a word that some are missing may be on its way
            while self.uncredited and self.uncredited[0].number <= sign.data_received:
                sent = self.uncredited.popleft()
                self.loop_tuples -= sent.size
                self.unconfirmed.pop(sent.number, None)
        if sign.silence >= SILENCE and now >= self.next_reconnect:
            self.wants_reconnect = True
        if sign.flags & wire.READY:
            self.peer_ready = True
        if sign.flags & wire.LEAVING:
            self.peer_leaves = True
        if sign.flags & wire.LEFT:
            self.peer_left_at = sign.data_sent

    def notice_stall(self, sign: Sign, now: float) -> None:
        """Signs come on a connection of their own: tuples may stand still on theirs while these go on. So when the peer's loop
        says for `SILENCE` seconds, and for as long as what is under way may take, that nothing more has come, the connections
        are made anew."""
        if sign.data_received > self.peer_data_received or sign.data_received >= self.data_sent:
            self.stalled_since = None
        elif self.stalled_since is None:
            self.stalled_since = now
        elif now - self.stalled_since >= SILENCE and now >= self.next_reconnect:
            under_way = sum(
                sent.size_bytes for sent in self.unconfirmed.values() if sent.number > sign.data_received
            )
            if now - self.stalled_since >= SILENCE + under_way / SLOWEST_BYTES:
                self.stalled_since = None
                self.wants_reconnect = True

    def confirm(self, target: int, executed: int) -> None:
        """The peer has executed the frames to this task up to a number."""
        frames = self.by_target.get(target)
        while frames and (frames[0].lost or frames[0].frame <= executed):
            self.unconfirmed.pop(frames.popleft().number, None)

    def forget_target(self, target: int) -> list[Sent]:
        """A task is made anew: what it has not executed is lost, and nothing takes its place."""
        lost = [sent for sent in self.unconfirmed.values() if sent.target == target]
        self.by_target.pop(target, None)
        for sent in lost:
            sent.lost = True
            del self.unconfirmed[sent.number]
        waiting = [batch for batch in self.waiting if batch.target == target]
        self.loop_tuples -= sum(len(batch.rows) for batch in waiting if not batch.frame)
        lost += [remembered(batch, 0) for batch in waiting]
        self.waiting = deque(batch for batch in self.waiting if batch.target != target)
        return lost

    def take_missing(self, ranges: Iterable[tuple[int, int]], now: float) -> list[Sent]:
        """The peer misses messages of ours: they are lost; empty frames take their places."""
        lost = []
        for first, last in ranges:
            for number in range(max(first, 1), min(last, self.data_sent) + 1):
                sent = self.unconfirmed.pop(number, None)
                if sent is None:
                    continue
                sent.lost = True
                lost.append(sent)
                void = Batch(sent.source, sent.target, [], [], [], NO_MORE)
                void.frame, void.cycle, void.ended = sent.frame, sent.cycle, sent.ended
                if sent.frame or sent.ended:
                    self.put_batch(void, now)
        return lost

    def supersede(self, incarnation: Incarnation, now: float) -> list[Sent]:
        """The peer's incarnation is over, another one begins: whatever it has not confirmed is lost."""
        lost = [sent for sent in self.unconfirmed.values() if not sent.lost]
        lost += [remembered(batch, 0) for batch in self.waiting]
        self.step("superseded")
        self.begin(incarnation, now)
        return lost
