"""One task of a bolt fails, or a bolt behind another one that fails: no tuple is charged for it, with every kind of bolt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster.testing import complete_topology
from tests.local_cluster.failing_stores import (
    KINDS,
    WAIT,
    Away,
    BreaksForAWhile,
    EmitsAndFails,
    Source,
    Store,
    Writes,
    WritesAndAcks,
    WritesBatches,
    WritesRichBatches,
    away,
    writing,
)
from topology_api import Context, Replay, Topology, TopologyBuilder, Tuple

#: For tuples that belong to one task by their key.
KINDS_OF_KEYED = [
    kind if kind in (Writes, WritesAndAcks, WritesBatches) else pytest.param(kind, marks=pytest.mark.soak)
    for kind in KINDS
]


class BrokenStore(Store):
    """Fails for every tuple of the first task."""

    def write(self, value: Any, context: Context) -> None:
        if context.index == 0:
            raise Away(f"no answer to {value}")


@pytest.mark.parametrize("kind", KINDS)
def test_one_broken_task_of_four_costs_no_tuple(kind: Any) -> None:
    completed = complete_topology(four_tasks("shuffle", kind(BrokenStore(lambda *_: True)), 700), conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 700


class OneIsBroken(Writes):
    """Of its tasks the first fails for every tuple."""

    def execute(self, tup: Tuple) -> None:
        if self.context.index == 0:
            raise Away(f"no answer to {tup[0]}")


def four_tasks(grouping: str, bolt: Any, count: int) -> Topology:
    builder = TopologyBuilder("orders")
    builder.set_spout("source", Source(count, 0.01, Replay()))
    declarer = builder.set_bolt("store", bolt, parallelism=4)
    if grouping == "shuffle":
        declarer.shuffle_grouping("source")
    else:
        declarer.fields_grouping("source", "value")
    return builder.build()


def test_shuffled_tuples_go_around_a_broken_task() -> None:
    topology = four_tasks("shuffle", OneIsBroken(Store(lambda *_: True)), 1000)
    completed = complete_topology(topology, conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 1000
    assert completed.seconds < 120.0


@pytest.mark.parametrize("kind", KINDS_OF_KEYED)
def test_tuples_that_belong_to_a_broken_task_wait_for_it(kind: Any) -> None:
    topology = four_tasks("fields", kind(BreaksForAWhile(lambda *_: True)), 700)
    completed = complete_topology(topology, conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 700
    assert 65.0 < completed.seconds < 140.0


#: Values that bolts hold the first time, and then forget.
HELD = (2, 3, 40)


class Forgets(WritesAndAcks):
    """Resets the timeout of some tuples, and then neither acks nor fails them."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.held: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        if tup[0] in HELD and tup[0] not in self.held:
            self.held.add(tup[0])
            self.reset_timeout(tup)
        else:
            super().execute(tup)


class ForgetsInBatches(WritesRichBatches):
    """As `Forgets`, with batches."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.held: set[Any] = set()

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        held = [tup for tup in tups if tup[0] in HELD and tup[0] not in self.held]
        for tup in held:
            self.held.add(tup[0])
            self.reset_timeout(tup)
        super().execute_batch([tup for tup in tups if tup not in held])


ONCE = Replay(max_attempts=1)
SHORT: dict[str, object] = {**WAIT, "topology.message.timeout.secs": 20}


@pytest.mark.parametrize("kind", [Forgets, ForgetsInBatches])
def test_a_tuple_that_times_out_in_a_task_that_is_down_is_not_charged(kind: Any) -> None:
    topology = writing(kind(Store(away(2.0, 60.0))), 200, 0.05, replay=ONCE)
    completed = complete_topology(topology, conf=SHORT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 200


@pytest.mark.parametrize("kind", [Forgets, ForgetsInBatches])
def test_a_tuple_that_times_out_in_a_task_that_works_is_charged(kind: Any) -> None:
    completed = complete_topology(writing(kind(Store(lambda *_: True)), 200, 0.05, replay=ONCE), conf=SHORT)
    failed = completed.failed("source")
    assert sorted(value for value, _ in failed) == [*HELD]
    assert {(failure.reason, failure.component) for _, failure in failed} == {("timeout", "store")}


def test_bolts_that_are_down_one_behind_the_other_with_little_room_go_on_afterwards() -> None:
    """The first emits before it fails, so its outbox is full, and it is blocked when it is to be tried."""
    builder = TopologyBuilder("orders", conf={"topology.queue.size": 64})
    builder.set_spout("source", Source(500, 0.01, Replay()))
    builder.set_bolt("first", EmitsAndFails(Store(away(2.0, 60.0)))).shuffle_grouping("source")
    builder.set_bolt("store", Writes(Store(away(2.0, 60.0)))).shuffle_grouping("first")
    completed = complete_topology(builder.build(), conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 500
