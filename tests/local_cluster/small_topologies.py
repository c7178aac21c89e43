"""Small components and topologies that the tests of the testing helpers share.

Must not know: single tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from local_cluster.testing import ScriptedSpout
from topology_api import (
    Bolt,
    Context,
    Failure,
    Fields,
    Hook,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)


class Lines(Spout):
    """Never finishes."""

    outputs = Fields("line")

    def next_tuple(self) -> None:
        self.emit(("never ending",), message_id=object)


class Idle(Spout):
    """Has no tuples, and never finishes."""

    outputs = Fields("line")

    def next_tuple(self) -> float:
        return 1000.0


class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup: Tuple) -> None:
        for word in tup["line"].split():
            self.emit((word,))


class Count(Bolt):
    outputs = Fields("word", "count")

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = count = self.counts.get(word, 0) + 1
        self.emit((word, count))


def word_count(lines: Spout | None = None, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", lines or Lines(), parallelism=parallelism)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=3).fields_grouping("split", "word")
    return builder.build()


def one_bolt(bolt: Bolt, script: Sequence[Any], **of_spout: Any) -> Topology:
    """A script (field "x") into one bolt."""
    spout = ScriptedSpout("x", script)
    vars(spout).update(of_spout)
    builder = TopologyBuilder("one-bolt")
    builder.set_spout("script", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("script")
    return builder.build()


class Unlucky(Bolt):
    """Emits the time of each try; raises for the values in its table as often as that says."""

    outputs = Fields("x", "at")

    def __init__(self, tries: dict[int, int]) -> None:
        self.tries = tries

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute(self, tup: Tuple) -> None:
        x = tup["x"]
        self.emit((x, self.now()))
        if self.tries.get(x, 0) > 0:
            self.tries[x] -= 1
            raise ValueError(f"unlucky {x}")


class Keeps(Bolt):
    """Never acks."""

    auto_ack = False

    def prepare(self, context: Context) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


class EventLog(Hook):
    """A task hook that records every event of every task in order."""

    events: ClassVar[list[str]] = []

    def emitted(self, task: int, stream: str, values: tuple[object, ...], targets: Sequence[int]) -> None:
        self.events.append(f"{task} emitted {values} to {list(targets)}")

    def executing(self, tup: Tuple) -> None:
        self.events.append(f"executing {tup}")

    def executed(self, tup: Tuple) -> None:
        self.events.append(f"executed {tup}")

    def acked(self, tup: Tuple) -> None:
        self.events.append(f"acked {tup}")

    def failed(self, tup: Tuple, failure: Failure) -> None:
        self.events.append(f"failed {tup}: {failure}")

    def spout_acked(self, message_id: object) -> None:
        self.events.append(f"spout acked {message_id}")

    def spout_failed(self, message_id: object, failure: Failure) -> None:
        self.events.append(f"spout failed {message_id}: {failure}")
