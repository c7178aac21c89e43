"""Nothing is lost while a store is away: whole topologies on simulated time, with every kind of bolt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from tests.local_cluster.failing_stores import (
    CALLS,
    FEW_KINDS,
    KINDS,
    WAIT,
    Picky,
    Recorded,
    Source,
    Store,
    Writes,
    WritesBatches,
    WritesBatchesPickily,
    away,
    run,
    writing,
)
from topology_api import Replay, TopologyBuilder, Tuple


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_store_that_is_away_for_ten_seconds_loses_nothing(kind: Any) -> None:
    run_ = run(kind, away(5.0, 15.0), 500, 0.03)
    assert run_.failed("source") == []
    assert sorted(run_.acked("source")) == list(range(500))
    # A pause doubles with each probe, not with each failure: none is longer than 8 s.
    assert run_.seconds < 15.0 + 20.0


def test_the_status_says_which_tuples_are_tried_again_without_a_verdict() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(writing(Writes(Store(lambda *_: False)), 3, 100.0), conf=WAIT)
        cluster.advance(60)
        [tried] = cluster.status("orders").components["source"].undecided
        assert tried.tuples == 1 and tried.since < 1.0 and tried.until == tried.since + 3600
        assert tried.failure.startswith("store: Away: no answer to 0")


def test_the_log_says_once_that_a_task_is_down_and_once_that_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        run(Writes, away(5.0, 15.0), 500, 0.03)
    said = [
        record.getMessage() for record in caplog.records if record.getMessage().startswith(("down", "works"))
    ]
    assert len(said) == 2
    assert said[0].startswith("down: for 5 s every tuple has failed here") and "no answer to" in said[0]
    assert said[1].startswith("works again, after 1")


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_store_that_is_away_for_ten_minutes_loses_nothing_and_is_called_seldom(kind: Any) -> None:
    CALLS.clear()
    run_ = complete_topology(writing(kind(Recorded(away(5.0, 605.0))), 500, 0.03), conf=WAIT)
    assert run_.failed("source") == []
    assert sorted(run_.acked("source")) == list(range(500))
    assert run_.seconds < 605.0 + 75.0
    probes = [(value, now) for value, now in CALLS if 20.0 < now < 605.0]
    assert 5 < len(probes) < 30
    assert len({value for value, _ in probes}) == len(probes), "each with another tuple"
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(probes)]
    assert all(0.75 <= pause <= 61.0 for pause in pauses), "one at a time"
    assert len({round(pause, 3) for pause in pauses[-5:]}) > 1, "with jitter"


class WritesSlowly(Writes):
    """Each call takes longer than the first pauses between probes."""

    running = most = 0

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        cls = type(self)
        cls.running += 1
        if self.context.now() > 20.0:
            cls.most = max(cls.most, cls.running)
        try:
            await asyncio.sleep(5.0)
            self.store.write(tup[0], self.context)
        finally:
            cls.running -= 1


def test_no_probe_begins_while_another_one_is_running() -> None:
    CALLS.clear()
    with LocalCluster(simulated_time=True) as cluster:
        topology = writing(WritesSlowly(Recorded(away(0.0, 500.0))), 500, 0.03)
        cluster.submit(topology, conf=WAIT)
        cluster.advance(60)
        [down] = cluster.status("orders").components["store"].down
        assert down.since < 10.0
        calls = len(CALLS)
        WritesSlowly.most = 0
        cluster.advance(300)
        assert len(CALLS) > calls + 5 and WritesSlowly.most == 1


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
def test_poison_with_the_last_tuples_of_a_finite_source_is_given_up_after_its_attempts(kind: Any) -> None:
    """The last two have no success behind them; the others failed beside tuples that succeeded: no evidence of an outage."""
    poison = {10, 20, 30, 40, 98, 99}
    run_ = run(kind, lambda value, _: value not in poison, 100, 0.0)
    assert {position for position, _ in run_.failed("source")} == poison
    assert len(run_.acked("source")) == 94
    assert run_.seconds < 60


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_three_tuples_that_are_left_when_their_source_has_ended_wait_for_their_store(kind: Any) -> None:
    bad = {80, 90}
    run_ = run(kind, lambda value, now: value not in bad and (value < 97 or now > 100), 100, 0.1)
    assert {position for position, _ in run_.failed("source")} == bad
    assert len(run_.acked("source")) == 98


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_store_that_flaps_every_three_seconds_loses_nothing(kind: Any) -> None:
    run_ = run(kind, lambda _, now: int(now / 3) % 2 == 0, 500, 0.06)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 500


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuple_a_minute_survives_an_outage_of_ten_minutes(kind: Any) -> None:
    run_ = run(kind, away(100.0, 700.0), 20, 60.0)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 20


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_without_a_limit_a_tuple_is_tried_without_end(kind: Any) -> None:
    replay = Replay(max_attempts=None, first_delay=1.0, max_delay=5.0)
    run_ = run(kind, lambda value, now: value != 3 or now > 300.0, 10, 1.0, replay=replay)
    assert run_.failed("source") == [] and len(run_.acked("source")) == 10


#: Half-periods, shares of the time in which the store works, and seconds between tuples.
UNEVEN = [(1.0, 0.5, 0.1), (2.1, 0.35, 0.1), (3.7, 0.6, 0.2), (5.8, 0.4, 0.2)]


@pytest.mark.parametrize("kind", FEW_KINDS)
@pytest.mark.parametrize(
    ("half", "share", "every"),
    [UNEVEN[1], *(pytest.param(*each, marks=pytest.mark.soak) for each in UNEVEN if each != UNEVEN[1])],
)
def test_a_store_that_flaps_unevenly_loses_nothing_and_poison_ends(
    kind: Any, half: float, share: float, every: float
) -> None:
    poison = {50, 51, 52, 120}

    def works(value: Any, now: float) -> bool:
        return value not in poison and (now > 60.0 or now % (2 * half) < 2 * half * share)

    run_ = run(kind, works, int(180.0 / every), every)  # until the last outage is long over
    assert {position for position, _ in run_.failed("source")} == poison
    assert run_.seconds < 400.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pending", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_an_outage_costs_nothing_where_a_spout_may_have_few_trees(kind: Any, pending: int) -> None:
    """Without the verdict each tuple would be given up after 40 seconds."""
    topology = writing(kind(Store(away(2.0, 100.0))), 30, 0.2, pending=pending)
    run_ = complete_topology(topology, conf={**WAIT, "topology.outage.give.up.secs": 40})
    assert run_.failed("source") == [] and len(run_.acked("source")) == 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, *(pytest.param(each, marks=pytest.mark.soak) for each in (5, 19))])
def test_poison_ends_where_a_spout_may_have_one_tree(kind: Any, first: int) -> None:
    poison = set(range(first, min(first + 3, 20)))
    run_ = run(kind, lambda value, _: value not in poison, 20, 0.2, pending=1)
    assert {position for position, _ in run_.failed("source")} == poison
    assert {failure.attempts for _, failure in run_.failed("source")} <= {3, 4}
    assert run_.seconds < 60.0


class Slow(Source):
    """Two tuples, and a third after 2,000 seconds."""

    def next_tuple(self) -> float:
        super().next_tuple()
        return 2000.0 if len(self.left) == 1 else 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_two_tuples_that_fail_with_nothing_else_to_do_are_given_up_after_their_time(kind: Any) -> None:
    builder = TopologyBuilder("orders", conf={"topology.outage.give.up.secs": 300})
    builder.set_spout("source", Slow(3, 0.1, Replay()))
    builder.set_bolt("store", kind(Store(lambda value, _: value == 2))).shuffle_grouping("source")
    run_ = complete_topology(builder.build(), conf=WAIT)
    failed = run_.failed("source")
    assert sorted(position for position, _ in failed) == [0, 1]
    assert all(9 <= failure.attempts <= 13 for _, failure in failed), "300 s, not 2,000 s"


@pytest.mark.parametrize("kind", [*KINDS[:4], WritesBatchesPickily])
def test_a_tuple_that_is_refused_for_good_is_given_up_in_an_outage_too(kind: Any) -> None:
    run_ = complete_topology(writing(kind(Picky(away(0.0, 100.0))), 40, 0.1), conf=WAIT)
    [(position, failure)] = run_.failed("source")
    assert (position, failure.attempts, failure.error) == (30, 3, "30 is refused")
    assert len(run_.acked("source")) == 39


class WritesBatchesAndTells(WritesBatches):
    """Records its batches."""

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        CALLS.append(([tup[0] for tup in tups], self.context.now()))
        super().execute_batch(tups)


def test_a_batch_that_fails_is_executed_in_halves_apart_from_fresh_tuples() -> None:
    CALLS.clear()
    run_ = run(WritesBatchesAndTells, lambda value, _: value != 20, 200, 0.01)
    [(position, failure)] = run_.failed("source")
    assert (position, failure.attempts) == (20, 3)
    batches = [batch for batch, _ in CALLS]
    first = next(number for number, batch in enumerate(batches) if 20 in batch)
    parts, whole = batches[first + 1 :], batches[first]
    while (
        20 in whole and len(whole) > 1
    ):  # each part that fails is followed by its own halves, and by nothing else
        halves = parts[:2]
        middle = (len(whole) + 1) // 2
        assert halves == [whole[:middle], whole[middle:]]
        whole, parts = next(half for half in halves if 20 in half), parts[2:]
    assert whole == [20], "only a batch of one counts"
