"""A local cluster refuses a topology that gives less than `topology.require`; a test with fixed values runs it all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from tests.local_cluster.words_with_state import Pass, Rows, Words, words_to_rows
from topology_api import InvalidConfig, Topology

REQUIRED = {"topology.require": "exactly-once"}


def words(folder: Path) -> Topology:
    return words_to_rows(Words(10), Pass(), Rows(str(folder / "rows")))


def test_submit_refuses_less_than_is_required_with_the_reason(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        with pytest.raises(InvalidConfig) as caught:
            cluster.submit(words(tmp_path), REQUIRED)
        assert caught.value.problems == (
            "topology.require is exactly-once, but topology.state.path is not set, so tuples that are emitted again are "
            "processed and written again: give a folder as file:///path or hdfs://host:port/path",
        )
        assert cluster.topologies() == []


def test_submit_accepts_a_topology_that_gives_what_is_required(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit(words(tmp_path), {**REQUIRED, "topology.state.path": f"file://{tmp_path}/state"})
        assert cluster.topologies() == ["words"]


def test_a_test_with_fixed_values_runs_although_they_cannot_rewind(tmp_path: Path) -> None:
    topology = words(tmp_path).with_conf(REQUIRED)
    done = complete_topology(topology, {topology.spouts[0].id: [("a", 1), ("a", 2)]})
    assert done.status.state == "COMPLETED"
