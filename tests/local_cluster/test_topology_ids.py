"""Ids of topologies in local clusters: no two submissions share one, in any cluster, second or simulated time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology, run_bolt
from squall.cluster.paths import quoted
from squall.cluster.registry import name_of, number_of
from squall_io.spark import HdfsLines
from squall_io.spark.manifest.layout import safe
from tests.local_cluster.recording import JOURNAL, Numbers
from topology_api import Bolt, Context, Spout, Topology, TopologyBuilder, Tuple

NAME = "some-topology-7"
NOW = 1_700_000_000


class Recording(Bolt):
    """Records the id that it runs under, and passes its tuples on."""

    outputs = ("line",)

    def prepare(self, context: Context) -> None:
        JOURNAL.note("id", context.topology_id)

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],))


def topology(spout: Spout | None = None) -> Topology:
    builder = TopologyBuilder(NAME)
    builder.set_spout("source", spout or Numbers(1))
    builder.set_bolt("told", Recording()).shuffle_grouping("source")
    return builder.build()


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything happens within one second."""
    monkeypatch.setattr("local_cluster.stamps.time", SimpleNamespace(time=lambda: NOW + 0.5))
    JOURNAL.clear()
    yield
    JOURNAL.clear()


def in_a_cluster(simulated_time: bool, processes: bool = False) -> None:
    with LocalCluster(simulated_time=simulated_time, processes=processes) as cluster:
        cluster.submit(topology())
        record = cluster._engine.registry.topologies.get(NAME)
        assert record is not None
        JOURNAL.note("id", record.id)


def in_worker_processes() -> None:
    in_a_cluster(False, processes=True)


RUNS: dict[str, Callable[[], object]] = {
    "simulated time": lambda: in_a_cluster(True),
    "real time": lambda: in_a_cluster(False),
    "complete_topology": lambda: complete_topology(topology()),
    "run_bolt": lambda: run_bolt(Recording(), [("x",)]),
}


def ids_of(run: Callable[[], object]) -> set[str]:
    JOURNAL.clear()
    run()
    return {id for (id,) in JOURNAL.of("id")}


@pytest.mark.parametrize(
    "run",
    [*RUNS.values(), pytest.param(in_worker_processes, marks=pytest.mark.slow)],
    ids=[*RUNS, "processes"],
)
def test_runs_in_one_second_have_different_ids_that_begin_like_those_of_a_cluster(
    run: Callable[[], object],
) -> None:
    (one,), (other,) = ids_of(run), ids_of(run)
    assert one != other
    for id in (one, other):
        name, number, stamp = id.rsplit("-", 2)
        assert (name_of(id), number_of(id)) == (name, int(number)) and number == "1"
        assert re.fullmatch(rf"{NOW}_[0-9a-f]{{8}}", stamp)
        assert quoted(id) == safe(id) == id, "it is usable in paths and file names unchanged"


def test_a_topology_submitted_again_in_one_cluster_has_another_id() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        ids = set()
        for _ in range(3):
            cluster.submit(topology())
            record = cluster._engine.registry.topologies.get(NAME)
            assert record is not None
            ids.add((number_of(record.id), record.id))
            cluster.kill(NAME, wait_secs=0)
            cluster.advance(60)
    assert sorted(number for number, _ in ids) == [1, 2, 3]


def test_a_topology_that_completes_twice_reads_the_files_of_its_folder_twice(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n2\n")
    for _ in range(2):
        done = complete_topology(topology(HdfsLines(str(tmp_path / "in"))))
        assert done.emitted("told") == [("1",), ("2",)]


def test_with_a_folder_of_positions_a_second_run_reads_only_new_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).write_text(f"{name}\n")
        lines = HdfsLines(str(tmp_path / "in"), positions=str(tmp_path / "positions"))
        assert complete_topology(topology(lines)).emitted("told") == [(name,)]
