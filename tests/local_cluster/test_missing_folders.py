"""The folder of a topology's state is gone where a worker starts again: such as a file system that is not mounted there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec import structs

from local_cluster import LocalCluster
from nimbus.submission.keeping import committed_before
from squall.epoch_status import EpochStatus
from squall.values import TopologyState
from tests.local_cluster.test_replaced_state import TRIAL, conf_at, replace, run
from tests.local_cluster.words_with_state import Count, Pass, Words, eventually, words


def told(cluster: LocalCluster) -> None:
    """Let the topology commit, and its workers say so to Nimbus."""
    cluster.advance(3)
    cluster.status("words")
    cluster.advance(3)


def test_the_record_of_a_topology_says_that_it_has_committed(tmp_path: Path) -> None:
    topology = words(Words(2_000, 20), Pass(), Count())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, conf_at(tmp_path))
        nimbus = cluster._engine.nimbus
        assert nimbus.topology("words").committed == 0
        told(cluster)
        first = nimbus.topology("words")
        assert first.committed > 0
        told(cluster)
        assert nimbus.topology("words").committed == first.committed, "it is written once"
        replace(cluster, topology, conf_at(tmp_path))
        run(cluster, 3)
        assert nimbus.topology("words").committed == first.committed
        run(cluster, TRIAL + 5)
        assert nimbus.topology("words").id != first.id


def test_a_topology_that_keeps_nothing_has_committed_nothing() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(2_000, 20), Pass(), Count()))
        told(cluster)
        assert cluster._engine.nimbus.topology("words").committed == 0


@pytest.mark.parametrize("ended", [TopologyState.COMPLETED, TopologyState.FAILED])
def test_the_state_of_an_ended_topology_may_have_been_dropped(tmp_path: Path, ended: TopologyState) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(2_000, 20), Pass(), Count()), conf_at(tmp_path))
        told(cluster)
        record = cluster._engine.nimbus.topology("words")
    submission = structs.replace(record, id="next")  # it has a configuration, too
    assert committed_before(record, submission) == record.committed > 0  # type: ignore[arg-type]
    assert committed_before(structs.replace(record, state=ended), submission) == 0  # type: ignore[arg-type]
    assert committed_before(None, submission) == 0  # type: ignore[arg-type]
    elsewhere = structs.replace(record, conf={**record.conf, "topology.state.path": "file:///elsewhere"})
    assert committed_before(elsewhere, submission) == 0  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_worker_that_finds_no_log_waits_for_it_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    topology = words(Words(1_000_000, 100), Pass(), Count(), 1)
    folder, aside = tmp_path / "state" / "words", tmp_path / "aside"
    with LocalCluster(processes=True) as cluster:
        cluster.submit(
            topology, {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
        )
        nimbus = cluster._engine.nimbus
        eventually(lambda: nimbus.topology("words").committed > 0)
        [worker] = cluster.workers("words")

        def epoch() -> EpochStatus:
            found = cluster.status("words").epoch
            assert found is not None
            return found

        def waits() -> list[str]:
            return [each.why for each in epoch().waits if each.what == "store"]

        eventually(lambda: epoch().number > nimbus.topology("words").committed)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)  # it writes nothing more
        folder.rename(aside)
        counted = epoch().number
        os.kill(worker.pid, signal.SIGKILL)
        eventually(lambda: any("is gone, or not mounted on host" in why for why in waits()))
        assert not folder.exists() and cluster.status("words").state == "ACTIVE"
        aside.rename(folder)
        eventually(lambda: epoch().number > counted and not waits())
        assert (epoch().began or 0) >= counted, "it went on from its last commit"
