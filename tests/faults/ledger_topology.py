"""The topology that writes the ledger: two spouts, two relays (shuffle), two sinks (fields), so that half of all tuples
cross between two workers, on two hops.

A spout task emits numbers until a file called `stop` appears in the ledger's directory, goes on until each number is acked,
and finishes. Components take paths and numbers only, so that they work in any process; they import nothing of a cluster.
Must not know: processes, faults.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults import ledger
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Failure,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)

STOP = "stop"
FIELDS = Fields("number", "key", "text", "data")
#: Seconds between two checks for the stop file.
LOOK_EVERY = 0.05
#: A single tuple costs its workers half a millisecond, mostly for waking up: so a spout waits until some are due.
BURST_SECS = 0.1


def values_of(number: int, keys: int, size: int) -> tuple[int, int, str, bytes]:
    """The values emitted with a number: they follow from it, so that the sink can check them."""
    pattern = number.to_bytes(8, "big")
    return number, number % keys, f"tuple {number}", (pattern * (size // 8 + 1))[:size]


class LedgerSpout(Spout):
    """Writes down each emission before it makes it, and each outcome when it is reported.

    rate: tuples a second of each task, those of `burst` seconds at a time; None: as fast as it is called. replay: None makes
    the source itself emit what failed, as another emission, so that each failure is in the ledger; otherwise the runtime
    replays.
    """

    outputs = FIELDS

    def __init__(
        self,
        directory: str,
        rate: float | None,
        keys: int,
        size: int,
        replay: Replay | None = None,
        burst: float = BURST_SECS,
    ) -> None:
        self.directory = directory
        self.rate = rate
        self.burst = burst
        self.keys = keys
        self.size = size
        self.replay = replay

    def open(self, context: Context) -> None:
        lives = ledger.lives_of(ledger.read(self.directory), ledger.SPOUT, context.index)
        emitted = {entry.number for life in lives for entry in life.of("E")}
        acked = {entry.number for life in lives for entry in life.of("A")}
        self.next = max(emitted, default=context.index * ledger.STRIDE - 1) + 1
        self.again = deque(sorted(emitted - acked))
        self.attempts: dict[int, int] = {}
        self.unsettled = 0
        self.began = time.monotonic()
        self.emitted = 0
        self.look_at = 0.0
        self.stopping = False
        self.file = ledger.Writer(self.directory, ledger.SPOUT, context.index)

    def next_tuple(self) -> float | None:
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + LOOK_EVERY
            self.stopping = os.path.exists(os.path.join(self.directory, STOP))
        if self.again:
            self.send(self.again.popleft())
        elif self.stopping:
            if not self.unsettled:
                self.finish()
            return LOOK_EVERY
        else:
            if self.rate is not None and (wait := self.began + self.emitted / self.rate - now) > 0:
                return wait + self.burst
            self.emitted += 1
            self.next += 1
            self.send(self.next - 1)
        return None

    def send(self, number: int) -> None:
        attempt = self.attempts.get(number, 0) + 1
        self.attempts[number] = attempt
        self.file.write("E", number, attempt)
        self.unsettled += 1
        self.emit(values_of(number, self.keys, self.size), message_id=(number, attempt))

    def ack(self, message_id: Any) -> None:
        number, attempt = message_id
        self.file.write("A", number, attempt)
        self.unsettled -= 1
        self.attempts.pop(number, None)

    def fail(self, message_id: Any, failure: Failure) -> None:
        number, attempt = message_id
        self.file.write("F", number, attempt, failure.reason)
        self.unsettled -= 1
        self.again.append(number)

    def deactivate(self) -> None:
        self.file.write("P")

    def close(self) -> None:
        self.file.close()


class Relay(Bolt):
    """Passes each tuple on."""

    outputs = FIELDS

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class SlowRelay(Relay):
    """Spends some time on each tuple."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def execute(self, tup: Tuple) -> None:
        time.sleep(self.seconds)
        self.emit(tup.values)


class ThreadedRelay(SlowRelay):
    """Spends some time on each tuple, in a thread of its own."""

    threaded = True


class AsyncRelay(Relay):
    """Spends some time on many tuples at once."""

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.002)
        self.emit(tup.values)


class BatchRelay(BatchBolt):
    """Passes tuples on in batches."""

    outputs = FIELDS
    batch_size = 50
    batch_interval = 0.1

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit(tup.values, anchors=tup)


class HoldingRelay(Relay):
    """A rich bolt: holds tuples until there are enough or a moment has passed, then passes them on and acks them."""

    auto_anchor = False
    auto_ack = False
    tick_interval = 0.2

    def prepare(self, context: Context) -> None:
        self.held: deque[Tuple] = deque()

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) > 20:
            self.let_go()

    def tick(self) -> None:
        while self.held:
            self.let_go()

    def let_go(self) -> None:
        tup = self.held.popleft()
        self.emit(tup.values, anchors=tup)
        self.ack(tup)


class LedgerSink(Bolt):
    """Writes down each tuple before it is acked."""

    def __init__(self, directory: str, keys: int, size: int) -> None:
        self.directory = directory
        self.keys = keys
        self.size = size

    def prepare(self, context: Context) -> None:
        self.file = ledger.Writer(self.directory, ledger.SINK, context.index)

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        if type(number) is int and tup.values == values_of(number, self.keys, self.size):
            self.file.write("S", number)
        else:
            self.file.write("W", number, repr(tup.values)[:80].replace("\n", " "))

    def cleanup(self) -> None:
        self.file.close()


def ledger_topology(
    directory: Path | str,
    *,
    name: str = "ledger",
    rate: float | None = 200.0,
    keys: int = 64,
    size: int = 100,
    replay: Replay | None = None,
    relay: Bolt | None = None,
    spouts: int = 2,
    bolts: int = 2,
    workers: int = 2,
    burst: float = BURST_SECS,
    conf: dict[str, object] | None = None,
) -> Topology:
    """The topology: `spouts` tasks of its spout, `bolts` tasks of each bolt, over `workers` workers."""
    builder = TopologyBuilder(name, {"topology.workers": workers, **(conf or {})})
    spout = LedgerSpout(str(directory), rate, keys, size, replay, burst)
    builder.set_spout("numbers", spout, parallelism=spouts)
    builder.set_bolt("relay", relay or Relay(), parallelism=bolts).shuffle_grouping("numbers")
    sink = builder.set_bolt("sink", LedgerSink(str(directory), keys, size), parallelism=bolts)
    sink.fields_grouping("relay", "key")
    return builder.build()
