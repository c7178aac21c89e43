"""Batch bolts and async bolts in topologies whose state is at a path: their calls are all or nothing, and count once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.keeping_words import Async, AsyncRich, Batches
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Words,
    commits_at,
    counts,
    eventually,
    expected,
    snapshots_at,
    words,
)
from topology_api import Bolt, Context, FailTuple, Hook, Replay, Tuple

SEEDS = [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 30))]


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["batches", "async", "rich"])
def test_each_tuple_counts_once_however_often_the_cluster_starts_again(
    tmp_path: Path, kind: str, seed: int
) -> None:
    draw = random.Random(f"{kind}/{seed}")
    held = 0
    for start in range(4):
        conf = conf_at(
            tmp_path,
            **{
                "topology.epoch.secs": 0.4,
                "topology.queue.size": draw.choice([16, 4096]),
                "topology.workers": draw.choice([1, 2, 3]),
                "topology.on.outage": draw.choice(["wait", "give-up"]),
            },
        )
        bolt: Bolt = Async(draw.choice([0.01, 0.2]), 0.1)
        if kind == "batches":
            bolt = Batches(draw.choice([3, 40]), draw.choice([0.1, 1.0]), 0.1)
        elif kind == "rich":
            bolt = AsyncRich(0.1, 0.1)
        topology = words(Words(250, 100), bolt, Count(0.1), draw.choice([1, 2, 3, 5]))
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(6 if start == 3 else draw.uniform(0.5, 1.5))
            if start == 3:
                assert counts(cluster) == expected(list(range(250)))
                assert cluster.dead_letters("words") == []
        # The first start may end before its first commit.
        held += sum(len(snapshot.held) for last in commits_at(tmp_path / "words")[-1:] for snapshot in last)
    assert bool(held) == (kind != "async")


@pytest.mark.parametrize("outage", ["wait", "give-up"])
@pytest.mark.parametrize("bolt", [Batches, Async])
def test_a_tuple_that_always_fails_is_one_dead_letter_and_the_rest_counts(
    tmp_path: Path, bolt: Any, outage: str
) -> None:
    spout = Words(200, 100)  # while others succeed, failures count
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    poison = frozenset({3, 50})
    conf = conf_at(tmp_path, **{"topology.on.outage": outage})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, bolt(poison=poison), Count()), conf)
        cluster.advance(5)
        assert counts(cluster) == expected([number for number in range(200) if number not in poison])
        letters = cluster.dead_letters("words")
        assert sorted(letter.values[1] for letter in letters) == [3, 50]
        assert {(letter.failure.component, letter.failure.attempts) for letter in letters} == {("pass", 3)}


class Sizes(Batches):
    """Writes the size of each batch."""

    def __init__(self, path: str) -> None:
        super().__init__(1000, 5.0)
        self.path = path

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        super().execute_batch(tups)
        with open(self.path, "a") as file:
            file.write(f"{len(tups)}\n")


def test_no_epoch_cuts_a_batch_and_what_is_gathered_survives(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes"
    conf = conf_at(tmp_path / "state")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 100), Sizes(str(sizes)), Count(), 1), conf)
        cluster.advance(3)  # many epochs
        assert not sizes.exists()
    [state] = [each for each in snapshots_at(tmp_path / "state" / "words") if each.task == "pass/0"]
    assert state.held
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(150), Sizes(str(sizes)), Count(), 1), conf)
        cluster.advance(4.5)
        assert not sizes.exists()
        cluster.advance(2)
        assert sizes.read_text() == "150\n"
        assert counts(cluster) == expected(list(range(150)))


class FailsSome(Batches):
    """Fails single tuples of a batch that it executes, and acks others itself."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.seen: set[int] = set()

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            if tup["number"] == 17:
                self.fail(tup, FailTuple("17"))
            elif tup["number"] % 5 == 0 and tup["number"] not in self.seen:
                self.seen.add(tup["number"])
                self.fail(tup, "the first time")
            elif tup["number"] % 3 == 0:
                self.ack(tup)


class FailsSomeAlone(FailsSome):
    """The same, and it acks all others a batch later."""

    auto_ack = False

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.later: list[Tuple] = []

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in self.later:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            self.ack(tup)
        self.later = [tup for tup in tups if tup["number"] % 7 == 1 and tup["number"] not in (17, 120)]
        super().execute_batch([tup for tup in tups if tup not in self.later])
        for tup in tups:
            if tup not in self.later and tup["number"] != 17 and tup["number"] % 3:
                if tup["number"] % 5 or tup["number"] in self.twice:
                    self.ack(tup)
                self.twice.add(tup["number"])

    @property
    def twice(self) -> set[int]:
        return vars(self).setdefault("_twice", set())  # type: ignore[no-any-return]

    def end_of_input(self) -> None:
        for tup in self.later:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            self.ack(tup)


@pytest.mark.parametrize("hooked", [False, True])
def test_tuples_of_a_batch_may_be_settled_one_by_one(tmp_path: Path, hooked: bool) -> None:
    conf = conf_at(tmp_path)
    if hooked:
        conf["topology.auto.task.hooks"] = [f"{__name__}:Sees"]
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(121, 200), FailsSome(), Count()), conf)
        cluster.advance(5)
        assert counts(cluster) == expected([number for number in range(121) if number != 17])
        assert [letter.values[1] for letter in cluster.dead_letters("words")] == [17]


class Sees(Hook):
    """Does nothing."""


def test_a_restart_in_the_middle_of_a_call_drops_what_it_has_recorded(tmp_path: Path) -> None:
    """The epoch waits for the call, and nothing of it is committed before it has returned."""
    for start in (1, 2):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words(Words(20), Slow(start == 1), Count(), 1), conf_at(tmp_path))
            cluster.advance(8)
            status = cluster.status("words").components["words"]
            if start == 1:
                assert status.acked == 0, "an epoch was committed although a call of it has not returned"
            else:
                assert (status.acked, status.pending) == (20, 0)
                assert counts(cluster) == expected(list(range(20)))


class Slow(Async):
    """One call takes very long."""

    def __init__(self, hangs: bool) -> None:
        super().__init__()
        self.hangs = hangs

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        self.emit((tup["word"], tup["number"]))
        if tup["number"] == 7:
            await asyncio.sleep(100 if self.hangs else 2)


def test_threads_and_real_time_count_the_same(tmp_path: Path) -> None:
    for kind, bolt in (("batches", Batches(50, 0.1, 0.05, threaded=True)), ("async", Async(0.005, 0.05))):
        conf = conf_at(tmp_path / kind, **{"topology.epoch.secs": 0.1, "topology.queue.size": 64})
        for start in range(3):
            with LocalCluster() as cluster:
                cluster.submit(words(Words(1_000, 2_000), bolt, Count()), conf)
                eventually(lambda: cluster.status("words").components["words"].acked > 0)
                if start == 2:
                    eventually(lambda: counts(cluster) == expected(list(range(1_000))))


def test_an_ending_source_completes_what_is_gathered(tmp_path: Path) -> None:
    for kind, bolt in (("batches", Batches(1000, 500)), ("async", Async(0.3)), ("both", FailsSomeAlone())):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(words(Finite(121), bolt, Count()), conf_at(tmp_path / kind))
            cluster.advance(15)
            status = cluster.last_status("words")
            assert status.state == "COMPLETED", kind
            # a tuple that counted twice would be one more
            assert status.components["count"].acked == 121 - (kind == "both"), kind
