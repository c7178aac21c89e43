"""The cost of tuples by their values, with each core: from a spout in one worker to a bolt in the other, acked, CURVE on.

One text; five fields of different types; a dictionary; 1 KB of bytes; a numpy array of 1 KB. (`sizes.py` measures large values,
in GB/s.) The bolt compares every 256th row with the expected one.

    python -m benchmarks values [--tuples 1000000] [--rounds 3]
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks import flow
from benchmarks.flow import DIFFERENT, WARM
from topology_api import Context, Fields, Topology, TopologyBuilder, Tuple

KINDS = {
    "one text": ("text",),
    "five mixed fields": ("number", "share", "text", "flag", "data"),
    "a dictionary": ("values",),
    "1 KB of bytes": ("data",),
    "a numpy array of 1 KB": ("array",),
}
"""Kinds of rows, and their fields."""
LOOK = 256
"""The bolt compares every row whose number is a multiple of this."""


def row(kind: str, number: int) -> tuple[Any, ...]:
    """Return the row of a number, the same in every process."""
    source = random.Random(number)
    text = f"word-{source.randrange(10_000)}"
    if kind == "one text":
        return (text,)
    if kind == "five mixed fields":
        return number, source.random(), text, number % 2 == 0, source.randbytes(8)
    if kind == "a dictionary":
        return ({"id": number, "name": text, "share": source.random(), "tags": ["a", text], "none": None},)
    data = source.randbytes(1_000)
    if kind == "1 KB of bytes":
        return (data,)
    import numpy

    return (numpy.frombuffer(data, dtype=numpy.float64).copy(),)


class Maker:
    """Makes the rows of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, number: int) -> tuple[Any, ...]:
        return row(self.kind, number)


class Values(flow.Rows):
    """The rows of a kind."""

    def __init__(self, folder: str, count: int, kind: str) -> None:
        super().__init__(folder, count, Maker(kind))
        self.outputs = Fields(*KINDS[kind])


class Sink(flow.Noted):
    """Checks the values."""

    def __init__(self, folder: str, kind: str) -> None:
        super().__init__(folder)
        self.kind = kind
        self.first = KINDS[kind][0]

    def prepare(self, context: Context) -> None:
        self.number = 0
        row(self.kind, 0)  # numpy is imported before the CPU is counted
        super().prepare(context)

    def execute(self, tup: Tuple) -> None:
        got = tup[self.first]
        if self.number % LOOK == 0:
            wanted = row(self.kind, self.number % DIFFERENT)
            if type(got) is not type(wanted[0]) or repr(tuple(tup.values)) != repr(wanted):
                raise AssertionError(f"row {self.number} is {tup!r}, not {wanted!r}")
        self.number += 1


def measure(kind: str, count: int) -> dict[str, float]:
    """Return one run."""

    def build(folder: str) -> Topology:
        builder = TopologyBuilder("values", conf={"topology.workers": 2, "topology.on.error": "crash"})
        builder.set_spout("rows", Values(folder, count, kind))
        builder.set_bolt("sink", Sink(folder, kind)).shuffle_grouping("rows")
        return builder.build()

    return flow.run(build, count, {"sink": WARM + count})


def main() -> None:
    """Measure every kind with each core in turn, or one of them in a child process."""
    flow.main(__name__, __doc__, KINDS, measure)
