"""Too few slots: a topology of processes is squeezed into them, and spread when there are more, without a failure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_cluster import LocalCluster, process_engine
from local_cluster.process_engine import ProcessEngine
from supervisor.agent import Supervisor
from tests.local_cluster.process_topologies import Keeps, Notes, Numbers, line, noted, wait_until
from topology_api import InvalidConfig

CAP = 60.0
TIMEOUT = "nimbus.supervisor.timeout.secs"
#: Far less than the default of `nimbus.supervisor.timeout.secs`, far more than any step here takes.
BEFORE_THE_DEFAULT = 20.0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters keep their files."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the components write."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def two_slots(state: Path) -> Iterator[LocalCluster]:
    with LocalCluster(processes=True, supervisors=1, slots=2) as cluster:
        yield cluster
    assert list(state.iterdir()) == []


def engine_of(cluster: LocalCluster) -> ProcessEngine:
    engine = cluster._engine
    assert isinstance(engine, ProcessEngine)
    return engine


def supervisors_of(cluster: LocalCluster) -> list[str]:
    """The supervisors that Nimbus counts as live."""
    return sorted(record.id for record in engine_of(cluster).registry.all_supervisors())


@contextmanager
def silent(supervisor: Supervisor) -> Iterator[None]:
    """Suspend a supervisor, as if its host were cut off; resume it afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "next_time", lambda now: now + 0.1)
        patch.setattr(supervisor, "sync", lambda now: None)
        yield


def spread(cluster: LocalCluster, name: str, workers: int) -> bool:
    """Whether a topology runs over this many workers and is stable."""
    status = cluster.status(name)
    return status.state == "ACTIVE" and status.workers == len(cluster.workers(name)) == workers


def runs_in(folder: Path, cluster: LocalCluster, name: str) -> bool:
    """Whether each process of the topology that has tasks of its bolt has written something."""
    pids = {view.pid for view in cluster.workers(name) if set(view.tasks) & {2, 3}}
    return bool(pids) and pids <= {pid for _, pid in noted(folder, "bolt1")}


def test_a_squeezed_topology_is_spread_when_another_is_killed_and_loses_nothing(
    two_slots: LocalCluster, folder: Path
) -> None:
    cluster = two_slots
    cluster.submit(line("first", Numbers(None, 0.01), Keeps(), workers=1))
    cluster.submit(line("second", Numbers(None, 0.001), Notes(folder), workers=2))
    wait_until(lambda: spread(cluster, "second", 1) and runs_in(folder, cluster, "second"))
    (squeezed,) = cluster.workers("second")
    assert sorted(squeezed.tasks) == [1, 2, 3]
    cluster.kill("first", wait_secs=0)
    wait_until(lambda: spread(cluster, "second", 2) and runs_in(folder, cluster, "second"))
    tasks = sorted(view.tasks for view in cluster.workers("second"))
    assert sorted(task for some in tasks for task in some) == [1, 2, 3]
    cluster.kill("second")
    wait_until(lambda: cluster.topologies() == [])
    spout = cluster.last_status("second").components["numbers"]
    assert spout.emitted == spout.acked > 0
    assert spout.failed == 0, "it was drained before it was spread"


@pytest.mark.slow
def test_a_squeezed_topology_is_spread_when_a_silent_supervisor_comes_back(
    state: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_engine, "LEASE_SECS", 3.0)
    settings: tuple[dict[str, object], dict[str, object]] = ({TIMEOUT: 5}, {})
    with LocalCluster(processes=True, supervisors=2, slots=1, settings=settings) as cluster:
        with silent(engine_of(cluster).supervisors[1]):
            wait_until(lambda: supervisors_of(cluster) == ["local-1"], BEFORE_THE_DEFAULT)
            cluster.submit(line("words", Numbers(None, 0.001), Notes(folder), workers=2))
            wait_until(lambda: spread(cluster, "words", 1) and runs_in(folder, cluster, "words"))
        wait_until(lambda: spread(cluster, "words", 2) and runs_in(folder, cluster, "words"))
        assert supervisors_of(cluster) == ["local-1", "local-2"]
        assert len({view.directory.parents[3] for view in cluster.workers("words")}) == 2, "one on each"
        cluster.kill("words")
        wait_until(lambda: cluster.topologies() == [])
        spout = cluster.last_status("words").components["numbers"]
        assert spout.emitted == spout.acked > 0
        assert spout.failed == 0
    assert list(state.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", [({TIMEOUT: 2.5}, {}), ({TIMEOUT: 1000}, {TIMEOUT: 2.5})])
def test_a_supervisor_is_given_up_after_the_timeout_of_the_site_or_the_environment(
    state: Path, settings: tuple[dict[str, object], dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_engine, "LEASE_SECS", 0.5)  # no worker runs whose lease would matter
    with LocalCluster(processes=True, supervisors=2, slots=1, settings=settings) as cluster:
        wait_until(lambda: supervisors_of(cluster) == ["local-1", "local-2"])
        with silent(engine_of(cluster).supervisors[1]):
            wait_until(lambda: supervisors_of(cluster) == ["local-1"], BEFORE_THE_DEFAULT)
        wait_until(lambda: supervisors_of(cluster) == ["local-1", "local-2"])


@pytest.mark.parametrize(
    ("value", "problem"), [("soon", "is 'soon'"), (5, "so give 12 or more"), (0, "is 0")]
)
def test_an_invalid_time_or_one_below_the_lease_is_refused_before_the_start(
    state: Path, value: object, problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=rf"'nimbus.supervisor.timeout.secs' .*{problem}"):
        LocalCluster(processes=True, settings=({TIMEOUT: value}, {}))
    assert list(state.iterdir()) == []
