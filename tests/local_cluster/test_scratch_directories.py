"""A local cluster writes nothing to disk until a task asks for its scratch directory, and leaves nothing there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout
from topology_api import Bolt, Context, Topology, TopologyBuilder, Tuple

MADE: list[Path] = []


class Quiet(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


class Writes(Bolt):
    def prepare(self, context: Context) -> None:
        MADE.append(context.directory)
        (context.directory / "notes").write_text("mine")

    def execute(self, tup: Tuple) -> None:
        pass


def topology(bolt: Bolt) -> Topology:
    builder = TopologyBuilder("scratch")
    builder.set_spout("source", ScriptedSpout("number", [(1,)]))
    builder.set_bolt("bolt", bolt, parallelism=2).shuffle_grouping("source")
    return builder.build()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    MADE.clear()
    return tmp_path


def test_nothing_is_written_unless_a_task_asks(temporary: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Quiet()))
        cluster.advance(1)
        cluster.wait("scratch")
        assert list(temporary.iterdir()) == []


def test_each_task_has_a_private_directory_and_all_are_gone_after_shutdown(temporary: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Writes()), active=False)
        assert list(temporary.iterdir()) == []
        cluster.activate("scratch")
        assert len(set(MADE)) == 2
        assert all(path.is_relative_to(temporary) for path in MADE)
        assert len(list(temporary.iterdir())) == 1
    assert list(temporary.iterdir()) == []


def test_two_clusters_do_not_share_directories(temporary: Path) -> None:
    with LocalCluster(simulated_time=True) as one, LocalCluster(simulated_time=True) as two:
        one.submit(topology(Writes()))
        two.submit(topology(Writes()))
    assert len(set(MADE)) == 4
