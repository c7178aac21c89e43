"""ZooKeeper is frozen, killed, or comes back empty: tuples and epochs go on, commands report it at once, and all recovers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import GAP, ClusterRun, ledger_cluster
from tests.cluster_faults.cluster_topology import QUICK
from tests.repository.promised_bounds import allowed
from tests.zookeeper_servers import ZooKeeperServer
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds without ZooKeeper: longer than a session, a lease, and the time after which a silent supervisor is given up, 12.
AWAY = 14.0
#: Seconds with a ZooKeeper that lost its data: longer than a session lives, and longer than a lease without a supervisor.
EMPTY = 12.0


def submit_is_refused(run: ClusterRun) -> None:
    """A submit reports that the cluster cannot accept it: in time, not counting what the command needs to start and to read the
    file."""
    began = time.monotonic()
    assert run.daemons.squall(
        "submit", str(run.file), "-o", "topology.workers=no", "--", f"books={run.books}"
    ).returncode
    start = time.monotonic() - began
    began = time.monotonic()
    done = run.daemons.squall("submit", str(run.file), "--name", "other", "--", f"books={run.books}")
    seconds = time.monotonic() - began
    assert done.returncode == 1
    assert "unavailable" in done.stderr.lower() or "cannot be reached" in done.stderr.lower(), done.stderr
    assert seconds - start <= allowed("unavailable"), (
        f"it took {seconds:.1f} s, {start:.1f} of them to start: {done.stderr}"
    )


def deactivated(run: ClusterRun) -> bool:
    run.daemons.client.post(f"topologies/{run.name}/deactivate")
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for the tests of this file."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zk")) as server:
        yield server


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, server: ZooKeeperServer) -> Iterator[ClusterRun]:
    """A cluster over it; a test leaves it whole, except for the last one."""
    with ledger_cluster(tmp_path_factory.mktemp("away"), server.servers) as run:
        yield run


def last_commit(state: Path, name: str) -> int:
    """The number of the last epoch that a topology has committed; 0: none."""
    return max(
        (each.record.epoch for each in CommittedState(EpochFiles(str(state), name)).epochs()), default=0
    )


@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.soak), "gone"])
def test_tuples_and_epochs_flow_while_zookeeper_is_away_and_commands_work_when_it_is_back(
    how: str, run: ClusterRun, server: ZooKeeperServer, soak: float, tmp_path: Path
) -> None:
    [nimbus] = run.daemons.nimbuses
    run.another(how, "-o", f"topology.state.path=file://{tmp_path}", "-o", "topology.epoch.secs=0.5")
    run.wait_for(lambda: last_commit(tmp_path, how), "the first commit")
    before = run.pids()
    server.freeze() if how == "frozen" else server.kill()
    began = time.monotonic()
    run.flows_for(2.0, longest_gap=GAP)
    submit_is_refused(run)
    nimbus.freeze()  # no daemon is needed for an epoch
    run.flows_for(max(0.0, began + AWAY * soak - time.monotonic()), longest_gap=GAP)
    reached = last_commit(tmp_path, how)
    run.wait_for(lambda: last_commit(tmp_path, how) >= reached + 3, "three commits more")
    nimbus.thaw()
    server.thaw() if how == "frozen" else server.start()
    back = time.monotonic()
    run.is_whole()
    run.wait_for(lambda: run.daemons.asked(lambda: deactivated(run)), "an accepted command")
    assert time.monotonic() - back <= allowed("back")
    run.rest_and_go_on()
    run.flows()
    assert run.pids() == before
    assert run.failed() == 0
    run.obey("kill", how, "-w", "0", "--wait")


def test_no_worker_is_killed_when_zookeeper_comes_back_empty(
    run: ClusterRun, server: ZooKeeperServer
) -> None:
    before = run.pids()
    server.wipe()
    run.flows_for(EMPTY, longest_gap=GAP)
    assert run.pids() == before
    assert run.failed() == 0
    for daemon in (*run.daemons.nimbuses, *run.daemons.supervisors):
        assert "the store is empty" in daemon.text(), daemon.text()[-2000:]
    # The next step is the operator's decision; here the source ends, and the workers with their daemons.
    run.daemons.end()
    run.total.emitted = 1


def test_the_quick_settings_are_those_of_the_worker_tests() -> None:
    from tests.faults.running import QUICK as WORKERS

    assert dict(WORKERS) == QUICK
