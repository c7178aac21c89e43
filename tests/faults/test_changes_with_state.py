"""Orderly changes of a topology with state, on real processes and in the middle of epochs; and keys that are huge.

`tests/local_cluster/test_epochs_of_changes.py` plays the same at any moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from local_cluster import LocalCluster
from squall.stores.files import AbsentFile
from tests.faults.every_kind_with_state import committed, conf_at
from tests.faults.running import cluster_without_leaks
from tests.local_cluster.keeping_words import Gathers
from tests.local_cluster.test_epoch_faults import HugeWords
from tests.local_cluster.words_with_state import Count, Words, eventually, expected, words
from topology_api import Topology

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(600)]


def acked(cluster: LocalCluster) -> int:
    return cluster.status("words").components["words"].acked


def flows(cluster: LocalCluster) -> None:
    """Wait for two more commits that hold tuples."""
    for _ in range(2):
        before = acked(cluster)
        eventually(lambda before=before: acked(cluster) > before)  # type: ignore[misc]


def settled(cluster: LocalCluster, workers: int) -> None:
    eventually(
        lambda: cluster.status("words").state == "ACTIVE" and len(cluster.workers("words")) == workers, 120
    )


def counted(folder: Path, component: str, state: str) -> dict[str, int]:
    return {key[:2]: value for key, value in committed(folder, component, state).items()}


def all_are_seen(folder: Path, total: int) -> bool:
    """Whether the last bolt has committed as many tuples."""
    time.sleep(0.2)  # all snapshots are read
    with contextlib.suppress(AbsentFile):  # the topology may sweep what is read here
        return sum(counted(folder, "newest", "seen").values()) >= total
    return False


def test_pauses_drains_rebalances_and_kills_in_the_middle_of_epochs_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    draw, total = Random(0), 4_000
    conf = conf_at(tmp_path, **{"topology.workers": 2, "topology.epoch.secs": 0.5})

    def topology() -> Topology:
        return words(Words(total, 200), Gathers(7, 0.01), Count(0.01))

    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(topology(), conf)
        flows(cluster)
        cluster.deactivate("words")
        cluster.activate("words")
        flows(cluster)
        for at in (0, 1):  # SIGTERM drains a worker
            victim = sorted(cluster.workers("words"), key=lambda each: each.worker)[at]
            os.kill(victim.pid, signal.SIGTERM)
            eventually(lambda pid=victim.pid: pid not in {each.pid for each in cluster.workers("words")})  # type: ignore[misc]
            settled(cluster, 2)
            flows(cluster)
        cluster.rebalance("words", 3, {"count": 3})
        settled(cluster, 3)
        flows(cluster)
        cluster.rebalance("words", 1, {"count": 1, "pass": 3})
        settled(cluster, 1)
        for wait in (30, 0):
            flows(cluster)
            cluster.kill("words", wait_secs=wait)
            eventually(lambda: "words" not in cluster.topologies())
            cluster.submit(topology(), {**conf, "topology.workers": draw.choice([1, 2])})
        eventually(lambda: all_are_seen(tmp_path, total), 120)
        cluster.kill("words")
        eventually(lambda: "words" not in cluster.topologies())
    wanted = expected(list(range(total)))
    assert counted(tmp_path, "count", "times") == {word: each[0] for word, each in wanted.items()}
    assert counted(tmp_path, "count", "total") == {word: each[1] for word, each in wanted.items()}
    assert counted(tmp_path, "newest", "seen") == {word: each[2] for word, each in wanted.items()}


def test_keys_of_a_megabyte_count_once_when_workers_are_killed(tmp_path: Path) -> None:
    total = 60
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(
            words(Words(total, 10), HugeWords(), Count()), conf_at(tmp_path, **{"topology.workers": 2})
        )
        for at in (0, 1):
            flows(cluster)
            victim = sorted(cluster.workers("words"), key=lambda each: each.worker)[at]
            os.kill(victim.pid, signal.SIGKILL)
            eventually(lambda pid=victim.pid: pid not in {each.pid for each in cluster.workers("words")})  # type: ignore[misc]
            settled(cluster, 2)
        eventually(lambda: all_are_seen(tmp_path, total), 120)
        cluster.kill("words")
        eventually(lambda: "words" not in cluster.topologies())
    wanted = {word: each[0] for word, each in expected(list(range(total))).items()}
    assert counted(tmp_path, "count", "times") == wanted
    assert counted(tmp_path, "newest", "seen") == wanted
