"""The cost of tuples by the shape of the topology, with each core: over two workers, acked, CURVE on.

- a rich bolt with two anchors: it holds a tuple until the next one arrives, emits one anchored to both and acks both;
- fan-out: a bolt emits a hundred tuples for each;
- a chain of ten bolts, each of which passes its tuples on;
- all grouping: each tuple goes to eight tasks.

Each tuple that a bolt executes counts; all bolts' emissions lead to some.

    python -m benchmarks shapes [--tuples 1000000] [--rounds 3]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks import flow
from benchmarks.flow import WARM
from topology_api import Context, Fields, Topology, TopologyBuilder, Tuple

FANNED = 100
LINKS = 10
COPIES = 8


class Numbers(flow.Rows):
    """Emits numbers."""

    outputs = Fields("number")

    def __init__(self, folder: str, count: int) -> None:
        super().__init__(folder, count, one_number)


def one_number(number: int) -> tuple[int]:
    """Return a row."""
    return (number,)


class Pairs(flow.Noted):
    """Emits the sum of two tuples, anchored to both."""

    outputs = Fields("number")
    auto_anchor = False
    auto_ack = False

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.held: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        held = self.held
        if held is None:
            self.held = tup
            return
        self.held = None
        self.emit((held["number"] + tup["number"],), anchors=(held, tup))
        self.ack(held)
        self.ack(tup)


class Fan(flow.Noted):
    """Emits a hundred tuples for each."""

    outputs = Fields("number")

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        for more in range(FANNED):
            self.emit((number + more,))


class Pass(flow.Noted):
    """Passes each tuple on."""

    outputs = Fields("number")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"],))


class Sink(flow.Noted):
    """Checks the values."""

    def execute(self, tup: Tuple) -> None:
        tup["number"]


class Shape(NamedTuple):
    """The bolts behind the spout "rows", how many tuples they execute for a number of rows, and for one row."""

    add: Callable[[TopologyBuilder, str], None]
    executed: Callable[[int], dict[str, int]]
    a_row: float


def add_pairs(builder: TopologyBuilder, folder: str) -> None:
    """Two by two."""
    builder.set_bolt("pairs", Pairs(folder)).shuffle_grouping("rows")
    builder.set_bolt("sink", Sink(folder)).shuffle_grouping("pairs")


def add_fan(builder: TopologyBuilder, folder: str) -> None:
    """One to a hundred, half of which cross."""
    builder.set_bolt("fan", Fan(folder), parallelism=2).shuffle_grouping("rows")
    builder.set_bolt("sink", Sink(folder), parallelism=2).shuffle_grouping("fan")


def add_chain(builder: TopologyBuilder, folder: str) -> None:
    """One behind another."""
    before = "rows"
    for name in link_names():
        builder.set_bolt(name, Pass(folder)).shuffle_grouping(before)
        before = name


def link_names() -> list[str]:
    """Return the bolts of the chain."""
    return [f"link-{number}" for number in range(1, LINKS + 1)]


def add_all(builder: TopologyBuilder, folder: str) -> None:
    """One to all eight."""
    builder.set_bolt("sink", Sink(folder), parallelism=COPIES).all_grouping("rows")


KINDS = {
    "rich bolt, two anchors": Shape(add_pairs, lambda rows: {"pairs": rows, "sink": rows // 2}, 1.5),
    "fan-out 1 to 100": Shape(add_fan, lambda rows: {"fan": rows, "sink": FANNED * rows}, FANNED + 1),
    "chain of 10 bolts": Shape(add_chain, lambda rows: dict.fromkeys(link_names(), rows), LINKS),
    "all grouping to 8": Shape(add_all, lambda rows: {"sink": COPIES * rows}, COPIES),
}


def measure(kind: str, tuples: int) -> dict[str, float]:
    """Return one run of about this many tuples."""
    shape = KINDS[kind]
    count = max(2, 2 * round(tuples / shape.a_row / 2))  # an even number: pairs

    def build(folder: str) -> Topology:
        builder = TopologyBuilder("shapes", conf={"topology.workers": 2})
        builder.set_spout("rows", Numbers(folder, count))
        shape.add(builder, folder)
        return builder.build()

    return flow.run(build, count, shape.executed(WARM + count))


def main() -> None:
    """Measure every shape with each core in turn, or one of them in a child process."""
    flow.main(__name__, __doc__, KINDS, measure, about="about ")
