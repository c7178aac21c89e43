"""Links of topologies with epochs: whatever the network does, frames arrive in order, each once."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from squall.clock import ManualClock
from squall.transport import effects, wire
from squall.transport.carrier import DATA
from squall.transport.control import pack_control, unpack_control
from squall.transport.errors import BadFrame
from squall.transport.exchange import Exchange, PeerPlace
from squall.transport.frames import Batch, Control, EpochBarrier, EpochFrame, Frame
from squall.transport.in_flight import SentBatch
from squall.transport.link import LocalWorker
from squall.transport.ordered_link import UNREPORTED_DATA, OrderedLink
from squall.transport.wire import Streams
from squall.values import Incarnation
from tests.carrier_in_memory import LoopbackCarrier, LoopbackNetwork
from tests.squall.transport.topologies import two_streams
from tests.worker.lossy_carrier import Faults, LossyCarrier
from topology_api.tuples import Source

FIRST = Incarnation(1, 0)


class Heard:
    """What an exchange has reported: see `PeerListener`."""

    def __init__(self) -> None:
        self.frames: list[EpochFrame] = []
        self.gone: list[int] = []
        self.linked_to: list[str] = []

    def deliver(self, frame: Frame) -> None:
        if isinstance(frame, EpochFrame):
            self.frames.append(frame)

    def lost(self, frames: Sequence[SentBatch], why: str) -> None:
        raise AssertionError(f"an ordered link has lost {frames}: {why}")

    def frames_gone(self, rewind: int) -> None:
        self.gone.append(rewind)

    def superseded(self, worker: str) -> None:
        pass

    def linked(self, worker: str) -> None:
        self.linked_to.append(worker)

    def closing(self, worker: str) -> None:
        pass

    def overflow(self, batch: Batch) -> None:
        raise AssertionError(f"{batch} has no cycle")


class OrderedPair:
    """Two workers, "a" and "b"."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.clock, self.network = ManualClock(), LoopbackNetwork()
        self.faults = faults or Faults(Random(0))
        self.streams = Streams(two_streams(), {1: "words", 2: "count"})
        self.heard = {"a": Heard(), "b": Heard()}
        self.exchanges = {name: self.exchange(name, FIRST) for name in "ab"}
        self.meet(FIRST)

    def exchange(self, name: str, incarnation: Incarnation) -> Exchange:
        """A process of a worker."""
        carrier = LossyCarrier(LoopbackCarrier(self.network), self.faults)
        local = LocalWorker(name, incarnation, carrier.address, "pickle", self.streams, lambda task: 4)
        local.ordered = local.ready = True
        return Exchange(local, carrier, self.clock, self.heard[name], 1000)

    def meet(self, incarnation: Incarnation) -> None:
        """The supervisors tell both of each other; `incarnation`: that of b."""
        places = {"a": FIRST, "b": incarnation}
        for name, other in ("ab", "ba"):
            address = self.exchanges[other].carrier.address
            self.exchanges[name].assign(1, {other: PeerPlace(places[other], address)})

    @property
    def link(self) -> OrderedLink:
        """The link from a to b."""
        link = self.exchanges["a"].peers["b"].link
        assert isinstance(link, OrderedLink)
        return link

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            for exchange in self.exchanges.values():
                exchange.receive()
                exchange.advance()
            self.clock.move_to(self.clock.now() + 0.01)

    def send(self, number: int, rewind: int = 3) -> None:
        """Send a frame from a to b: a batch, and every tenth time a barrier or an end mark."""
        if number % 10 == 9:
            self.exchanges["a"].send("b", EpochFrame(rewind, EpochBarrier(1, number, number % 20 == 19)))
            return
        rows = [] if number % 10 == 8 else [(f"row {number}",)]
        batch = Batch(self.streams.source(1, 0), 2, rows, [number] * len(rows), [1] * len(rows))
        batch.ended, batch.frame = not rows, number
        self.exchanges["a"].send("b", EpochFrame(rewind, batch))


def number_of(frame: EpochFrame) -> int:
    """The number with which a frame was sent."""
    return frame.item.epoch if isinstance(frame.item, EpochBarrier) else frame.item.frame


@pytest.mark.parametrize("seed", range(5))
def test_frames_arrive_in_order_and_once_whatever_is_lost_doubled_and_swapped(seed: int) -> None:
    draw = Random(seed)
    pair = OrderedPair(Faults(draw, lose=0.2, double=0.2, swap=0.1, flip=0.05))
    sent = 0
    for _ in range(20):
        for _ in range(draw.randrange(15)):
            pair.send(sent)
            sent += 1
        pair.run(draw.uniform(0, 0.5))
    pair.faults.bad = False
    pair.run(10)
    arrived = pair.heard["b"].frames
    assert [number_of(frame) for frame in arrived] == list(range(sent))
    assert {frame.rewind for frame in arrived} == {3}
    for frame in arrived:
        number = number_of(frame)
        if isinstance(frame.item, Batch):
            assert frame.item.ended == (number % 10 == 8)
            assert [tuple(row) for row in frame.item.rows] == (
                [(f"row {number}",)] if number % 10 < 8 else []
            )
        else:
            assert frame.item == EpochBarrier(1, number, number % 20 == 19)
    assert not pair.link.data.unacked and pair.link.executed


