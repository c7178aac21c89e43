"""Completion: a topology whose spouts have finished is completed as soon as everything has been processed, and not before."""

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
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Fields,
    Replay,
    Spout,
    TopologyBuilder,
    Tuple,
)

__all__ = ["gathered"]

NUMBERS = [(number,) for number in range(100)]


class GatherBatches(BatchBolt):
    """Records the sizes of its batches, passes their tuples on, and emits their number at the end."""

    outputs = Fields("value")
    batch_interval = 3600.0

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def prepare(self, context: Context) -> None:
        self.name = context.component
        self.seen = 0

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        self.seen += len(tups)
        GATHERED.add(f"{self.name} sizes", len(tups))
        for tup in tups:
            self.emit(tup.values, anchors=tup)

    def end_of_input(self) -> None:
        GATHERED.add(f"{self.name} ended", self.seen)


class Sums(Gather):
    """Emits its sum at the end of the input, and the sums that it received."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.sum = 0

    def execute(self, tup: Tuple) -> None:
        self.sum += tup["value"]

    def end_of_input(self) -> None:
        super().end_of_input()
        self.emit((self.sum,))


@pytest.mark.parametrize("way", WAYS)
def test_a_source_without_message_ids_completes_only_when_its_tuples_were_executed(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("untracked")
    builder.set_spout("rows", Rows(NUMBERS, tracked=False), parallelism=2)
    builder.set_bolt("pass", Gather("value"), parallelism=3).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather(), parallelism=2).fields_grouping("pass", "value")
    status = run(builder.build(), **way)
    assert sorted(row for _, row in gathered["gather"]) == NUMBERS
    assert status.state == "COMPLETED"
    assert status.components["rows"].acked == 0 and gathered["rows acked"] == []


@pytest.mark.parametrize("way", WAYS)
def test_with_acking_off_every_message_id_is_acked_and_all_tuples_are_executed(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("acking-off", {"topology.acking": False})
    builder.set_spout("rows", Rows(NUMBERS), parallelism=2)
    builder.set_bolt("pass", Gather("value"), parallelism=3).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).global_grouping("pass")
    status = run(builder.build(), **way)
    assert sorted(row for _, row in gathered["gather"]) == NUMBERS
    assert sorted(gathered["rows acked"]) == list(range(100))
    assert status.components["rows"].acked == 100 and status.components["rows"].pending == 0


@pytest.mark.parametrize("way", WAYS)
def test_end_of_input_follows_the_order_of_the_streams_and_may_emit(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("sums")
    builder.set_spout("rows", Rows(NUMBERS), parallelism=2)
    source = "rows"
    for number in range(1, 5):
        declarer = builder.set_bolt(f"sums{number}", Sums("value"), parallelism=3 if number < 4 else 1)
        declarer.shuffle_grouping(source)
        source = f"sums{number}"
    builder.set_bolt("gather", Gather()).shuffle_grouping(source)
    run(builder.build(), **way)
    assert [row for _, row in gathered["gather"]] == [(sum(range(100)),)]
    order = [name for name in gathered.lists if name.endswith(" ended")]
    assert order == ["sums1 ended", "sums2 ended", "sums3 ended", "sums4 ended", "gather ended"]
    assert [len(gathered[name]) for name in order] == [3, 3, 3, 1, 1]


class EndsAfter(Bolt):
    """Checks at its end of input that all tuples of both its sources have come, including those that their ends emitted."""

    def prepare(self, context: Context) -> None:
        self.seen: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.seen[tup.component] += 1

    def end_of_input(self) -> None:
        GATHERED.add("end", dict(self.seen))


class EmitsAtTheEnd(Gather):
    """Passes tuples on and emits ten more at the end of the input."""

    def end_of_input(self) -> None:
        for number in range(10):
            self.emit((number,))


@pytest.mark.parametrize("way", WAYS)
def test_a_bolt_with_a_short_and_a_long_way_to_its_source_ends_after_both(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("two-ways")
    builder.set_spout("rows", Rows(NUMBERS))
    builder.set_bolt("one", EmitsAtTheEnd("value")).shuffle_grouping("rows")
    builder.set_bolt("two", EmitsAtTheEnd("value"), parallelism=2).shuffle_grouping("one")
    builder.set_bolt("last", EndsAfter()).shuffle_grouping("rows").shuffle_grouping("two")
    run(builder.build(), **way)
    assert gathered["end"] == [{"rows": 100, "two": 130}]


class EmitsMuchAtTheEnd(Gather):
    """Emits more at the end of the input than any queue holds."""

    def execute(self, tup: Tuple) -> None:
        pass

    def end_of_input(self) -> None:
        for number in range(3000):
            self.emit((number,))


@pytest.mark.parametrize("way", WAYS)
def test_an_end_mark_waits_for_tuples_that_do_not_fit_into_the_queues(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("much", {"topology.queue.size": 16})
    builder.set_spout("rows", Rows([("a",)]))
    builder.set_bolt("much", EmitsMuchAtTheEnd("value")).shuffle_grouping("rows")
    builder.set_bolt("pass", Gather("value"), parallelism=2).shuffle_grouping("much")
    builder.set_bolt("gather", Gather()).shuffle_grouping("pass")
    run(builder.build(), **way)
    assert gathered["pass had"] == [1500, 1500]
    assert gathered["gather had"] == [3000]


class Slowly(Gather):
    """Takes a tenth of a second for each tuple, without keeping the loop busy."""

    max_concurrency = 10

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.1)
        super().execute(tup)


def test_an_end_mark_waits_for_a_slow_reader(gathered: Gathered) -> None:
    builder = TopologyBuilder("slow", {"topology.queue.size": 16})
    builder.set_spout("rows", Rows([("a",)]))
    builder.set_bolt("much", EmitsMuchAtTheEnd("value")).shuffle_grouping("rows")
    builder.set_bolt("slow", Slowly("value"), parallelism=2).shuffle_grouping("much")
    builder.set_bolt("gather", Gather()).shuffle_grouping("slow")
    run(builder.build(), conf={"topology.workers": 2}, encode=True)
    assert gathered["slow had"] == [1500, 1500]
    assert gathered["gather had"] == [3000]


@pytest.mark.parametrize("size", [7, 100, 10_000])
@pytest.mark.parametrize("tracked", [True, False])
def test_batch_bolts_execute_a_partial_batch_at_the_end_of_the_input(
    tracked: bool, size: int, gathered: Gathered
) -> None:
    builder = TopologyBuilder("batches", {"topology.workers": 2})
    builder.set_spout("rows", Rows(NUMBERS, tracked=tracked))
    builder.set_bolt("first", GatherBatches(size)).shuffle_grouping("rows")
    builder.set_bolt("second", GatherBatches(size), parallelism=2).shuffle_grouping("first")
    builder.set_bolt("gather", Gather()).global_grouping("second")
    run(builder.build(), encode=True, timeout=5)
    assert sorted(row for _, row in gathered["gather"]) == NUMBERS
    assert gathered["first ended"] == [100] and sum(gathered["second ended"]) == 100
    assert max(gathered["first sizes"]) <= size
    if tracked:
        assert sorted(gathered["rows acked"]) == list(range(100))


class Ticks(Gather):
    """Emits its number of tuples so far at each tick."""

    tick_interval = 0.1

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1

    def tick(self) -> None:
        GATHERED.add("tick", self.seen)
        self.emit((self.seen,))


@pytest.mark.parametrize("workers", [1, 2])
def test_ticks_do_not_keep_a_topology_from_completing_and_end_with_the_input(
    workers: int, gathered: Gathered
) -> None:
    builder = TopologyBuilder("ticks", {"topology.workers": workers})
    builder.set_spout("rows", SlowRows([(number,) for number in range(10)]))
    builder.set_bolt("ticks", Ticks("value")).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("ticks")
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(builder.build())
        advance_to_the_end(cluster, "ticks")
        assert cluster.status("ticks").state == "COMPLETED"
        ticks = gathered["tick"]
        cluster.advance(10)
    assert gathered["tick"] == ticks and len(ticks) >= 40
    assert [row[0] for _, row in gathered["gather"]] == ticks


class SlowRows(Rows):
    """One row each half second."""

    def next_tuple(self) -> float | None:  # type: ignore[override]
        if not self.left:
            self.finish()
            return None
        number, row = self.left.pop()
        self.emit(row, message_id=number)
        return 0.5


class FailsFirst(Gather):
    """Fails each tuple the first time."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.tried: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        if tup.values not in self.tried:
            self.tried.add(tup.values)
            raise ValueError("not yet")
        super().execute(tup)


