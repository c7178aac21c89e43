"""Two Nimbuses, two supervisors and a ZooKeeper ensemble of three servers, which loses its leader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import GAP, ledger_cluster
from tests.zookeeper_servers import Ensemble

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def test_an_ensemble_that_loses_its_leader_disturbs_no_topology(tmp_path: Path) -> None:
    with (
        Ensemble(tmp_path / "zk", 3) as ensemble,
        ledger_cluster(tmp_path, ensemble.servers, nimbuses=2) as run,
    ):
        before = {started.pid for started in run.daemons.processes().values()}
        lost = ensemble.leader()
        ensemble.kill(lost)
        run.flows_for(5.0, longest_gap=GAP)
        run.wait_for(lambda: run.daemons.leader() is not None, "a leading Nimbus")
        run.rest_and_go_on()
        run.flows()
        ensemble.start(lost)
        run.flows()
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0