def test_a_lost_message_is_sent_again_without_new_connections() -> None:
    pair = OrderedPair()
    pair.run(1)
    data = pair.exchanges["b"].carrier.address[0]
    pair.faults.cut = lambda address, channel: channel == DATA and address[0] == data
    for number in range(5):
        pair.send(number)
    pair.run(0.1)
    pair.faults.cut = lambda address, channel: False
    pair.run(1)
    assert [number_of(frame) for frame in pair.heard["b"].frames] == list(range(5))
    assert pair.exchanges["a"].counters["reconnects"] == 0


def test_the_sender_keeps_no_more_than_what_was_not_reported() -> None:
    pair = OrderedPair()
    pair.run(1)
    for number in range(10 * UNREPORTED_DATA):
        pair.send(number)
        if number % 8 == 7:
            pair.run(0.01)
    assert len(pair.link.data.unacked) <= 2 * UNREPORTED_DATA


def test_frames_for_a_process_that_has_ended_are_gone_and_are_named_by_their_rewind() -> None:
    pair = OrderedPair()
    pair.run(1)
    pair.send(1, rewind=3)
    pair.send(2, rewind=5)
    pair.run(1)
    assert pair.link.executed, "they were received, but may not have been worked off"
    restarted = Incarnation(1, 1)
    pair.exchanges["b"].carrier.close()
    pair.exchanges["b"] = pair.exchange("b", restarted)
    pair.meet(restarted)
    pair.run(1)
    assert pair.heard["a"].gone == [5]
    pair.send(3, rewind=6)
    pair.run(1)
    assert [number_of(frame) for frame in pair.heard["b"].frames] == [1, 2, 3]
    assert pair.link.supersede(Incarnation(1, 2), 9.0)[1] == effects.FramesGone(6)
    assert not any(
        isinstance(each, effects.FramesGone) for each in pair.link.supersede(Incarnation(1, 3), 9.0)
    )


def test_a_frame_that_cannot_be_read_is_lost_and_those_behind_it_arrive() -> None:
    pair = OrderedPair()
    pair.run(1)
    gone = Batch(Source("words", 7, "default", ("word",)), 2, [("row",)], [1], [1])
    pair.exchanges["a"].send("b", EpochFrame(6, gone))
    pair.send(9)
    pair.run(1)
    assert [number_of(frame) for frame in pair.heard["b"].frames] == [9]
    assert pair.heard["b"].gone == [6]
    assert pair.exchanges["b"].counters["refused: garbage"] == 1


def test_a_message_that_is_sent_again_is_as_it_was() -> None:
    pair = OrderedPair()
    pair.run(1)
    data = pair.exchanges["b"].carrier.address[0]
    pair.faults.cut = lambda address, channel: channel == DATA and address[0] == data
    large = bytearray(b"x" * 300_000)
    batch = Batch(pair.streams.source(1, 0), 2, [(pickle.PickleBuffer(large),)], [1], [1])
    pair.exchanges["a"].send("b", EpochFrame(3, batch))
    large[:] = b"y" * len(large)
    pair.faults.cut = lambda address, channel: False
    pair.run(2)
    [frame] = pair.heard["b"].frames
    assert isinstance(frame.item, Batch)
    assert set(bytes(frame.item.rows[0][0])) == {ord("x")}


def test_frames_to_a_worker_that_is_not_in_the_assignment_are_gone() -> None:
    pair = OrderedPair()
    pair.exchanges["a"].send("c", EpochFrame(4, EpochBarrier(1, 2)))
    assert pair.heard["a"].gone == [4]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "a barrier of 0 bytes"),
        (wire.BARRIER_BODY.pack(1, 2, 1, 7), "a barrier with the flag 7"),
    ],
)
def test_a_barrier_that_cannot_be_one_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        wire.unpack_barrier(memoryview(body))


def test_a_batch_without_a_rewind_number_is_refused() -> None:
    with pytest.raises(BadFrame, match="without a rewind number"):
        wire.open_epoch_batch(memoryview(b"1234"))


def test_control_frames_of_epochs_are_decoded_completely_and_others_are_as_before() -> None:
    control = Control("a", grants={3: 9}, rewind=7, epochs=[b"one", b"two"])
    back, received = unpack_control("a", memoryview(pack_control(control, 5)))
    assert (back, received) == (control, 5)
    plain = pack_control(Control("a", grants={3: 9}), 5)
    # What a worker of an earlier release decodes.
    assert msgspec.msgpack.decode(plain[14:]) == [[], {3: 9}, [], False, [], []]
    for rest in ([[], {}, [], False, [], [], 1], [[], {}, [], False, [], [], "x", []], pickle.dumps(1)):
        packed = rest if isinstance(rest, bytes) else msgspec.msgpack.encode(rest)
        with pytest.raises(BadFrame):
            unpack_control("a", memoryview(plain[:10] + len(packed).to_bytes(4, "little") + packed))
