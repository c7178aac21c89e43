"""Words that go around a cycle of bolts, a number of rounds each, and what is counted there."""

from __future__ import annotations

from collections import Counter

from local_cluster import LocalCluster
from tests.local_cluster.words_with_state import WORDS, Newest
from topology_api import (
    Bolt,
    Context,
    Fields,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)


class Around(StatefulBolt):
    """Sends each word around as often as its number says, and counts each round."""

    key = ("word",)
    outputs = {
        "default": Fields("word", "times"),
        "again": Fields("word", "number", "left"),
    }
    rounds = ValueState(int, default=0)
    left = ValueState(int, default=0)

    def __init__(self, failing: float = 0.0, poison: int | None = None) -> None:
        self.failing, self.poison = failing, poison

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        self.rounds.value += 1
        left = tup["left"] if "left" in tup.fields else rounds_of(tup["number"])
        if left:
            self.emit((tup["word"], tup["number"], left - 1), stream="again")
        else:
            self.left.value += 1
            self.emit((tup["word"], self.left.value))
        if self.random.random() < self.failing or (tup["number"] == self.poison and left == 1):
            raise ValueError(f"round {self.rounds.value}")


class Back(Bolt):
    """The other bolt of a cycle."""

    outputs = {"again": Fields("word", "number", "left")}

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values, stream="again")


def rounds_of(number: int) -> int:
    return number % 7


def around(spout: Spout, bolt: Bolt, parallelism: int, through: bool) -> Topology:
    """`through`: the cycle has a second bolt."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    declarer = builder.set_bolt("around", bolt, parallelism).fields_grouping("words", "word")
    declarer.fields_grouping("back" if through else "around", "word", stream="again")
    if through:
        builder.set_bolt("back", Back(), parallelism).shuffle_grouping("around", stream="again")
    builder.set_bolt("newest", Newest()).fields_grouping("around", "word")
    return builder.build()


def visits(cluster: LocalCluster) -> dict[str, tuple[int, int, int]]:
    """Of each word: the rounds, how many tuples have left, and how many came out."""
    found = {}
    for word in sorted(set(WORDS)):
        at, newest = (cluster.state("words", component, word) for component in ("around", "newest"))
        found[word] = at["rounds"], at["left"], newest["seen"]
    return found


def wanted_visits(count: int, copies: int = 1) -> dict[str, tuple[int, int, int]]:
    rounds: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for number in range(count):
        word = WORDS[number % len(WORDS)]
        rounds[word] += copies * (1 + rounds_of(number))
        times[word] += copies
    return {word: (rounds[word], times[word], times[word]) for word in sorted(set(WORDS))}
