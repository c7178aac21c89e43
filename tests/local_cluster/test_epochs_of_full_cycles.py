"""Cycles of bolts that hold more tuples than may wait, in topologies whose state is at a path: memory stays bounded, the
topology says what is wrong, and each tuple counts once or is a dead letter.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.letter import DeadLetter
from squall_cli.terminal.epoch_lines import wait_sentences
from tests.local_cluster.words_with_state import WORDS, Count, Finite, Words
from topology_api import Bolt, Fields, Spout, Topology, TopologyBuilder, Tuple
from worker.loop.epoch_worker import EpochWorker

LIMIT = 40


class Grows(Bolt):
    """Sends each tuple around a number of rounds, as `copies` tuples each time; each call takes a while."""

    outputs = {"again": Fields("word", "number", "round", "lock"), "default": Fields("word", "number")}
    max_concurrency = 1

    def __init__(self, rounds: int, copies: int, locked: int = -1, secs: float = 0.002) -> None:
        self.rounds, self.copies, self.locked, self.secs = rounds, copies, locked, secs

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.secs)
        number, done = tup["number"], tup["round"] if "round" in tup.fields else 0
        self.emit((tup["word"], number))
        if done < self.rounds:
            lock = threading.Lock() if number == self.locked else None
            for _ in range(self.copies):
                self.emit((tup["word"], number, done + 1, lock), stream="again")


class Back(Bolt):
    """The other bolt of a cycle."""

    outputs = {"again": Grows.outputs["again"]}

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values, stream="again")


def cycle(spout: Spout, bolt: Bolt, parallelism: int = 2) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    grows = builder.set_bolt("grows", bolt, parallelism).shuffle_grouping("words")
    grows.shuffle_grouping("back", stream="again")
    builder.set_bolt("back", Back(), parallelism).shuffle_grouping("grows", stream="again")
    builder.set_bolt("count", Count()).fields_grouping("grows", "word")
    return builder.build()


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.state.path": f"file://{path}",
        "topology.epoch.secs": 0.2,
        "topology.epoch.cycle.tuples": LIMIT,
        "topology.queue.size": 16,
        **more,
    }


def executed(cluster: LocalCluster) -> int:
    """How many tuples `Grows` has executed."""
    return sum(cluster.state("words", "count", word)["times"] for word in sorted(set(WORDS)))


def most_waiting(cluster: LocalCluster) -> int:
    """How many tuples wait at the task of the cycle that has most of them."""
    workers = cluster._engine.host.workers("words")  # type: ignore[union-attr]
    bounds = [
        bound
        for worker in workers
        if isinstance(worker, EpochWorker)
        for bound in worker.epochs.cycle_input.bounds.values()
    ]
    return max((bound.waiting for bound in bounds), default=0)


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_cycle_that_drains_slows_the_spouts_down_and_loses_nothing(tmp_path: Path, workers: int) -> None:
    """Each tuple goes around 12 times: more than may wait would be on the cycle if the spout went on."""
    total, held = 100, 0
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            cycle(Finite(total), Grows(12, 1), 1), conf_at(tmp_path, **{"topology.workers": workers})
        )
        for _ in range(200):
            cluster.advance(0.05)
            status = cluster.last_status("words")
            if status.state == "COMPLETED":
                break
            assert most_waiting(cluster) <= 2 * LIMIT
            held += "waits for a cycle" in status.components["words"].idle
        assert status.state == "COMPLETED", status.errors
        assert held, "the spout has never paused"
        assert cluster.dead_letters("words") == []
        assert status.components["grows"].executed == 13 * total


def test_a_cycle_that_makes_more_than_leaves_it_gets_dead_letters_and_the_topology_goes_on(
    tmp_path: Path,
) -> None:
    letters: dict[str, DeadLetter] = {}
    errors: list[str] = []
    total, rounds, count = 8, 6, 0
    for start in range(4):
        with LocalCluster(simulated_time=True, seed=start) as cluster:
            cluster.submit(cycle(Words(total), Grows(rounds, 2)), conf_at(tmp_path))
            cluster.advance((0.3, 0.15, 0.4, 3.0)[start])
            assert most_waiting(cluster) <= 2 * LIMIT
            status = cluster.status("words")
            assert status.state == "ACTIVE"
            letters.update({letter.id: letter for letter in cluster.dead_letters("words")})
            errors += [error.text for error in status.errors]
            count = executed(cluster)
    assert letters
    # Each tuple stands for those that it would have become.
    lost = sum(2 ** (rounds - letter.values[2] + 1) - 1 for letter in letters.values())
    assert count + lost == total * (2 ** (rounds + 1) - 1)
    sources = {(letter.component, letter.source, letter.stream) for letter in letters.values()}
    assert sources == {("grows", "back", "again")}
    why = f"80 tuples wait on the edge that closes its cycle, 2 times topology.epoch.cycle.tuples ({LIMIT})"
    assert all(why in (letter.failure.error or "") for letter in letters.values())
    assert any(why in error and "makes more tuples than leave it" in error for error in errors)


def test_a_spout_that_waits_for_a_cycle_says_for_which_task_and_how_many_tuples(tmp_path: Path) -> None:
    """Nothing leaves this cycle, and nothing is added: the spouts wait, and epochs go on."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(cycle(Words(10**6), Grows(10**6, 1, secs=0.02), 1), conf_at(tmp_path))
        cluster.advance(8)
        status = cluster.status("words")
        assert status.epoch is not None and status.epoch.number >= 3
        assert status.components["words"].idle == "waits for a cycle"
        [sentence] = wait_sentences(status.epoch).values()
        assert "words[1] has emitted nothing" in sentence
        assert (
            "tuples wait for grows[2] on the edge that closes its cycle (topology.epoch.cycle.tuples: 40)"
            in sentence
        )
        assert LIMIT // 2 < most_waiting(cluster) <= 2 * LIMIT
        assert cluster.dead_letters("words") == []


def test_what_came_round_behind_the_marker_and_cannot_be_kept_is_a_letter_of_that_epoch(
    tmp_path: Path,
) -> None:
    letters: dict[str, DeadLetter] = {}
    count = 0
    for start in range(3):
        with LocalCluster(simulated_time=True, seed=start) as cluster:
            bolt = Grows(20, 1, locked=5)
            conf = conf_at(tmp_path, **{"topology.epoch.secs": 0.02})
            cluster.submit(cycle(Words(20), bolt, 1), conf)
            cluster.advance((0.1, 0.15, 2.0)[start])
            letters.update({letter.id: letter for letter in cluster.dead_letters("words")})
            count = executed(cluster)
    numbers = Counter(letter.values[1] for letter in letters.values())
    lost = sum(21 - letter.values[2] for letter in letters.values())
    assert set(numbers) == {5} and count + lost == 20 * 21