def test_a_waiting_replay_keeps_the_topology_from_completing(gathered: Gathered) -> None:
    builder = TopologyBuilder("replays")
    replay = Replay(first_delay=30.0)
    builder.set_spout("rows", Rows([(number,) for number in range(5)], replay=replay))
    builder.set_bolt("gather", FailsFirst()).shuffle_grouping("rows")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(29)
        status = cluster.status("replays")
        assert status.state == "ACTIVE" and status.components["rows"].pending == 5
        assert gathered["gather ended"] == []
        cluster.advance(2)
        assert cluster.status("replays").state == "COMPLETED"
    assert len(gathered["gather"]) == 5 and len(gathered["gather ended"]) == 1
    assert sorted(gathered["rows acked"]) == list(range(5))


class FinishesInOpen(Spout):
    """A source that finds nothing to read; it may emit one tuple."""

    outputs = Fields("value")

    def __init__(self, says: bool = False) -> None:
        self.says = says

    def open(self, context: Context) -> None:
        if self.says:
            self.emit(("once",), message_id="once")
        self.finish()

    def next_tuple(self) -> None:
        GATHERED.add("next_tuple", 1)

    def ack(self, message_id: object) -> None:
        GATHERED.add("acked", message_id)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("says", [False, True])
def test_a_spout_that_finishes_in_open_completes(says: bool, way: dict[str, Any], gathered: Gathered) -> None:
    builder = TopologyBuilder("empty")
    builder.set_spout("empty", FinishesInOpen(says), parallelism=3)
    builder.set_bolt("gather", Gather(), parallelism=2).shuffle_grouping("empty")
    status = run(builder.build(), **way)
    assert gathered["next_tuple"] == []
    assert gathered["acked"] == ["once"] * (3 * says)
    assert len(gathered["gather"]) == 3 * says
    assert len(gathered["gather ended"]) == 2
    assert not says or (status.components["empty"].p99 or 0) < 60


