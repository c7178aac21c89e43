"""The wall clock of every daemon steps by an hour, forward and back: nothing ends early, and nothing waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import GAP, ledger_cluster
from tests.stepped_clock import SteppedClock
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def test_steps_of_the_wall_clock_change_nothing(
    tmp_path: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock(tmp_path, monkeypatch)
    monkeypatch.setattr(
        "tests.cluster_faults.daemon_processes.ROOT", f"{clock.folder}:{Path(__file__).resolve().parents[2]}"
    )
    with ledger_cluster(tmp_path, zookeeper.servers, nimbuses=2) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        for step in (3600, -3600, 0):
            clock.set(step)
            run.flows_for(3.0, longest_gap=GAP)
            assert run.state() == "ACTIVE"
        # A drain during which the clock steps ends on time.
        clock.set(0)
        assert {started.pid for started in run.daemons.processes().values()} == before
        run.drain()
        run.daemons.client.delete(f"topologies/{run.name}", wait_secs=5)
        clock.set(-3600)
        old = run.daemons.leader()
        assert old is not None
        run.daemons.nimbuses[old].kill()
        run.wait_for(lambda: run.daemons.leader() == 1 - old, "the other Nimbus")
        run.wait_for(lambda: run.is_gone(run.name), "the end of the topology")
        assert not run.total.failed
