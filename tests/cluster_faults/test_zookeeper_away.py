"""ZooKeeper is frozen, killed, or comes back empty: tuples keep flowing, commands report it at once, and all recovers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.cluster_topology import QUICK
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds without ZooKeeper.
AWAY = 30.0
#: Seconds with a ZooKeeper that lost its data: longer than a session lives, and longer than a lease without a supervisor.
EMPTY = 12.0


def submit_is_refused(run: ClusterRun) -> None:
    """A submit reports that the cluster cannot accept it: within five seconds plus the time to start and to pack."""
    began = time.monotonic()
    done = run.daemons.squall("submit", str(run.file), "--name", "other", "--", f"books={run.books}")
    seconds = time.monotonic() - began
    assert done.returncode == 1
    assert "unavailable" in done.stderr.lower() or "cannot be reached" in done.stderr.lower(), done.stderr
    assert seconds < 25.0, f"it took {seconds:.1f} s: {done.stderr}"


def is_whole_again(run: ClusterRun) -> None:
    """A command succeeds again, and the workers are the same processes."""
    run.wait_for(lambda: run.daemons.leader() is not None, "a leader", 20.0)
    run.wait_for(
        lambda: len(run.daemons.supervisors_there()) == len(run.daemons.supervisors), "all supervisors", 20.0
    )
    assert run.state() == "ACTIVE"


@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_tuples_flow_while_zookeeper_is_away_and_commands_work_when_it_is_back(
    how: str, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server, ledger_cluster(tmp_path, server.servers) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        server.freeze() if how == "frozen" else server.kill()
        began = time.monotonic()
        run.flows_for(2.0, longest_gap=2.0)
        submit_is_refused(run)
        run.flows_for(max(0.0, began + AWAY - time.monotonic()), longest_gap=2.0)
        server.thaw() if how == "frozen" else server.start()
        is_whole_again(run)
        run.flows()
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0


def test_no_worker_is_killed_when_zookeeper_comes_back_empty(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server, ledger_cluster(tmp_path, server.servers) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        server.wipe()
        run.flows_for(EMPTY, longest_gap=2.0)
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0
        for daemon in (*run.daemons.nimbuses, *run.daemons.supervisors):
            assert "the store is empty" in daemon.text(), daemon.text()[-2000:]
        # The next step is the operator's decision; here the source ends, and the workers with their daemons.
        run.daemons.end()
        run.total.emitted = 1


def test_the_quick_settings_are_those_of_the_worker_tests() -> None:
    from tests.faults.running import QUICK as WORKERS

    assert dict(WORKERS) == QUICK
