"""An emit that exceeds the interpreter's recursion limit emits completely or not at all: columns stay equally long, no tree
half open.

Recursion is the one error that any call inside an emit can raise, and users do catch it. These tests run with either core, and
without observers, so that the shortest path of each core is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from local_cluster import LocalCluster, TopologyStatus
from topology_api import Bolt, Fields, Spout, Topology, TopologyBuilder, Tuple

pytestmark = pytest.mark.slow

#: The findings of components, which are pickled by reference, so running instances write here too.
FOUND: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_found() -> None:
    FOUND.clear()


def run(topology: Topology) -> TopologyStatus:
    """Run a topology to its end on simulated time."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology)
        for _ in range(100):
            cluster.advance(1.0)
            if cluster.status(topology.name).state == "COMPLETED":
                break
        return cluster.status(topology.name)


class Sees(Bolt):
    """Records its tuples."""

    def execute(self, tup: Tuple) -> None:
        FOUND.append(("sink", tup["a"]))


class CountsItsEmissions(Spout):
    outputs = Fields("a")

    def open(self, context: object) -> None:
        self.emissions = 0

    def next_tuple(self) -> None:
        if self.emissions == 5:
            self.finish()
        else:
            self.emit((self.emissions,))

    def emit(self, values: Sequence[object], **options: Any) -> None:
        self.emissions += 1
        super().emit(values, message_id=self.emissions, **options)

    def ack(self, message_id: object) -> None:
        FOUND.append(message_id)


def bolt_and_sink(bolt: Bolt) -> TopologyBuilder:
    builder = TopologyBuilder("two-bolts")
    builder.set_spout("source", CountsItsEmissions())
    builder.set_bolt("bolt", bolt).shuffle_grouping("source")
    builder.set_bolt("sink", Sees()).shuffle_grouping("bolt")
    return builder


class EmitsAtTheBottom(Bolt):
    """Emits with almost no depth left, at each of the last levels, until an emit is refused."""

    outputs = Fields("a")
    levels = 40

    def execute(self, tup: Tuple) -> None:
        frame: FrameType | None = sys._getframe()
        depth = 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        for slack in range(self.levels):
            self.down(sys.getrecursionlimit() - depth - slack - 1, slack)

    def down(self, levels: int, slack: int) -> None:
        try:
            if levels > 0:
                self.down(levels - 1, slack)
                return
        except RecursionError:
            return
        try:
            for number in range(1100):  # more than a block of edges
                self.emit((number,))
                FOUND.append(("emitted", number))
        except RecursionError:
            return


@pytest.mark.slow
def test_an_emit_that_runs_out_of_depth_leaves_nothing_half_done() -> None:
    done = run(bolt_and_sink(EmitsAtTheBottom()).build())
    emitted = [entry[1] for entry in FOUND if isinstance(entry, tuple) and entry[0] == "emitted"]
    seen = [entry[1] for entry in FOUND if isinstance(entry, tuple) and entry[0] == "sink"]
    assert sorted(emitted) == sorted(seen) and len(seen) > 5 * 1100
    assert (done.state, [entry for entry in FOUND if isinstance(entry, int)]) == (
        "COMPLETED",
        [1, 2, 3, 4, 5],
    )
    assert not done.errors


class EmitsTrackedAtTheBottom(Spout):
    """Like `EmitsAtTheBottom`, for trees."""

    outputs = Fields("a")
    replay = None
    levels = 40

    def open(self, context: object) -> None:
        self.left = 3

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        self.left -= 1
        EmitsAtTheBottom.execute(self, None)  # type: ignore[arg-type]
        return None

    down = EmitsAtTheBottom.down

    def emit(self, values: Sequence[object], **options: Any) -> None:
        super().emit(values, message_id="id")


@pytest.mark.slow
def test_a_tree_that_runs_out_of_depth_is_emitted_or_not() -> None:
    builder = TopologyBuilder("deep-trees", {"topology.max.spout.pending": None})
    builder.set_spout("source", EmitsTrackedAtTheBottom())
    builder.set_bolt("sink", Sees()).shuffle_grouping("source")
    done = run(builder.build())
    seen = [entry for entry in FOUND if isinstance(entry, tuple) and entry[0] == "sink"]
    assert done.state == "COMPLETED" and not done.errors
    emitted = [entry for entry in FOUND if isinstance(entry, tuple) and entry[0] == "emitted"]
    counts = done.components["source"]
    assert (counts.acked, counts.failed, counts.pending) == (len(emitted), 0, 0)
    assert len(seen) >= len(emitted) > 1000  # a refused one may be seen, untracked
