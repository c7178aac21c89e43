"""A value in ZooKeeper that is none of ours, or too big: its topology is marked bad, and the others run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from squall.cluster import paths
from squall.cluster.zookeeper import ZooKeeperStore
from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster, store_of
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def states(run: ClusterRun) -> dict[str, str]:
    """The state of each topology that is listed."""
    return {one["name"]: one["state"] for one in run.daemons.get("topologies")["topologies"]}


@pytest.mark.parametrize(
    "bad",
    [b"\x00\xff nonsense", b'{"kind":"TopologyRecord","format":99}', b"x" * 900_000],
    ids=["nonsense", "of a newer format", "big"],
)
def test_a_bad_record_is_told_of_and_stops_no_other_topology(
    bad: bytes, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, slots=4) as run:
        run.another("second", "--wait")
        with store_of(run, zookeeper.servers) as store:
            store.put(paths.topology("second"), bad)
        run.wait_for(lambda: states(run).get("second") == "BAD", "that it is told of")
        run.flows_for(3.0, longest_gap=2.0)
        assert states(run)[run.name] == "ACTIVE"
        run.obey("kill", "second", "-w", "0", "--wait")
        run.wait_for(lambda: "second" not in states(run), "that it is gone")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "the end of its workers")
        assert run.failed() == 0


def spoil(store: ZooKeeperStore, above: str) -> None:
    """Have nonsense in place of every value below."""
    for name in store.children(above):
        path = f"{above}/{name}"
        if store.get(path) is not None:
            store.put(path, b"nonsense")
        spoil(store, path)


def test_nonsense_in_all_that_belongs_to_one_topology_stops_no_other(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, slots=4) as run:
        run.another("second", "--wait")
        with store_of(run, zookeeper.servers) as store:
            found = store.get(paths.topology("second"))
            assert found is not None
            body = json.loads(found[0])
            for above in (paths.reports(body["id"]), paths.keys(body["id"]), paths.bundle(body["id"])):
                spoil(store, above)
            store.put(paths.LEADER, b"nonsense")
            # A record that can be read, and says what cannot be.
            store.put(paths.topology("second"), json.dumps({**body, "state": "BOGUS"}).encode())
        run.wait_for(lambda: states(run).get("second") == "BAD", "that it is told of")
        mine = [worker for directory, worker in run.daemons.processes().items() if run.name in str(directory)]
        os.kill(mine[0].pid, signal.SIGKILL)
        run.wait_for(
            lambda: mine[0].pid not in {worker.pid for worker in run.daemons.processes().values()},
            "its death",
        )
        run.flows(200, 20.0)
        run.obey("kill", "second", "-w", "0", "--wait")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "the end of its workers")
