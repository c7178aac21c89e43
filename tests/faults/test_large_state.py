"""A million keys in one epoch, and a map of a million items under one key, when workers are killed: the state is exact.

`tests/local_cluster/test_epoch_faults.py` plays the same in one process.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.faults.every_kind_with_state import committed, conf_at
from tests.faults.running import cluster_without_leaks
from tests.local_cluster.test_epoch_faults import OwnKeys
from tests.local_cluster.words_with_state import Count, Finite, OneWord, Words, eventually
from topology_api import Bolt, MapState, Spout, StatefulBolt, Topology, TopologyBuilder, Tuple
from worker.epochs.records import CommitRecord
from worker.loop.epoch_store import EpochFiles

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1_200)]

MILLION = 1_000_000
#: Tuples behind the million, and how many come in a second.
MORE, A_SECOND = 400, 40


def to_bolt(spout: Spout, between: Bolt, bolt: Bolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("pass", between, 2).shuffle_grouping("words")
    builder.set_bolt("bolt", bolt, 2).fields_grouping("pass", "word")
    return builder.build()


def kill_each(cluster: LocalCluster) -> None:
    """Kill both workers, each after a commit, and wait until there is another process."""
    for number in (0, 1):
        before = cluster.status("words").components["words"].acked
        eventually(lambda before=before: cluster.status("words").components["words"].acked > before, 300)  # type: ignore[misc]
        victim = sorted(cluster.workers("words"), key=lambda each: each.worker)[number].pid
        os.kill(victim, signal.SIGKILL)
        eventually(lambda pid=victim: pid not in {each.pid for each in cluster.workers("words")})  # type: ignore[misc]
        eventually(lambda: len(cluster.workers("words")) == 2)


def all_committed(cluster: LocalCluster) -> bool:
    spout = cluster.status("words").components["words"]
    return spout.idle == "source empty" and spout.uncommitted == 0


def test_a_million_keys_of_one_epoch_are_there_after_kills(tmp_path: Path) -> None:
    # No epoch ends before the topology is killed.
    conf = conf_at(tmp_path, **{"topology.workers": 2, "topology.epoch.secs": 3_600})
    conf |= {"topology.epoch.uncommitted": MILLION + 1}
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(to_bolt(Words(MILLION), OwnKeys(), Count()), conf)
        eventually(lambda: cluster.status("words").components["bolt"].executed == MILLION, 600)
        cluster.kill("words", wait_secs=300)
        eventually(lambda: "words" not in cluster.topologies(), 300)
        records = EpochFiles(f"file://{tmp_path}/state", "words").records_after(0)
        assert len([record for record in records if isinstance(record, CommitRecord)]) == 1
        conf["topology.epoch.secs"] = 0.2
        cluster.submit(to_bolt(Words(MILLION + MORE, A_SECOND), OwnKeys(), Count()), conf)
        kill_each(cluster)
        eventually(lambda: all_committed(cluster), 300)
        cluster.kill("words")
        eventually(lambda: "words" not in cluster.topologies())
    assert committed(tmp_path, "bolt", "times") == {f"key {number}": 1 for number in range(MILLION + MORE)}


class OneMap(StatefulBolt):
    """Begins with a million items for its key, and counts one of them for each tuple."""

    key = ("word",)
    items = MapState(int, int)

    def execute(self, tup: Tuple) -> None:
        if not self.items:
            for number in range(MILLION):
                self.items[number] = 0
        self.items[tup["number"]] += 1


def test_a_map_of_a_million_items_under_one_key_is_there_after_kills(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, **{"topology.workers": 2})
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(to_bolt(Finite(MORE, A_SECOND), OneWord(), OneMap()), conf)
        kill_each(cluster)
        cluster.wait("words", 300)
    [(word, found)] = committed(tmp_path, "bolt", "items").items()
    assert word == "w0" and len(found["items"]) == MILLION
    assert dict(found["items"]) == {number: int(number < MORE) for number in range(MILLION)}
