"""The transport inside one process: frames passed as objects.

`Loopback` joins the in-process workers of a local cluster: frames go from worker to worker in order, and none is lost. With
`encoded` each frame goes through the codec, as on a network, so that values that cannot be encoded or decoded fail here too.
Must not know: tasks, user code, clocks.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.transport import wire
from squall.transport.carrier import Parts
from squall.transport.control import pack_control, unpack_control
from squall.transport.frames import Batch, EpochFrame, Frame
from squall.transport.wire import Header, Streams, Undecodable
from squall.values import Incarnation

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
        """From now on, call `deliver` with each frame for this worker."""
        self.workers[worker] = deliver

    def leave(self, worker: str) -> None:
        """Drop frames for this worker from now on."""
        self.workers.pop(worker, None)

    def send(self, worker: str, frame: Frame) -> None:
        """Deliver a frame to a worker."""
        if (deliver := self.workers.get(worker)) is None:
            return
        if not self.encoded:
            deliver(frame)
        elif isinstance(frame, Batch):
            deliver(self.batch_through_codec(frame, worker))
        elif isinstance(frame, EpochFrame):
            if isinstance(frame.item, Batch):
                frame = self.frame_through_codec(frame, frame.item, worker)
            deliver(frame)
        else:
            header = Header(wire.CONTROL_FRAME, frame.sender, NO_INCARNATION, NO_INCARNATION, 0, 0)
            opened, body = wire.open_header([wire.seal(header, pack_control(frame, 0))])
            deliver(unpack_control(opened.sender, body)[0])

    def batch_through_codec(self, batch: Batch, worker: str) -> Batch:
        """Return the batch for a worker after encoding and decoding. Tuples with a value that cannot be encoded fail, and are
        left out; if a value cannot be decoded, all tuples fail."""
        header, rest, further = self.encode(batch)
        try:
            return wire.unpack_batch(header, rest, further, self.codec, self.streams.source)
        except Undecodable as error:
            component = self.streams.component_of.get(error.batch.target)
            self.workers[worker](wire.undecodable_note(error, worker, component))
            return error.batch

    def frame_through_codec(self, frame: EpochFrame, batch: Batch, worker: str) -> EpochFrame:
        """The same in a topology with epochs: only a tuple with a value that cannot be decoded is lost."""
        header, rest, further = self.encode(batch, frame)
        found, unread, note = wire.open_batch(header, rest, further, self.codec, self.streams, worker)
        if note is not None:
            self.workers[worker](note)
        return EpochFrame(frame.rewind, found, frame.epoch, unread)

    def encode(self, batch: Batch, frame: EpochFrame | None = None) -> tuple[Header, memoryview, Parts]:
        """Return the message of a batch, opened."""
        body, further, note = wire.pack_encodable(batch, self.codec, self.streams, batch.sender)
        if note is not None and (own := self.workers.get(batch.sender)) is not None:
            if frame is not None:
                wire.belongs_to(note, frame)
            own(note)
        kind = wire.END if batch.ended else wire.BATCH
        first = wire.seal(Header(kind, batch.sender, NO_INCARNATION, NO_INCARNATION, 0, batch.frame), body)
        return *wire.open_header([first]), further
