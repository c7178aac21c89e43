"""Users and Nimbus change a topology in the middle of an epoch, at any moment and in any order: each tuple counts once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.keeping_words import Gathers
from tests.local_cluster.words_with_state import Count, Pass, Words, counts, expected, words
from topology_api import Topology


@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 40))])
def test_pauses_rebalances_and_kills_at_any_moment_of_an_epoch_lose_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(f"changes/{seed}")
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 1.0, "topology.workers": 2}
    total = 800

    def topology() -> Topology:
        return words(Words(total, 100), Gathers(draw.choice([3, 20]), 0.02), Count(0.02))

    with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:

        def pause() -> None:
            cluster.deactivate("words")
            cluster.advance(draw.uniform(0.0, 2.5))
            cluster.activate("words")

        def rebalance() -> None:
            cluster.rebalance("words", draw.choice([1, 2, 3]))

        def rescale() -> None:
            cluster.rebalance("words", parallelism={draw.choice(["pass", "count"]): draw.choice([1, 2, 3])})

        def kill() -> None:
            """With time for a last epoch, or without: then what is not committed is void."""
            cluster.kill("words", wait_secs=draw.choice([0, 0, 30]))
            while "words" in cluster.topologies():
                cluster.advance(0.5)
            cluster.submit(topology(), conf)

        changes: list[Callable[[], None]] = [pause, rebalance, rescale, kill]
        cluster.submit(topology(), conf)
        for _ in range(6):
            cluster.advance(draw.uniform(0.0, 2.5))
            change = draw.choice(changes)
            while change is not kill and cluster.status("words").state == "REBALANCING":
                cluster.advance(0.1)
            change()
        cluster.advance(60)
        assert counts(cluster) == expected(list(range(total)))
        assert cluster.dead_letters("words") == []


def test_the_snapshots_of_a_spout_do_not_grow_with_the_age_of_the_topology(tmp_path: Path) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2, "topology.epoch.keep": 3}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(1000, 20), Pass(), Count()), conf)
        found = []
        for _ in range(2):
            cluster.advance(10)
            files = [*(tmp_path / "words" / "snapshots").glob("*-words.0")]
            found.append((len(files), max(file.stat().st_size for file in files)))
        (few, small), (many, large) = found
    assert many <= few <= 3 + 2  # those that are kept, and those that are being written or removed
    assert large <= small + 20
