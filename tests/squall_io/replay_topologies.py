"""Bolts and topologies for the tests of replays; a module of their own, so that other processes can import them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.local_cluster.small_topologies import Count, Split
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Fields,
    Grouping,
    Spout,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
)


class Lines(Spout):
    """A placeholder for a spout that is replaced by a source; a replay must not run it."""

    outputs = Fields("line")

    def next_tuple(self) -> None:
        raise AssertionError("a replay ran a spout")


class Totals(Count):
    """Emits only at the end; with its index, to show where it ran."""

    outputs = Fields("word", "count", "index")

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.index = context.index

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1

    def end_of_input(self) -> None:
        for word, count in self.counts.items():
            self.emit((word, count, self.index))


class Sink(Bolt):
    """Has no outputs; must never run in a replay."""

    def prepare(self, context: Context) -> None:
        raise AssertionError("a replay ran a sink")

    def execute(self, tup: Tuple) -> None:
        raise AssertionError("a replay ran a sink")


def word_count(counter: type[Bolt] = Count, sink: bool = False) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", counter(), parallelism=3).fields_grouping("split", "word")
    if sink:
        builder.set_bolt("store", Sink()).global_grouping("count")
    return builder.build()


class Passer(Bolt):
    """Has output streams of these names."""

    def __init__(self, *streams: str) -> None:
        self.streams = streams
        self.outputs = {stream: Fields("line") for stream in streams}

    def execute(self, tup: Tuple) -> None:
        for stream in self.streams:
            self.emit((tup[0],), stream=stream)


class Echo(Bolt):
    """Emits its value, followed by its text."""

    def __init__(self, *names: str) -> None:
        self.outputs = Fields(*names)

    def execute(self, tup: Tuple) -> None:
        self.emit((*tup.values, repr(tup.values)))


class Numbers(Spout):
    """Values of these names."""

    def __init__(self, *names: str) -> None:
        self.outputs = Fields(*(names or ("n",)))

    def next_tuple(self) -> None:
        raise AssertionError("a replay ran a spout")


def one_bolt(bolt: Bolt, parallelism: int = 1, **conf: object) -> Topology:
    """Numbers -> the bolt `it`."""
    builder = TopologyBuilder("one", conf={key.replace("__", "."): value for key, value in conf.items()})
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("it", bolt, parallelism=parallelism).shuffle_grouping("numbers")
    return builder.build()


class Picky(Bolt):
    """Raises for multiples of 5, fails multiples of 7 without a report."""

    outputs = Fields("n")

    def execute(self, tup: Tuple) -> None:
        if tup["n"] % 5 == 0:
            raise ValueError(f"{tup['n']} is a multiple of 5")
        if tup["n"] % 7 == 0:
            raise FailTuple("a multiple of 7")
        self.emit((tup["n"],))


class Keeping(Bolt):
    """A rich bolt: acks even numbers at once, fails multiples of 3 among the odd ones, and keeps the others."""

    outputs = Fields("n")
    auto_ack = False
    auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        if tup["n"] % 2 == 0:
            self.emit((tup["n"],), anchors=tup)
            self.ack(tup)
        elif tup["n"] % 3 == 0:
            self.fail(tup, "odd, and a multiple of 3")


class Pairs(Bolt):
    """A rich bolt that joins two tuples into one with both as anchors."""

    outputs = Fields("first", "second")
    auto_ack = False
    auto_anchor = False

    def prepare(self, context: Context) -> None:
        self.waiting: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if self.waiting is None:
            self.waiting = tup
            return
        self.emit((self.waiting[0], tup[0]), anchors=(self.waiting, tup))
        self.ack(self.waiting)
        self.ack(tup)
        self.waiting = None


class Rejects(Bolt):
    """Fails everything."""

    outputs = Fields("n")

    def execute(self, tup: Tuple) -> None:
        raise RuntimeError("rejected")


class Batches(BatchBolt):
    outputs = Fields("size", "total")
    batch_size = 4

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if any(tup["n"] < 0 for tup in tups):
            raise ValueError("a negative number")
        self.emit((len(tups), sum(tup["n"] for tup in tups)))


class Slow(Bolt):
    """Coroutines that end in a different order from their start."""

    outputs = Fields("n")
    max_concurrency = 7

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep((7 - tup["n"] % 7) / 1000)
        if tup["n"] % 10 == 9:
            raise ValueError("it ends in 9")
        self.emit((tup["n"],))


class Ticking(Bolt):
    """Emits the order of its calls."""

    outputs = Fields("what")
    tick_interval: float | None = 1.0

    def prepare(self, context: Context) -> None:
        self.emit(("prepare",))

    def execute(self, tup: Tuple) -> None:
        self.emit((f"execute {tup[0]}",))

    def tick(self) -> None:
        self.emit(("tick",))

    def end_of_input(self) -> None:
        self.emit(("end",))


class ToTask(Bolt):
    """Sends even numbers to the first task of `even`, odd ones to the first of `odd`, by name."""

    outputs = {"chosen": Stream(Fields("n"), direct=True)}

    def prepare(self, context: Context) -> None:
        self.tasks = context.tasks("even")[0], context.tasks("odd")[0]

    def execute(self, tup: Tuple) -> None:
        self.emit_direct(self.tasks[tup["n"] % 2], (tup["n"],), stream="chosen")


class Tagged(Bolt):
    """Its value, with the index of the task that got it."""

    outputs = Fields("n", "index")

    def prepare(self, context: Context) -> None:
        self.index = context.index

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0], self.index))


class ByRemainder(Grouping):
    """A number goes to the task of its remainder, and zero to no task."""

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.tasks = target_tasks

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        if values[0] < 0:
            raise ValueError("negative")
        return [self.tasks[values[0] % len(self.tasks)]] if values[0] else []


class Point:
    """A value of the user's own class."""

    def __init__(self, x: int) -> None:
        self.x = x


class Points(Bolt):
    outputs = Fields("point")

    def execute(self, tup: Tuple) -> None:
        if tup["n"] == 3:
            self.emit(((value for value in [1]),))  # a generator: it cannot be pickled
        else:
            self.emit((Point(tup["n"]),))


class OfPoint(Bolt):
    outputs = Fields("x")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["point"].x,))
