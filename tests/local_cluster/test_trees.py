"""Trees of every shape are acked as soon as all their tuples are, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.gathering import (
    WAYS,
    Gather,
    Gathered,
    Rows,
    gathered,
    run,
)
from topology_api import Bolt, Context, Fields, TopologyBuilder, Tuple

__all__ = ["gathered"]


class Join(Bolt):
    """A rich bolt: waits for both halves of a number, emits their sum with both as anchors (one of them twice), acks both."""

    outputs = Fields("number", "sum")
    auto_ack = False
    auto_anchor = False

    def prepare(self, context: Context) -> None:
        self.halves: dict[int, Tuple] = {}

    def execute(self, tup: Tuple) -> None:
        number = tup[0]
        first = self.halves.pop(number, None)
        if first is None:
            self.halves[number] = tup
            return
        self.emit((number, first[1] + tup[1]), anchors=[first, tup, first])
        self.ack(tup)
        self.ack(first)


class Times(Bolt):
    """number, value -> number, value times a factor."""

    outputs = Fields("number", "value")

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0], tup[1] * self.factor))


@pytest.mark.parametrize("way", WAYS)
def test_a_diamond_whose_arms_meet_in_a_join_is_acked(way: dict[str, Any], gathered: Gathered) -> None:
    builder = TopologyBuilder("diamond")
    builder.set_spout("rows", Rows([(number, number) for number in range(50)], ("number", "value")))
    builder.set_bolt("left", Times(10), parallelism=2).shuffle_grouping("rows")
    builder.set_bolt("right", Times(100), parallelism=3).shuffle_grouping("rows")
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("left", "number").fields_grouping("right", "number")
    builder.set_bolt("gather", Gather()).global_grouping("join")
    status = run(builder.build(), **way)
    assert sorted(row for _, row in gathered["gather"]) == [(number, 110 * number) for number in range(50)]
    assert sorted(gathered["rows acked"]) == list(range(50))
    assert status.components["join"].acked == 100


class Failing(Gather):
    """Fails each tuple whose first value is in `bad`."""

    def __init__(self, *bad: Any) -> None:
        super().__init__()
        self.bad = bad

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup[0] in self.bad:
            raise ValueError(f"{tup[0]} is bad")


class SumOf(Bolt):
    """A rich bolt that adds up `size` tuples of any spouts and emits the sum with all of them as anchors."""

    outputs = Fields("sum")
    auto_ack = False
    auto_anchor = False

    def __init__(self, size: int) -> None:
        self.size = size

    def prepare(self, context: Context) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if len(self.kept) == self.size:
            self.emit((sum(kept[0] for kept in self.kept),), anchors=self.kept)
            for kept in self.kept:
                self.ack(kept)
            self.kept.clear()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [False, True])
def test_an_aggregate_acks_or_fails_the_trees_of_all_its_anchors_of_any_spout(
    bad: bool, way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("aggregate")
    builder.set_spout("one", Rows([(1,)] * 20), parallelism=2)
    builder.set_spout("two", Rows([(1,)] * 20))
    builder.set_bolt("sum", SumOf(40)).global_grouping("one").global_grouping("two")
    builder.set_bolt("all", Failing(*([40] if bad else [])), parallelism=3).all_grouping("sum")
    builder.set_bolt("other", Gather()).shuffle_grouping("sum")
    run(builder.build(), **way)
    settled = "failed" if bad else "acked"
    for spout in ("one", "two"):
        numbers = [entry[0] if bad else entry for entry in gathered[f"{spout} {settled}"]]
        assert sorted(numbers) == list(range(20))
        assert gathered[f"{spout} {'acked' if bad else 'failed'}"] == []
    assert len(gathered["all"]) == 3 and len(gathered["other"]) == 1


class Passes(Bolt):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


@pytest.mark.slow
def test_a_chain_of_1000_bolts_is_acked_and_ends_in_order(gathered: Gathered) -> None:
    builder = TopologyBuilder("deep")
    source: Any = builder.set_spout("rows", Rows([(number,) for number in range(20)]))
    for number in range(1000):
        source = builder.set_bolt(f"bolt{number}", Passes()).shuffle_grouping(source)
    builder.set_bolt("gather", Gather()).shuffle_grouping(source)
    status = run(builder.build())
    assert [row for _, row in gathered["gather"]] == [(number,) for number in range(20)]
    assert sorted(gathered["rows acked"]) == list(range(20))
    assert status.components["bolt999"].executed == 20


class CountsDown(Bolt):
    """Sends itself a tuple a thousand times, each anchored to the one before."""

    outputs = {"again": Fields("left"), "out": Fields("left")}

    def execute(self, tup: Tuple) -> None:
        left = tup[0]
        self.emit((left - 1,), stream="again" if left else "out")


@pytest.mark.parametrize("way", WAYS)
def test_1000_hops_round_a_cycle_are_acked(way: dict[str, Any], gathered: Gathered) -> None:
    builder = TopologyBuilder("hops")
    builder.set_spout("rows", Rows([(1000,)] * 5))
    declarer = builder.set_bolt("counts", CountsDown(), parallelism=3).shuffle_grouping("rows")
    declarer.shuffle_grouping("counts", stream="again")
    builder.set_bolt("gather", Gather()).shuffle_grouping("counts", stream="out")
    status = run(builder.build(), **way)
    assert sorted(gathered["rows acked"]) == list(range(5))
    assert len(gathered["gather"]) == 5
    assert status.components["counts"].executed == 5 * 1001


class FansOut(Bolt):
    outputs = Fields("child")

    def execute(self, tup: Tuple) -> None:
        for child in range(tup[0]):
            self.emit((child,))


class Bad(Bolt):
    """Fails one of many."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def execute(self, tup: Tuple) -> None:
        if tup[0] == self.bad:
            raise ValueError("the last one")


