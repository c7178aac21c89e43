"""A topology through which tuples go in waves, with acks, failures and errors of all kinds, and the memory after each wave.

`python -c 'from tests.faults.many_tuples import main; main()' WAVES TUPLES` prints a line of JSON. Time is simulated, so that
each wave ends before memory is measured. Must not know: the limits.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import sys
from collections import deque
from collections.abc import Sequence

from local_cluster import LocalCluster
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    EmitError,
    FailTuple,
    Failure,
    Fields,
    Spout,
    TopologyBuilder,
    Tuple,
)
from topology_api.core_choice import CHOICE

#: Simulated seconds between waves: long enough that the ticks of timing wheels soon exceed the small integers that CPython
#: shares; from then on each of a tracker's 4,096 stamps may be an object.
PAUSE = 400.0
#: One tuple in this many goes wrong, in each of the possible ways in turn.
WRONG = 50
KEYS = 1000


class Waves(Spout):
    """Emits this many tuples, then waits for the next wave."""

    outputs = {"default": Fields("number", "key"), "untracked": Fields("number")}
    replay = None

    def __init__(self, tuples: int) -> None:
        self.tuples = tuples

    def open(self, context: Context) -> None:
        self.number = 0
        self.final_calls = 0

    def next_tuple(self) -> float | None:
        self.number += 1
        if self.number % self.tuples == 0:
            return PAUSE
        self.emit((self.number, f"key {self.number % KEYS}"), message_id=self.number)
        if self.number % 10 == 0:
            self.emit([self.number], stream="untracked")
        return None

    def ack(self, message_id: object) -> None:
        self.final_calls += 1

    def fail(self, message_id: object, failure: Failure) -> None:
        self.final_calls += 1


class Basic(Bolt):
    """The hot loop, and everything that goes wrong in it."""

    outputs = Fields("number", "values")

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        if number % WRONG == 0:
            self.go_wrong(tup, number // WRONG % 6)
        self.emit((number, {"key": tup["key"], "values": [number, str(number)]}))

    def go_wrong(self, tup: Tuple, way: int) -> None:
        if way == 0:
            raise ValueError(f"number {tup['number']}")
        if way == 1:
            raise FailTuple("not wanted")
        if way == 2:
            self.fail(tup, "given up")
        elif way == 3:
            self.emit(("too few",))
        elif way == 4:
            try:
                self.emit("text")
            except EmitError:
                self.ack(tup)
        else:
            self.emit((object(), tup["key"]))  # a value that cannot be a key


class Rich(Bolt):
    """Holds some tuples, and anchors to several."""

    outputs = Fields("number", "count")
    auto_ack = auto_anchor = False

    def prepare(self, context: Context) -> None:
        self.held: deque[Tuple] = deque()

    def execute(self, tup: Tuple) -> None:
        if type(tup["number"]) is not int:
            self.emit((tup["number"], 0), anchors=[tup, *self.held])  # refused: it fails this one
        self.held.append(tup)
        if len(self.held) > 3:
            self.emit((tup["number"] % KEYS, len(self.held)), anchors=list(self.held))
            old = self.held.popleft()
            if old["number"] % WRONG == 7:
                self.fail(old, "late")
            else:
                self.ack(old)


class Batches(BatchBolt):
    batch_size = 100

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if tups[0]["number"] % 5 == 0:
            raise RuntimeError("a batch")


class Sink(Bolt):
    def execute(self, tup: Tuple) -> None:
        len(tup.values)


def builder_of(tuples: int) -> TopologyBuilder:
    """Every kind of bolt, and frames through the codec where workers differ."""
    builder = TopologyBuilder("many-tuples", {"topology.workers": 2, "topology.max.spout.pending": 500})
    builder.set_spout("waves", Waves(tuples))
    builder.set_bolt("basic", Basic(), parallelism=2).fields_grouping("waves", "key")
    builder.set_bolt("rich", Rich()).shuffle_grouping("basic")
    builder.set_bolt("batches", Batches(), parallelism=2).partial_key_grouping("rich", "number")
    builder.set_bolt("sink", Sink(), parallelism=2).all_grouping("rich").shuffle_grouping(
        "waves", stream="untracked"
    )
    return builder


def resident() -> int:
    """Bytes of memory that this process uses."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # not Linux: the peak, in kilobytes or bytes
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    """Run the waves; print core, blocks, bytes and objects after each one, and the counts at the end."""
    waves, tuples = int(sys.argv[1]), int(sys.argv[2])
    logging.disable()
    blocks, memory, objects = [], [], []
    with LocalCluster(simulated_time=True, seed=1, encode=True) as cluster:
        cluster.submit(builder_of(tuples).build())
        for _ in range(waves):
            cluster.advance(PAUSE)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
            memory.append(resident())
            objects.append(len(gc.get_objects()))
        counts = cluster.status("many-tuples").components
        executed = {
            name: [each.executed, each.acked, each.failed, each.errors] for name, each in counts.items()
        }
    print(
        json.dumps(
            {
                "core": CHOICE.compiled,
                "blocks": blocks,
                "memory": memory,
                "objects": objects,
                "counts": executed,
            }
        )
    )
