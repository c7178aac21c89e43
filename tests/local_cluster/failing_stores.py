"""Bolts of every kind that write to a store which fails, and topologies of them.

Must not know: single tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from local_cluster.complete import Completed
from local_cluster.testing import complete_topology
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)

WAIT: dict[str, object] = {"topology.on.outage": "wait"}
#: Whether a call for this value may succeed at this time (simulated seconds since the start).
Works = Callable[[Any, float], bool]


class Away(Exception):
    """The store does not answer."""


class Store:
    """What all bolts here write to."""

    def __init__(self, works: Works) -> None:
        self.works = works

    def write(self, value: Any, context: Context) -> None:
        if not self.works(value, context.now()):
            raise Away(f"no answer to {value}")


class Writes(Bolt):
    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        self.store.write(tup[0], self.context)


class WritesInAThread(Writes):
    threaded = True


class WritesAndAcks(Writes):
    """A rich bolt."""

    auto_ack = auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        try:
            self.store.write(tup[0], self.context)
        except Away as error:
            self.fail(tup, str(error))
        else:
            self.ack(tup)


class WritesLater(Writes):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.01)
        self.store.write(tup[0], self.context)


class WritesBatches(BatchBolt):
    batch_size = 50
    batch_interval = 0.2

    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.store.write(tup[0], self.context)


class WritesBatchesOneByOne(WritesBatches):
    """Fails single tuples of its batches, and returns."""

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            try:
                self.store.write(tup[0], self.context)
            except Away as error:
                self.fail(tup, str(error))


class WritesRichBatches(WritesBatches):
    """Acks by itself, after its batch was written."""

    auto_ack = False

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        super().execute_batch(tups)
        for tup in tups:
            self.ack(tup)


KINDS = [
    Writes,
    WritesInAThread,
    WritesAndAcks,
    WritesLater,
    WritesBatches,
    WritesBatchesOneByOne,
    WritesRichBatches,
]
#: For outages of which a longer one is tried with each kind.
FEW_KINDS = [
    kind if kind in (Writes, WritesLater, WritesRichBatches) else pytest.param(kind, marks=pytest.mark.soak)
    for kind in KINDS
]
#: For what is tried with `FEW_KINDS` without state too.
ONE_KIND = [
    kind if kind is WritesRichBatches else pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS
]


class Source(Spout):
    """Emits 0 … count-1, one each `every` seconds; the message ids are the values."""

    outputs = Fields("value")

    def __init__(self, count: int, every: float, replay: Replay) -> None:
        self.left = list(range(count - 1, -1, -1))
        self.every = every
        self.replay = replay

    def next_tuple(self) -> float:
        if self.left:
            value = self.left.pop()
            self.emit((value,), message_id=value)
        if not self.left:
            self.finish()
        return self.every


def writing(
    bolt: Any,
    count: int,
    every: float,
    replay: Replay | None = None,
    tasks: int = 1,
    pending: int | None = 1000,
) -> Topology:
    builder = TopologyBuilder("orders", conf={"topology.max.spout.pending": pending})
    builder.set_spout("source", Source(count, every, replay or Replay()))
    builder.set_bolt("store", bolt, parallelism=tasks).shuffle_grouping("source")
    return builder.build()


def run(kind: Any, works: Works, count: int, every: float, **more: Any) -> Completed:
    return complete_topology(writing(kind(Store(works)), count, every, **more), conf=WAIT)


def away(since: float, until: float) -> Works:
    return lambda _, now: not since <= now < until


#: The calls of `Recorded` stores, and batches. Bolts are pickled with their tests' own lists, but not with those of modules.
CALLS: list[tuple[Any, float]] = []


class Recorded(Store):
    def write(self, value: Any, context: Context) -> None:
        CALLS.append((value, context.now()))
        super().write(value, context)


class Picky(Store):
    """Refuses the value 30 for good."""

    def write(self, value: Any, context: Context) -> None:
        if value == 30:
            raise FailTuple("30 is refused")
        super().write(value, context)


class WritesBatchesPickily(WritesBatches):
    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            if tup[0] == 30:
                self.fail(tup, FailTuple("30 is refused"))
        super().execute_batch([tup for tup in tups if tup[0] != 30])


class BreaksForAWhile(Store):
    """Fails for the first task from second 5 to second 65."""

    def write(self, value: Any, context: Context) -> None:
        if context.index == 0 and 5.0 <= context.now() < 65.0:
            raise Away(f"no answer to {value}")


class EmitsAndFails(Writes):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        for _ in range(20):
            self.emit(tup.values)
        self.store.write(tup[0], self.context)
