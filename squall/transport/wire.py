"""Encode and decode messages between workers: a header that names sender and receiver, and a body by kind.

Every message begins with the same header: protocol version, kind, checksum, the incarnations of sender and receiver, the
sender's assignment version, the message's number on its channel, the sender's name. Every length is checked before anything is
allocated or decoded. Bytes that are not a message of this version raise `BadFrame` and no other error. The checksum (CRC-32)
covers the first part; large values travel as further parts. The encryption of the link authenticates all parts.

This module also decides which trees fail because values cannot travel: the trees of a tuple that cannot be encoded (the rest of
its batch is sent), and the trees of a batch that cannot be decoded.
Must not know: sockets, tasks, credit, the meaning of numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from zlib import crc32

from msgspec import structs

from squall.transport.carrier import Parts
from squall.transport.columns import pack_rows, readable_rows, unpack_rows
from squall.transport.control import pack_more, unpack_more
from squall.transport.errors import BadFrame, Unencodable
from squall.transport.frames import (
    COUNTS,
    NO_MORE,
    Batch,
    Control,
    EpochBarrier,
    EpochFrame,
    Unread,
    Unsent,
)
from squall.transport.id_columns import Ids, from_raw, raw
from squall.transport.row_columns import as_rows
from squall.unreadable import why_unreadable
from squall.values import Address, Incarnation
from topology_api import Failure, Topology
from topology_api.tuples import Source
from topology_api.wording import class_name, is_error, message_of

VERSION: Final = 2
MAGIC: Final = b"SQ"
BATCH, END, PING, CONTROL_FRAME, HEARTBEAT = range(1, 6)
#: Of topologies with epochs: like BATCH and END, with a rewind number before the body; and a barrier.
EPOCH_BATCH, EPOCH_END, BARRIER = range(7, 10)
KINDS: Final = frozenset((BATCH, END, PING, CONTROL_FRAME, HEARTBEAT, EPOCH_BATCH, EPOCH_END, BARRIER))

#: magic, version, kind, checksum | sender's incarnation, receiver's, assignment version, number, length of the sender's name.
START: Final = struct.Struct("<2sBBI")
HEADER: Final = struct.Struct("<IIIIIQB")
#: cycle + 1, source task, target task, stream number, number of tuples, frame, number of further parts, length of `more`,
#: length of the values.
BATCH_HEAD: Final = struct.Struct("<HHHHIQHII")
#: The rewind number of a batch; rewind number, epoch, source task, whether the epoch is the last one, of a barrier.
EPOCH_HEAD: Final = struct.Struct("<Q")
BARRIER_BODY: Final = struct.Struct("<QQHB")
#: control sent, control received, data sent, data received, tenths of a second since the peer was heard, flags. The sender's
#: address follows: two endpoints, one a line.
HEARTBEAT_BODY: Final = struct.Struct("<QQQQHB")

#: The maximum size of a message; larger messages are refused. A batch has a few hundred tuples, but one tuple may be large.
MOST_BYTES: Final = 1 << 30
MOST_TUPLES: Final = 1 << 20
#: The most bytes besides the values: this many for the header, and as many again for each tuple.
MOST_OF_A_HEAD: Final = 512
MOST_PARTS: Final = 1 << 12

# Flags of a heartbeat.
LEAVING: Final = 1  # the sender accepts no more tuples
LEFT: Final = 2  # the sender knows that the receiver accepts no more tuples, and sends none
RESEND: Final = 4  # control frames after number `control_received` have not arrived: send them again
READY: Final = 16  # the sender's tasks are prepared: it accepts tuples
WAITS: Final = 32  # tuples wait at the sender until the receiver's tasks are prepared
RESEND_DATA: Final = 64  # data messages after number `data_received` have not arrived: send them again
ASIDE: Final = 8  # sent by another thread, out of order: the numbers of control frames say nothing

FindSource = Callable[[int, int], Source]


class Undecodable(BadFrame):
    """A valid batch whose values this worker cannot decode. `batch` is the batch without its tuples, `roots` are the roots of
    their trees."""

    def __init__(
        self, batch: Batch, roots: set[int], why: str, readable: Callable[[], tuple[Batch, list[Unread]]]
    ) -> None:
        """`readable`: returns the batch with the tuples that can be read, and the others. Raises an error of any kind."""
        source = batch.source
        self.readable = readable
        super().__init__(
            f"values of stream {source.stream!r} of component {source.component!r} cannot be decoded: {why}"
        )
        self.batch = batch
        self.roots = roots


class Header(NamedTuple):
    """Sender and receiver of a message. A receiver (0, 0) means that the sender does not know the receiver's incarnation
    yet."""

    kind: int
    sender: str
    incarnation: Incarnation
    receiver: Incarnation
    version: int
    number: int


class LinkHeartbeat(NamedTuple):
    """The numbers sent and received so far on the channels of a link."""

    control_sent: int
    control_received: int
    data_sent: int
    data_received: int
    #: Seconds since the last message from the receiver of this heartbeat.
    silence: float
    flags: int
    #: The endpoints at which the sender receives.
    address: Address


class Streams:
    """All streams of a topology, numbered in the order of declaration, so that all processes agree."""

    def __init__(self, topology: Topology, component_of: Mapping[int, str]) -> None:
        """`component_of`: the component of each task, which may change."""
        self.component_of = component_of
        self._all = [
            (spec.id, stream, declared.fields)
            for spec in topology.components
            for stream, declared in spec.outputs.items()
        ]
        self.numbers = {entry[:2]: number for number, entry in enumerate(self._all)}
        self._sources: dict[tuple[int, int], Source] = {}

    def source(self, task: int, number: int) -> Source:
        """Return the source of a task's stream, the same object each time. Raises `BadFrame` if there is no such stream."""
        if (found := self._sources.get((task, number))) is None:
            if number >= len(self._all) or task not in self.component_of:
                raise BadFrame(f"a batch of stream {number} of task {task}, which does not exist")
            component, stream, fields = self._all[number]
            found = self._sources[task, number] = Source(component, task, stream, fields)
        return found


