"""Cycles of bolts complete once they are quiet, not earlier, and always: tracked or not, in one worker or over several."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.gathering import (
    GATHERED,
    WAYS,
    Gather,
    Gathered,
    Rows,
    advance_to_the_end,
    gathered,
    run,
)
from topology_api import BatchBolt, Bolt, Context, Fields, Topology, TopologyBuilder, Tuple

__all__ = ["gathered"]

PAIR = Fields("number", "hops")


class Around(Bolt):
    """Sends a tuple round again until its hops are used up, then out. Emits once more at its end of input."""

    outputs = {"again": PAIR, "out": PAIR}

    def __init__(self, more_at_the_end: int = 0) -> None:
        self.more_at_the_end = more_at_the_end

    def prepare(self, context: Context) -> None:
        self.name = context.component
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        number, hops = tup.values
        self.emit((number, hops - 1), stream="again" if hops > 0 else "out")

    def end_of_input(self) -> None:
        GATHERED.add(f"{self.name} ended", self.seen)
        if self.more_at_the_end:
            self.emit(("end", self.more_at_the_end), stream="again")


class AroundInBatches(BatchBolt):
    """The same in batches, which only the end of the cycle or a waiting spout can hurry."""

    outputs = {"again": PAIR, "out": PAIR}
    batch_size = 1000
    batch_interval = 3600.0

    def __init__(self, more_at_the_end: int = 0) -> None:
        self.more_at_the_end = more_at_the_end

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            number, hops = tup.values
            self.emit((number, hops - 1), anchors=tup, stream="again" if hops > 0 else "out")


def rows(count: int, hops: int) -> list[tuple[int, int]]:
    """This many tuples, each with a number of hops."""
    return [(number, hops) for number in range(count)]


def self_loop(spout: Rows, bolt: Bolt | BatchBolt, tasks: int = 2) -> Topology:
    """spout -> bolt -> itself, and out."""
    builder = TopologyBuilder("self-loop")
    builder.set_spout("rows", spout)
    declarer = builder.set_bolt("around", bolt, parallelism=tasks).shuffle_grouping("rows")
    declarer.shuffle_grouping("around", stream="again")
    builder.set_bolt("gather", Gather()).shuffle_grouping("around", stream="out")
    return builder.build()


def two_bolts(spout: Rows, first: Bolt | BatchBolt, second: Bolt | BatchBolt) -> Topology:
    """spout -> "first" <-> "second", and out of both."""
    builder = TopologyBuilder("two-bolts")
    builder.set_spout("rows", spout)
    declarer = builder.set_bolt("first", first, parallelism=2).shuffle_grouping("rows")
    declarer.fields_grouping("second", "number", stream="again")
    builder.set_bolt("second", second, parallelism=3).shuffle_grouping("first", stream="again")
    gather = builder.set_bolt("gather", Gather())
    gather.shuffle_grouping("first", stream="out").shuffle_grouping("second", stream="out")
    return builder.build()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_bolt_that_feeds_itself_completes(tracked: bool, way: dict[str, Any], gathered: Gathered) -> None:
    status = run(self_loop(Rows(rows(40, 9), PAIR, tracked=tracked), Around()), **way)
    assert sorted(row for _, row in gathered["gather"]) == [(number, -1) for number in range(40)]
    assert sum(gathered["around ended"]) == 400
    assert status.components["around"].executed == 400
    assert sorted(gathered["rows acked"]) == (list(range(40)) if tracked else [])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_cycle_of_two_bolts_completes(tracked: bool, way: dict[str, Any], gathered: Gathered) -> None:
    status = run(two_bolts(Rows(rows(40, 9), PAIR, tracked=tracked), Around(), Around()), **way)
    assert sorted(row for _, row in gathered["gather"]) == [(number, -1) for number in range(40)]
    assert sum(gathered["first ended"]) == sum(gathered["second ended"]) == 200
    assert status.components["rows"].acked == (40 if tracked else 0)


@pytest.mark.parametrize("way", WAYS)
def test_emissions_of_end_of_input_into_the_cycle_are_processed(
    way: dict[str, Any], gathered: Gathered
) -> None:
    run(two_bolts(Rows(rows(10, 3), PAIR), Around(more_at_the_end=4), Around(more_at_the_end=7)), **way)
    out = Counter(row[0] for _, row in gathered["gather"])
    assert out == Counter({"end": 5} | dict.fromkeys(range(10), 1))
    assert [len(gathered[f"{name} ended"]) for name in ("first", "second", "gather")] == [2, 3, 1]
    assert gathered["gather had"] == [15]


class SlowlyAround(Around):
    """Takes half a second for each tuple, without keeping the loop busy."""

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.5)
        super().execute(tup)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_end_marks_leave_a_cycle_only_when_it_is_quiet_again(workers: int, gathered: Gathered) -> None:
    topology = two_bolts(Rows(rows(10, 2), PAIR), SlowlyAround(more_at_the_end=4), SlowlyAround())
    run(topology, encode=True, conf={"topology.workers": workers})
    assert gathered["gather had"] == [12]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_batch_bolt_in_a_cycle_does_not_keep_the_last_tuples(
    tracked: bool, way: dict[str, Any], gathered: Gathered
) -> None:
    spout = Rows(rows(25, 5), PAIR, tracked=tracked)
    run(two_bolts(spout, Around(more_at_the_end=3), AroundInBatches(more_at_the_end=2)), **way)
    out = Counter(row[0] for _, row in gathered["gather"])
    assert out == Counter({"end": 2} | dict.fromkeys(range(25), 1))
    assert sorted(gathered["rows acked"]) == (list(range(25)) if tracked else [])


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_bolt_that_feeds_itself_completes(way: dict[str, Any], gathered: Gathered) -> None:
    status = run(self_loop(Rows(rows(30, 4), PAIR), AroundInBatches()), **way)
    assert len(gathered["gather"]) == 30
    assert status.components["around"].executed == 150


@pytest.mark.parametrize("way", WAYS)
def test_a_cycle_behind_a_cycle_ends_after_it(way: dict[str, Any], gathered: Gathered) -> None:
    builder = TopologyBuilder("two-cycles")
    builder.set_spout("rows", Rows(rows(20, 6), PAIR))
    builder.set_bolt("one", Around(2), parallelism=2).shuffle_grouping("rows").shuffle_grouping(
        "one", stream="again"
    )
    builder.set_bolt("add", Adds()).shuffle_grouping("one", stream="out")
    builder.set_bolt("two", Around(), parallelism=2).shuffle_grouping("add").shuffle_grouping(
        "two", stream="again"
    )
    builder.set_bolt("gather", Gather()).shuffle_grouping("two", stream="out")
    run(builder.build(), **way)
    assert len(gathered["gather"]) == 22 and gathered["gather had"] == [22]
    order = [name for name in gathered.lists if name.endswith(" ended")]
    assert order == ["one ended", "two ended", "gather ended"]
    assert sum(gathered["one ended"]) == 140 and sum(gathered["two ended"]) == 22 * 4


class Adds(Bolt):
    """Gives each tuple three more hops."""

    outputs = PAIR

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"], 3))


class Lambdas(Around):
    """Sends a value round that no codec can encode, for odd numbers."""

    def execute(self, tup: Tuple) -> None:
        number, hops = tup.values
        if hops == 0:
            self.emit((number, hops), stream="out")
        else:
            value = (lambda: 1) if number % 2 else number
            self.emit((value, hops - 1), stream="again")


@pytest.mark.parametrize("tracked", [True, False])
def test_a_cycle_completes_though_some_values_cannot_be_sent(tracked: bool, gathered: Gathered) -> None:
    builder = TopologyBuilder("unpicklable", {"topology.workers": 2})
    builder.set_spout("rows", Rows(rows(20, 1), PAIR, tracked=tracked))
    one = builder.set_bolt("one", Lambdas()).shuffle_grouping("rows")
    one.shuffle_grouping("two", stream="again")
    builder.set_bolt("two", Lambdas()).shuffle_grouping("one", stream="again")
    builder.set_bolt("gather", Gather()).global_grouping("one", stream="out").global_grouping(
        "two", stream="out"
    )
    status = run(builder.build(), encode=True)
    assert sorted(row[0] for _, row in gathered["gather"]) == list(range(0, 20, 2))
    assert status.components["rows"].failed == (10 if tracked else 0)
    assert status.components["rows"].pending == 0
    assert status.components["one"].errors == 10
    assert "'number'" in status.errors[-1].text and "one[" in status.errors[-1].render()


class TicksAround(Around):
    """Emits into its cycle at each tick, for ever."""

    tick_interval = 0.1

    def tick(self) -> None:
        self.emit(("tick", 2), stream="again")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_cycle_with_ticks_completes(workers: int, gathered: Gathered) -> None:
    topology = self_loop(Rows(rows(5, 3), PAIR), TicksAround())
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(topology, {"topology.workers": workers})
        advance_to_the_end(cluster, "self-loop")
        assert cluster.status("self-loop").state == "COMPLETED"
    assert sum(row[0] != "tick" for _, row in gathered["gather"]) == 5


class SlowAround(Around):
    """Holds the spout's last tuple for a long time, then sends it round."""

    auto_ack = False
    auto_anchor = False
    tick_interval = 10.0

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        if tup.component == "rows":
            self.kept.append(tup)
        else:
            self.emit(tup.values, anchors=tup, stream="out")
            self.ack(tup)

    def tick(self) -> None:
        for tup in self.kept:
            self.emit(tup.values, anchors=tup, stream="again")
            self.ack(tup)
        self.kept.clear()


def test_a_tracked_tuple_held_by_a_rich_bolt_keeps_the_cycle_open(gathered: Gathered) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(self_loop(Rows(rows(3, 0), PAIR), SlowAround(), tasks=1))
        cluster.advance(9.9)
        assert gathered["around ended"] == [] and cluster.status("self-loop").state == "ACTIVE"
        cluster.advance(0.2)
        assert cluster.status("self-loop").state == "COMPLETED"
    assert gathered["around ended"] == [6] and len(gathered["gather"]) == 3
