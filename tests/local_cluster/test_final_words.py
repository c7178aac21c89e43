"""Promises 1 and 2, over random topologies with random failures, timeouts and replays.

1. Every emission with a message id gets exactly one final call, `ack` or `fail`.
2. `ack` is called only after every bolt that a tuple's tree reached has acked it.

A tuple carries the names of the emissions that it descends from, so each bolt can record which trees have reached it and which
it has acked or failed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_cluster import LocalCluster, TopologyStatus
from tests.local_cluster.recording import JOURNAL, run_to_the_end
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Failure,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)

OUT = Fields("trees", "key")
Trees = tuple[str, ...]


class Emits(Spout):
    """Emits `count` tracked tuples, each named after itself; some untracked ones in between."""

    outputs = OUT

    def __init__(self, name: str, count: int, replay: Replay | None, repeats_ids: bool) -> None:
        self.name = name
        self.count = count
        self.replay = replay
        self.repeats_ids = repeats_ids

    def open(self, context: Context) -> None:
        self.random = context.random
        self.prefix = f"{self.name}.{context.index}"
        self.next = 0

    def next_tuple(self) -> None:
        if self.next >= self.count:
            return self.finish()
        tree = f"{self.prefix}.{self.next}"
        self.next += 1
        if self.random.random() < 0.1:
            self.emit(((), self.next))
        JOURNAL.note("tree", tree)
        return self.emit(((tree,), self.next), message_id="same" if self.repeats_ids else tree)

    def ack(self, message_id: Any) -> None:
        JOURNAL.note("ack", message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        JOURNAL.note("fail", message_id, failure)


class Misbehaves(Bolt):
    """Shared by the bolts: the probabilities of errors, and how to emit."""

    random: Random
    outputs = OUT

    def __init__(self, wrong: float, fan_out: int) -> None:
        self.wrong = wrong
        self.fan_out = fan_out

    def prepare(self, context: Context) -> None:
        self.random = context.random
        self.kept: list[Tuple] = []

    def goes_wrong(self) -> bool:
        return self.random.random() < self.wrong


def reached(tup: Tuple) -> Trees:
    for tree in tup["trees"]:
        JOURNAL.note("reached", tree)
    return tuple(tup["trees"])


def settled(trees: Trees) -> None:
    for tree in trees:
        JOURNAL.note("settled", tree)


class Basic(Misbehaves):
    """Emits a few children of each tuple, then raises, fails it, or lets it be acked."""

    def execute(self, tup: Tuple) -> None:
        trees = reached(tup)
        for number in range(self.random.randint(0, self.fan_out)):
            self.emit((trees, number))
        if self.random.random() < 0.1:
            self.emit(((), 0), anchors=())
        if self.goes_wrong():
            kind = self.random.randrange(3)
            if kind == 0:
                raise ValueError("by chance")
            if kind == 1:
                raise FailTuple("by chance")
            return self.fail(tup, "by chance")
        return settled(trees)


class Awaits(Misbehaves):
    """The same as coroutines that take a while."""

    max_concurrency = 3

    async def execute(self, tup: Tuple) -> None:
        trees = reached(tup)
        for number in range(self.random.randint(0, self.fan_out)):
            await asyncio.sleep(self.random.random())
            self.emit((trees, number))
        if self.goes_wrong():
            raise ValueError("by chance")
        settled(trees)


class Batches(Misbehaves, BatchBolt):
    """Emits one tuple for each half of its batch, anchored to all of that half."""

    batch_size = 7
    batch_interval = 0.5

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        every = [reached(tup) for tup in tups]
        middle = len(tups) // 2
        for part in (tups[:middle], tups[middle:]):
            trees = sorted({tree for tup in part for tree in tup["trees"]})
            if part:
                self.emit((tuple(trees), len(part)), anchors=part)
        if self.goes_wrong():
            raise ValueError("by chance")
        for trees_of_one in every:
            settled(trees_of_one)


class Rich(Misbehaves):
    """Keeps tuples, acks or fails them at ticks in any order, anchors to several at once, and forgets some for ever."""

    auto_ack = False
    auto_anchor = False
    tick_interval = 0.7

    def execute(self, tup: Tuple) -> None:
        reached(tup)
        if self.goes_wrong() and self.random.random() < 0.3:
            return  # forgotten: only a timeout ends its trees
        self.kept.append(tup)
        if len(self.kept) > 4:
            self.settle_some()

    def tick(self) -> None:
        self.settle_some()

    def end_of_input(self) -> None:
        while self.kept:
            self.settle_some()

    def settle_some(self) -> None:
        self.random.shuffle(self.kept)
        some, self.kept = self.kept[:3], self.kept[3:]
        if some and self.fan_out:
            trees = sorted({tree for tup in some for tree in tup["trees"]})
            self.emit((tuple(trees), 0), anchors=[*some, some[0]])  # naming the same anchor twice works
        for tup in some:
            if self.goes_wrong():
                self.fail(tup, "by chance")
            else:
                settled(tuple(tup["trees"]))
                self.ack(tup)


KINDS: dict[str, type[Misbehaves]] = {"basic": Basic, "async": Awaits, "batch": Batches, "rich": Rich}


@dataclass(frozen=True)
class BoltPlan:
    """One bolt of a random topology; `inputs` are (component number, grouping)."""

    kind: str
    tasks: int
    wrong: float
    fan_out: int
    inputs: tuple[tuple[int, str], ...]
    threaded: bool


@dataclass(frozen=True)
class Plan:
    """A random topology and the cluster that it runs on."""

    spouts: tuple[tuple[int, int], ...]
    bolts: tuple[BoltPlan, ...]
    pending: int
    queue: int
    workers: int
    seed: int
    encode: bool


@st.composite
def plans(draw: st.DrawFn, sound: bool = False) -> Plan:
    """Layers of bolts over one or two spouts; every bolt reads one or two of the components before it."""
    spouts = tuple(
        (draw(st.integers(1, 2)), draw(st.integers(1, 25))) for _ in range(draw(st.integers(1, 2)))
    )
    bolts = []
    for number in range(draw(st.integers(1, 4))):
        before = len(spouts) + number
        sources = draw(st.lists(st.integers(0, before - 1), min_size=1, max_size=2, unique=True))
        groupings = st.sampled_from(["shuffle", "fields", "all", "global", "local_or_shuffle", "partial_key"])
        bolts.append(
            BoltPlan(
                kind=draw(st.sampled_from(sorted(KINDS))),
                tasks=draw(st.integers(1, 3)),
                wrong=0.0 if sound else draw(st.sampled_from([0.0, 0.05, 0.3])),
                fan_out=draw(st.integers(0, 2)),
                inputs=tuple((source, draw(groupings)) for source in sources),
                threaded=draw(st.booleans()),
            )
        )
    return Plan(
        spouts,
        tuple(bolts),
        pending=draw(st.sampled_from([1, 3, 1000])),
        queue=draw(st.sampled_from([16, 17, 4096])),
        workers=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 1000)),
        encode=draw(st.booleans()),
    )


def build(plan: Plan, replay: Replay | None, repeats_ids: bool) -> Topology:
    builder = TopologyBuilder(
        "promises",
        {
            "topology.message.timeout.secs": 5,
            "topology.max.spout.pending": plan.pending,
            "topology.queue.size": plan.queue,
            "topology.workers": plan.workers,
        },
    )
    components: list[Any] = []
    for number, (tasks, count) in enumerate(plan.spouts):
        spout = Emits(f"s{number}", count, replay, repeats_ids)
        components.append(builder.set_spout(spout.name, spout, parallelism=tasks))
    for number, planned in enumerate(plan.bolts):
        bolt: Any = KINDS[planned.kind](planned.wrong, planned.fan_out)
        if planned.kind != "async":
            bolt.threaded = planned.threaded
        declarer = builder.set_bolt(f"b{number}", bolt, parallelism=planned.tasks)
        for source, grouping in planned.inputs:
            fields = ("key",) if grouping in ("fields", "partial_key") else ()
            getattr(declarer, f"{grouping}_grouping")(components[source], *fields)
        components.append(declarer)
    return builder.build()


def run(plan: Plan, replay: Replay | None, repeats_ids: bool = False) -> TopologyStatus:
    JOURNAL.clear()
    with LocalCluster(simulated_time=True, seed=plan.seed, encode=plan.encode) as cluster:
        cluster.submit(build(plan, replay, repeats_ids))
        return run_to_the_end(cluster, "promises", seconds=20_000.0)


def check_final_words(status: TopologyStatus) -> None:
    """Check promise 1, and that the counters agree."""
    assert status.state == "COMPLETED"
    trees = JOURNAL.of("tree")
    acked, failed = JOURNAL.of("ack"), JOURNAL.of("fail")
    assert len(acked) + len(failed) == len(trees)
    spouts = [totals for totals in status.components.values() if totals.kind == "spout"]
    assert sum(totals.acked for totals in spouts) == len(acked)
    assert sum(totals.failed for totals in spouts) == len(failed)
    assert all(totals.pending == 0 for totals in spouts)


@settings(max_examples=30)
@given(plans(), st.sampled_from([None, Replay(max_attempts=2), Replay(max_attempts=4, first_delay=0.1)]))
def test_every_emission_with_a_message_id_gets_exactly_one_final_call(
    plan: Plan, replay: Replay | None
) -> None:
    check_final_words(run(plan, replay))
    words = Counter(word[0] for word in [*JOURNAL.of("ack"), *JOURNAL.of("fail")])
    assert words == Counter(tree for (tree,) in JOURNAL.of("tree"))
    allowed = 1 if replay is None else replay.max_attempts
    assert all(1 <= failure.attempts <= allowed for _, failure in JOURNAL.of("fail"))


@settings(max_examples=15)
@given(plans(), st.sampled_from([None, Replay(max_attempts=3, first_delay=0.5)]))
def test_that_also_holds_for_message_ids_that_repeat(plan: Plan, replay: Replay | None) -> None:
    check_final_words(run(plan, replay, repeats_ids=True))


@settings(max_examples=30)
@given(plans())
def test_an_ack_comes_only_after_every_bolt_that_the_tree_reached_has_acked(plan: Plan) -> None:
    check_final_words(run(plan, None))  # one attempt each, so that a name stands for one tree
    open_tuples: Counter[str] = Counter()
    acked: set[str] = set()
    for kind, *details in JOURNAL.entries:
        tree = details[0]
        if kind == "reached":
            assert tree not in acked, f"{tree} was executed after its ack"
            open_tuples[tree] += 1
        elif kind == "settled":
            open_tuples[tree] -= 1
        elif kind == "ack":
            assert open_tuples[tree] == 0, f"{tree} was acked with {open_tuples[tree]} tuples open"
            acked.add(tree)


@settings(max_examples=15)
@given(plans(sound=True))
def test_everything_is_acked_where_no_bolt_fails(plan: Plan) -> None:
    status = run(plan, Replay())
    check_final_words(status)
    assert JOURNAL.of("fail") == []
    assert all(totals.replayed == 0 for totals in status.components.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_runs_with_one_seed_are_equal(seed: int) -> None:
    bolts = (
        BoltPlan("rich", 2, 0.3, 2, ((0, "shuffle"),), False),
        BoltPlan("async", 2, 0.3, 1, ((1, "fields"),), False),
    )
    plan = Plan(((2, 20),), bolts, 3, 16, 2, seed, True)
    run(plan, Replay(max_attempts=2))
    first = list(JOURNAL.entries)
    run(plan, Replay(max_attempts=2))
    assert JOURNAL.entries == first