def seal(header: Header, body: bytes) -> bytes:
    """Return the first part of a message: header and body."""
    sender = header.sender.encode()
    fields = (*header.incarnation, *header.receiver, header.version, header.number, len(sender))
    rest = HEADER.pack(*fields) + sender + body
    return START.pack(MAGIC, VERSION, header.kind, crc32(rest, header.kind)) + rest


def open_header(parts: Parts) -> tuple[Header, memoryview]:
    """Return the header of a message and the rest of its first part, after checking both."""
    if not parts or len(parts) > MOST_PARTS or sum(map(len, parts)) > MOST_BYTES:
        raise BadFrame(f"a message of {len(parts)} parts is too large, or empty")
    view = memoryview(parts[0])
    if len(view) < START.size + HEADER.size:
        raise BadFrame(f"{len(view)} bytes are no message")
    magic, version, kind, checksum = START.unpack_from(view)
    if magic != MAGIC:
        raise BadFrame("bytes that do not begin as a message does")
    if version != VERSION:
        raise BadFrame(f"a message of protocol version {version}; this Squall speaks version {VERSION}")
    rest = view[START.size :]
    if kind not in KINDS or crc32(rest, kind) != checksum:
        raise BadFrame(f"a message of kind {kind} whose checksum is wrong")
    fields = HEADER.unpack_from(rest)
    if (end := HEADER.size + fields[6]) > len(rest):
        raise BadFrame("a message that ends in its sender's name")
    try:
        sender = str(rest[HEADER.size : end], "utf-8")
    except UnicodeDecodeError as error:
        raise BadFrame("a message whose sender's name is not text") from error
    header = Header(kind, sender, Incarnation(*fields[:2]), Incarnation(*fields[2:4]), fields[4], fields[5])
    return header, rest[end:]


# Batches.


def pack_batch(batch: Batch, codec: str, numbers: Mapping[tuple[str, str], int]) -> tuple[bytes, Parts]:
    """Return the body of a batch and its further parts; `numbers`: the numbers of the streams. Raises `Unencodable`."""
    source = batch.source
    values: Parts = pack_rows(codec, source.fields, batch.rows) if batch.rows else [b""]
    if sum(map(len, values)) > MOST_BYTES - MOST_OF_A_HEAD * (len(batch) + 1):
        raise too_large(batch, codec)
    more = pack_more(batch.more)
    head = BATCH_HEAD.pack(
        batch.cycle + 1,
        source.task,
        batch.target,
        numbers[source.component, source.stream],
        len(batch.rows),
        batch.frame,
        len(values) - 1,
        len(more),
        len(values[0]),
    )
    return b"".join((head, raw(batch.roots), raw(batch.edges), more, values[0])), values[1:]