@pytest.mark.parametrize("workers", [1, 3])
def test_a_spout_that_finishes_early_ends_only_the_bolts_that_it_alone_feeds(
    workers: int, gathered: Gathered
) -> None:
    builder = TopologyBuilder("early", {"topology.workers": workers})
    builder.set_spout("early", Rows(NUMBERS))
    builder.set_spout("late", SlowRows([(number,) for number in range(20)]))
    builder.set_bolt("alone", Gather()).shuffle_grouping("early")
    builder.set_bolt("both", Gather()).shuffle_grouping("early").shuffle_grouping("late")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(5)
        assert len(gathered["alone ended"]) == 1 and gathered["both ended"] == []
        assert cluster.status("early").state == "ACTIVE"
        cluster.advance(6)
        assert len(gathered["both ended"]) == 1
        assert cluster.status("early").state == "COMPLETED"


class Endless(Spout):
    """Emits as fast as it can, for ever."""

    outputs = Fields("value")

    def next_tuple(self) -> None:
        self.emit(("again",))


class Swallows(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_a_source_completes_beside_one_that_never_rests(workers: int, gathered: Gathered) -> None:
    builder = TopologyBuilder("busy", {"topology.workers": workers})
    builder.set_spout("rows", Rows(NUMBERS))
    builder.set_spout("endless", Endless())
    builder.set_bolt("batches", GatherBatches(1000)).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("batches")
    builder.set_bolt("swallows", Swallows()).shuffle_grouping("endless")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        gathered.wait_for("gather ended")
    assert sorted(row for _, row in gathered["gather"]) == NUMBERS
    assert sorted(gathered["rows acked"])[:1] == [0]


@pytest.mark.parametrize("way", WAYS)
def test_a_spout_without_readers_completes_and_its_message_ids_are_acked(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("unread")
    builder.set_spout("unread", Rows(NUMBERS), parallelism=2)
    builder.set_spout("rows", Rows([("a",)]))
    builder.set_bolt("gather", Gather()).shuffle_grouping("rows")
    status = run(builder.build(), **way)
    assert sorted(gathered["unread acked"]) == list(range(100))
    assert status.components["unread"].emitted == 100 and status.components["unread"].acked == 100


def test_a_topology_of_one_spout_completes(gathered: Gathered) -> None:
    builder = TopologyBuilder("spout-only")
    builder.set_spout("rows", Rows(NUMBERS))
    assert run(builder.build()).state == "COMPLETED"
    assert sorted(gathered["rows acked"]) == list(range(100))


@pytest.mark.parametrize("simulated", [True, False])
def test_one_topology_runs_twice_at_once_under_two_names(simulated: bool, gathered: Gathered) -> None:
    builder = TopologyBuilder("twice")
    builder.set_spout("rows", Rows(NUMBERS), parallelism=2)
    builder.set_bolt("sums", Sums("value"), parallelism=3).shuffle_grouping("rows")
    builder.set_bolt("gather", Sums("value")).shuffle_grouping("sums")
    builder.set_bolt("result", Gather()).shuffle_grouping("gather")
    topology = builder.build()
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(topology)
        cluster.submit(topology, name="again")
        if simulated:
            advance_to_the_end(cluster, "twice")
            advance_to_the_end(cluster, "again")
        for name in ("twice", "again"):
            cluster.wait(name, timeout=60)
            assert cluster.status(name).components["rows"].acked == 100
    assert [row for _, row in gathered["result"]] == [(4950,), (4950,)]
