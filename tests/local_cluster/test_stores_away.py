"""Nothing is lost while a store is away: whole topologies on simulated time, with every kind of bolt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from local_cluster.complete import Completed
from local_cluster.testing import complete_topology
from topology_api import BatchBolt, Bolt, Context, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple

WAIT: dict[str, object] = {"topology.on.outage": "wait"}
#: Whether a call for this value may succeed at this time (simulated seconds since the start).
Works = Callable[[Any, float], bool]


class Away(Exception):
    """The store does not answer."""


class Store:
    """What all bolts here write to."""

    def __init__(self, works: Works) -> None:
        self.works = works

    def write(self, value: Any, context: Context) -> None:
        if not self.works(value, context.now()):
            raise Away(f"no answer to {value}")


class Writes(Bolt):
    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        self.store.write(tup[0], self.context)


class WritesInAThread(Writes):
    threaded = True


class WritesAndAcks(Writes):
    """A rich bolt."""

    auto_ack = auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        try:
            self.store.write(tup[0], self.context)
        except Away as error:
            self.fail(tup, str(error))
        else:
            self.ack(tup)


class WritesLater(Writes):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.01)
        self.store.write(tup[0], self.context)


class WritesBatches(BatchBolt):
    batch_size = 50
    batch_interval = 0.2

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sizes: list[int] = []

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.store.write(tup[0], self.context)


class WritesBatchesOneByOne(WritesBatches):
    """Fails single tuples of its batches, and returns."""

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            try:
                self.store.write(tup[0], self.context)
            except Away as error:
                self.fail(tup, str(error))


class WritesRichBatches(WritesBatches):
    """Acks by itself, after its batch was written."""

    auto_ack = False

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        super().execute_batch(tups)
        for tup in tups:
            self.ack(tup)


KINDS = [
    Writes,
    WritesInAThread,
    WritesAndAcks,
    WritesLater,
    WritesBatches,
    WritesBatchesOneByOne,
    WritesRichBatches,
]


class Source(Spout):
    """Emits 0 … count-1, one each `every` seconds; the message ids are the values."""

    outputs = Fields("value")

    def __init__(self, count: int, every: float, replay: Replay) -> None:
        self.left = list(range(count - 1, -1, -1))
        self.every = every
        self.replay = replay

    def next_tuple(self) -> float:
        if self.left:
            value = self.left.pop()
            self.emit((value,), message_id=value)
        if not self.left:
            self.finish()
        return self.every


def writing(
    bolt: Any,
    count: int,
    every: float,
    replay: Replay | None = None,
    tasks: int = 1,
    pending: int | None = 1000,
) -> Topology:
    builder = TopologyBuilder("orders", conf={"topology.max.spout.pending": pending})
    builder.set_spout("source", Source(count, every, replay or Replay()))
    builder.set_bolt("store", bolt, parallelism=tasks).shuffle_grouping("source")
    return builder.build()


def run(kind: Any, works: Works, count: int, every: float, **more: Any) -> Completed:
    return complete_topology(writing(kind(Store(works)), count, every, **more), conf=WAIT)


def away(since: float, until: float) -> Works:
    return lambda _, now: not since <= now < until


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("secs", [10.0, 600.0])
def test_a_store_that_is_away_loses_nothing(kind: Any, secs: float) -> None:
    run_ = run(kind, away(5.0, 5.0 + secs), 1500, 0.01)
    assert run_.failed("source") == []
    assert sorted(run_.acked("source")) == list(range(1500))
    # A pause doubles with each probe, not with each failure: in the short outage none is longer than 8 s.
    assert run_.seconds < 5.0 + secs + (20.0 if secs < 60 else 75.0)


def test_the_log_says_once_that_a_task_is_down_and_once_that_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        run(Writes, away(5.0, 15.0), 1500, 0.01)
    said = [
        record.getMessage() for record in caplog.records if record.getMessage().startswith(("down", "works"))
    ]
    assert len(said) == 2
    assert said[0].startswith("down: for 5 s every tuple has failed here") and "no answer to" in said[0]
    assert said[1].startswith("works again, after 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_away_is_called_seldom(kind: Any) -> None:
    calls: list[float] = []

    def works(_: Any, now: float) -> bool:
        if 5.0 <= now < 605.0:
            calls.append(now)
            return False
        return True

    run_ = run(kind, works, 1500, 0.01)
    assert run_.failed("source") == []
    assert len([now for now in calls if now > 20.0]) < 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_poison_tuple_is_given_up_after_three_attempts_and_costs_no_other(kind: Any) -> None:
    run_ = run(kind, lambda value, _: value != 100, 500, 0.01)
    [(position, failure)] = run_.failed("source")
    assert (position, failure.attempts) == (100, 3) and "no answer to 100" in str(failure.error)
    assert len(run_.acked("source")) == 499


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poison", [0, 19])
def test_the_first_and_the_last_tuple_may_be_poison(kind: Any, poison: int) -> None:
    run_ = run(kind, lambda value, _: value != poison, 20, 1.0)
    assert len(run_.failed("source")) == 1 and len(run_.acked("source")) == 19


@pytest.mark.parametrize("kind", KINDS)
def test_the_only_tuple_of_a_finite_source_is_given_up_after_its_attempts(kind: Any) -> None:
    run_ = run(kind, lambda *_: False, 1, 0.0)
    [(_, failure)] = run_.failed("source")
    assert failure.attempts == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_flaps_every_three_seconds_loses_nothing(kind: Any) -> None:
    run_ = run(kind, lambda _, now: int(now / 3) % 2 == 0, 1500, 0.02)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 1500


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuple_a_minute_survives_an_outage_of_ten_minutes(kind: Any) -> None:
    run_ = run(kind, away(100.0, 700.0), 20, 60.0)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_limit_a_tuple_is_tried_without_end(kind: Any) -> None:
    replay = Replay(max_attempts=None, first_delay=1.0, max_delay=5.0)
    run_ = run(kind, lambda value, now: value != 3 or now > 300.0, 10, 1.0, replay=replay)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 10


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
    topology = four_tasks("shuffle", OneIsBroken(Store(lambda *_: True)), 3000)
    completed = complete_topology(topology, conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 3000
    assert completed.seconds < 120.0


class BreaksForAWhile(Writes):
    """Of its tasks the first fails from second 5 to second 605."""

    def execute(self, tup: Tuple) -> None:
        if self.context.index == 0 and 5.0 <= self.context.now() < 605.0:
            raise Away(f"no answer to {tup[0]}")


def test_tuples_that_belong_to_a_broken_task_wait_for_it() -> None:
    topology = four_tasks("fields", BreaksForAWhile(Store(lambda *_: True)), 3000)
    completed = complete_topology(topology, conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 3000
    assert 605.0 < completed.seconds < 700.0


def test_bolts_that_are_down_one_behind_the_other_with_little_room_go_on_afterwards() -> None:
    """The first emits before it fails, so its outbox is full, and it is blocked when it is to be tried."""
    builder = TopologyBuilder("orders", conf={"topology.queue.size": 64})
    builder.set_spout("source", Source(500, 0.01, Replay()))
    builder.set_bolt("first", EmitsAndFails(Store(away(2.0, 60.0)))).shuffle_grouping("source")
    builder.set_bolt("store", Writes(Store(away(2.0, 60.0)))).shuffle_grouping("first")
    completed = complete_topology(builder.build(), conf=WAIT)
    assert completed.failed("source") == [] and len(completed.acked("source")) == 500


class EmitsAndFails(Writes):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        for _ in range(20):
            self.emit(tup.values)
        self.store.write(tup[0], self.context)