def too_large(batch: Batch, codec: str) -> Unencodable:
    """Return the error for a batch that is too large to send; it names the largest tuple."""
    fields = batch.source.fields
    sizes = [sum(map(len, pack_rows(codec, fields, [row]))) for row in batch.rows]
    at = max(range(len(sizes)), key=sizes.__getitem__)
    of_values = [sum(map(len, pack_rows(codec, ("",), [(value,)]))) for value in batch.rows[at]]
    name = fields[max(range(len(of_values)), key=of_values.__getitem__)]
    return Unencodable(at, name, f"it takes {sizes[at]:,} bytes; a message takes {MOST_BYTES:,} at most")


def unpack_batch(
    header: Header, body: memoryview, further: Parts, codec: str, find_source: FindSource
) -> Batch:
    """Return the batch of a message."""
    if len(body) < BATCH_HEAD.size:
        raise BadFrame("a batch without a head")
    cycle, task, target, stream, tuples, frame, parts, more_size, values_size = BATCH_HEAD.unpack_from(body)
    at = BATCH_HEAD.size
    if tuples > MOST_TUPLES or parts != len(further):
        raise BadFrame(f"a batch of {tuples} tuples in {parts} further parts, of which {len(further)} came")
    if at + 16 * tuples + more_size + values_size != len(body):
        raise BadFrame(f"a batch of {len(body)} bytes whose lengths do not add up")
    roots, edges = from_raw(body[at : at + 8 * tuples]), from_raw(body[at + 8 * tuples : at + 16 * tuples])
    at += 16 * tuples
    source = find_source(task, stream)
    more = unpack_more(body[at : at + more_size]) if more_size else NO_MORE
    batch = Batch(source, target, [], roots, edges, more)
    batch.sender, batch.frame, batch.cycle = header.sender, frame, cycle - 1
    batch.ended = header.kind in (END, EPOCH_END)
    if tuples:
        try:
            batch.rows = unpack_rows(codec, [body[at + more_size :], *further], tuples, len(source.fields))
        except BaseException as error:  # the classes of values are the user's, and may raise anything
            held = batch.waiting_roots(0)
            parts = [body[at + more_size :], *further]
            readable = partial(
                _readable, batch, parts, [trees_at(batch, position) for position in range(tuples)]
            )
            batch.roots, batch.edges, batch.more = Ids(), Ids(), NO_MORE
            why = str(error) if is_error(error, BadFrame) else f"{class_name(error)}: {message_of(error)}"
            raise Undecodable(batch, held, why, readable) from error
    return batch


def _readable(
    batch: Batch, parts: list[Any], trees: list[tuple[tuple[int, int], ...]]
) -> tuple[Batch, list[Unread]]:
    """Return a batch with its tuples that can be read, and the others. Raises an error of any kind if its parts are no rows."""
    rows, lost = readable_rows(parts, len(trees)), []
    kept: list[Any] = []
    roots, edges, more = Ids(), Ids(), {}
    for row, pairs in zip(rows, trees):
        if why_unreadable(row):
            lost.append(Unread(row, pairs))
            continue
        (root, edge), *others = pairs
        if others:
            more[len(kept)] = tuple((other, edge ^ its_edge) for other, its_edge in others)
        kept.append(row)
        roots.append(root)
        edges.append(edge)
    batch.rows, batch.roots, batch.edges, batch.more = as_rows(kept), roots, edges, more or NO_MORE
    batch.skipped += len(lost)
    return batch, lost


def trees_at(batch: Batch, at: int) -> tuple[tuple[int, int], ...]:
    """Return (root, edge) of the trees of a batch's tuple."""
    root, edge = batch.roots[at], batch.edges[at]
    return (root, edge), *((more, edge ^ other) for more, other in batch.more.get(at, ()))


def open_batch(
    header: Header, body: memoryview, further: Parts, codec: str, streams: Streams, worker: str
) -> tuple[Batch, list[Unread], Control | None]:
    """Return the batch of a message in a topology with epochs, the tuples that this worker cannot read, and a note to it if it
    can read nothing of the batch."""
    try:
        return unpack_batch(header, body, further, codec, streams.source), [], None
    except Undecodable as error:
        try:
            return *error.readable(), None
        except BaseException:  # as above
            component = streams.component_of.get(error.batch.target)
            return error.batch, [], undecodable_note(error, worker, component)


