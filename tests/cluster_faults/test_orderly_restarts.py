"""Restarting every daemon in turn, moving work off a host, replacing a version: no tuple fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ledger_cluster
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_rolling_restart_of_all_daemons_fails_no_tuple(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, nimbuses=2, rate=1000) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        for daemon in (*run.daemons.supervisors, *run.daemons.nimbuses):
            assert daemon.stop() == 0, daemon.text()[-2000:]
            run.flows(20)
            daemon.start()
            run.wait_for(lambda: run.daemons.leader() is not None, "a leader")
            run.wait_for(lambda: len(run.daemons.supervisors_there()) == 2, "both supervisors")
            run.flows(20)
        assert {started.pid for started in run.daemons.processes().values()} == before
        run.drain()
        assert not run.total.failed, run.report()
        assert not run.total.orphaned


def test_draining_a_host_moves_its_tasks_and_fails_no_tuple(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, slots=2) as run:
        host = run.daemons.get("supervisors")["supervisors"]
        busy = next(one["id"] for one in host if one["workers"])
        run.obey("drain", busy, "--wait")
        found = {one["id"]: one for one in run.daemons.get("supervisors")["supervisors"]}
        assert found[busy]["drained"] and not found[busy]["workers"]
        run.flows()
        run.drain()
        assert not run.total.failed, run.report()
        run.obey("drain", busy, "--undo")


def test_a_new_version_takes_over_and_fails_no_tuple(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        old = run.status()["id"]
        arguments = [f"books={run.books}", "bolts=4"]
        run.obey("submit", str(run.file), "--replace", "--wait", "--", *arguments)
        assert run.status()["id"] != old
        assert run.status()["components"]["sink"]["tasks"] == 4
        run.flows()
        run.drain()
        assert not run.total.failed, run.report()


def test_a_version_that_does_not_come_up_is_rolled_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    broken = tmp_path / "broken_version.py"
    broken.write_text(
        "from topology_api import Bolt, Spout, TopologyBuilder\n"
        "class Numbers(Spout):\n"
        "    outputs = 'n'\n"
        "    def open(self, context):\n"
        "        raise RuntimeError('no such table')\n"
        "    def next_tuple(self):\n"
        "        pass\n"
        "def topology():\n"
        "    builder = TopologyBuilder('ledger')\n"
        "    builder.set_spout('numbers', Numbers())\n"
        "    return builder.build()\n"
    )
    with ledger_cluster(tmp_path, zookeeper.servers, site={"nimbus.replace.timeout.secs": 6}) as run:
        done = run.daemons.squall("submit", str(broken), "--replace", "--wait")
        assert done.returncode == 1, done.stdout
        assert "no such table" in done.stderr, done.stderr
        run.wait_for(lambda: run.state() == "ACTIVE", "that the old version is there again")
        run.flows()
        run.drain()
        assert not run.total.failed, run.report()