@pytest.mark.parametrize("bad", [-1, 99_999])
def test_a_tuple_with_100_000_children_is_acked_only_if_all_are(bad: int, gathered: Gathered) -> None:
    builder = TopologyBuilder("wide", {"topology.workers": 2})
    builder.set_spout("rows", Rows([(100_000,)]))
    builder.set_bolt("fans", FansOut()).shuffle_grouping("rows")
    builder.set_bolt("children", Bad(bad), parallelism=3).shuffle_grouping("fans")
    status = run(builder.build())
    assert gathered["rows acked"] == ([0] if bad < 0 else [])
    assert [number for number, _ in gathered["rows failed"]] == ([] if bad < 0 else [0])
    assert status.components["children"].executed == 100_000


class AcksLate(Bolt):
    """Acks its tuples in reverse order, at the tick after the last one; fails every seventh."""

    auto_ack = False
    tick_interval = 5.0

    def prepare(self, context: Context) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)

    def tick(self) -> None:
        while self.kept:
            tup = self.kept.pop()
            if tup[0] % 7 == 0:
                self.fail(tup, "every seventh")
            else:
                self.ack(tup)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bolt_may_ack_late_and_out_of_order(workers: int, gathered: Gathered) -> None:
    builder = TopologyBuilder("late", {"topology.workers": workers})
    builder.set_spout("rows", Rows([(number,) for number in range(50)]))
    builder.set_bolt("late", AcksLate(), parallelism=2).shuffle_grouping("rows")
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(4.9)
        assert cluster.status("late").components["rows"].pending == 50
        assert gathered["rows acked"] == []
        cluster.advance(0.2)
    assert sorted(gathered["rows acked"]) == [number for number in range(50) if number % 7]
    failed = dict(gathered["rows failed"])
    assert sorted(failed) == [number for number in range(50) if number % 7 == 0]
    assert {(failure.reason, failure.component, failure.error) for failure in failed.values()} == {
        ("failed", "late", "every seventh")
    }