# What belongs to a rewind.


def seal_epoch_batch(rewind: int, body: bytes) -> bytes:
    """Return the body of a batch that belongs to a rewind."""
    return EPOCH_HEAD.pack(rewind) + body


def open_epoch_batch(body: memoryview) -> tuple[int, memoryview]:
    """Return the rewind number of a batch, and the body without it."""
    if len(body) < EPOCH_HEAD.size:
        raise BadFrame("a batch without a rewind number")
    return EPOCH_HEAD.unpack_from(body)[0], body[EPOCH_HEAD.size :]


def pack_barrier(frame: EpochFrame) -> bytes:
    """Return the body of a barrier."""
    barrier = frame.item
    assert isinstance(barrier, EpochBarrier)
    return BARRIER_BODY.pack(frame.rewind, barrier.epoch, barrier.source, barrier.last)


def unpack_barrier(body: memoryview) -> EpochFrame:
    """Return the barrier of a message."""
    if len(body) != BARRIER_BODY.size:
        raise BadFrame(f"a barrier of {len(body)} bytes")
    rewind, epoch, source, last = BARRIER_BODY.unpack(body)
    if last > 1:
        raise BadFrame(f"a barrier with the flag {last}")
    return EpochFrame(rewind, EpochBarrier(source, epoch, bool(last)))


# A tuple whose values cannot travel is left out of its batch, and its trees fail. The worker learns of such tuples by a
# `Control` frame that it sends to itself.


def pack_encodable(
    batch: Batch, codec: str, streams: Streams, worker: str
) -> tuple[bytes, Parts, Control | None]:
    """Return the body of a batch, its further parts, and a note to the sending worker on the tuples that were left out."""
    note: Control | None = None
    while True:
        try:
            return *pack_batch(batch, codec, streams.numbers), note
        except Unencodable as error:
            note = note or Control(worker)
            _leave_out(batch, error, note)


def belongs_to(note: Control, frame: EpochFrame) -> None:
    """The tuples that a note names were left out of a frame."""
    note.unsent = [structs.replace(each, rewind=frame.rewind, epoch=frame.epoch) for each in note.unsent]


def undecodable_note(error: Undecodable, worker: str, component: str | None) -> Control:
    """Return a note to the receiving worker: it cannot decode the values of a batch, so the batch's trees fail."""
    task = error.batch.target
    failure = Failure("failed", component, task, str(error), COUNTS)
    note = Control(worker)
    note.failures = [(root, failure) for root in sorted(error.roots)]
    note.unsent.append(Unsent(component or "?", task, (), str(error), -1, call=""))
    return note


def _leave_out(batch: Batch, error: Unencodable, note: Control) -> None:
    """Remove the faulty tuple from a batch, and add its failure to the note."""
    at, source = error.position, batch.source
    failure = Failure("failed", source.component, source.task, str(error), COUNTS)
    trees = trees_at(batch, at)
    note.failures += [(root, replace(failure)) for root, _ in trees if root > 0]
    note.unsent.append(
        Unsent(
            source.component,
            source.task,
            batch.rows[at],
            str(error),
            batch.cycle,
            batch.target,
            source=source,
            trees=trees,
        )
    )
    del batch.rows[at], batch.roots[at], batch.edges[at]
    batch.more = {place - (place > at): pairs for place, pairs in batch.more.items() if place != at}


# Heartbeats.


def pack_heartbeat(heartbeat: LinkHeartbeat) -> bytes:
    """Return the body of a heartbeat."""
    *numbers, silence, flags, address = heartbeat
    return HEARTBEAT_BODY.pack(*numbers, min(int(silence * 10), 0xFFFF), flags) + "\n".join(address).encode()


def unpack_heartbeat(body: memoryview) -> LinkHeartbeat:
    """Return the heartbeat of a message."""
    if len(body) < HEARTBEAT_BODY.size:
        raise BadFrame("a heartbeat that is too short")
    *numbers, tenths, flags = HEARTBEAT_BODY.unpack_from(body)
    try:
        data, control = str(body[HEARTBEAT_BODY.size :], "utf-8").split("\n")
    except ValueError as error:
        raise BadFrame("a heartbeat without an address") from error
    return LinkHeartbeat._make((*numbers, tenths / 10, flags, (data, control)))
