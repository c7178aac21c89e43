"""Topologies of any shape whose bolts do not depend on the order of arrival: their emissions are the same however they are run.

A module of its own, so that other processes can import the bolts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from tests.squall_io.replay_topologies import ByRemainder, Numbers
from topology_api import BatchBolt, Bolt, Fields, Topology, TopologyBuilder, Tuple


class Passes(Bolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0] + 1,))
        if tup[0] % 2:
            self.emit((tup[0],), stream="odd")


class Doubles(Bolt):
    """Two of each, through a rich bolt."""

    outputs = {"default": Fields("n"), "odd": Fields("n")}
    auto_ack = False
    auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],), anchors=tup)
        self.emit((tup[0] * 2,), anchors=(tup, tup))
        if tup[0] % 2:
            self.emit((tup[0],), anchors=tup, stream="odd")
        self.ack(tup)


class InBatches(BatchBolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}
    batch_size = 3

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup[0] + 3,), stream="odd" if tup[0] % 2 else "default")


class Awaits(Bolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        self.emit((tup[0] - 1,), stream="odd" if tup[0] % 2 else "default")


class Sums(Bolt):
    """A state per key, emitted at the end: equal keys must meet."""

    outputs = {"default": Fields("n"), "odd": Fields("n")}

    def prepare(self, context: Any) -> None:
        self.counts: Counter[int] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup[0]] += 1

    def end_of_input(self) -> None:
        for key, count in self.counts.items():
            self.emit((key * 100 + count,))
            self.emit((count,), stream="odd")


class ByAnyRemainder(ByRemainder):
    """By remainder too, and accepts negative numbers as well."""

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        return super().choose((abs(values[0]),))


SIMPLE = (Passes, Doubles, InBatches, Awaits)
GROUPINGS = ("shuffle", "fields", "partial_key", "all", "global", "none", "local_or_shuffle", "custom")

#: Each bolt: its class, its tasks, and its inputs: how far before it they are, whether it is their stream `odd`, and the
#: grouping.
Shape: TypeAlias = Sequence[tuple[type[Bolt], int, Sequence[tuple[int, bool, str]]]]


def build(shape: Shape) -> Topology:
    """The topology of a shape: bolt `i` reads the spout or bolts before it."""
    builder = TopologyBuilder("random")
    builder.set_spout("numbers", Numbers())
    for place, (kind, tasks, inputs) in enumerate(shape):
        declared = builder.set_bolt(f"bolt{place}", kind(), parallelism=tasks)
        seen = set()
        for back, odd, grouping in inputs:
            source = f"bolt{place - 1 - back}" if back < place else "numbers"
            stream = "odd" if odd and source != "numbers" else "default"
            if (source, stream) in seen:
                continue
            seen.add((source, stream))
            if kind is Sums and grouping not in ("all", "global"):
                grouping = "fields"
            if grouping in ("fields", "partial_key"):
                getattr(declared, f"{grouping}_grouping")(source, "n", stream=stream)
            elif grouping == "custom":
                declared.custom_grouping(source, ByAnyRemainder(), stream=stream)
            else:
                getattr(declared, f"{grouping}_grouping")(source, stream=stream)
    return builder.build()


def streams_of(shape: Shape) -> list[str]:
    """All emissions of a shape's bolts, as a replay names them."""
    return [f"bolt{place}:{name}" for place in range(len(shape)) for name in ("default", "odd")]
