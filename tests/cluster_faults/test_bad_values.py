"""A foreign or oversized value in ZooKeeper: its topology is marked bad, and the others run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from squall.cluster import paths
from squall.cluster.zookeeper import ZooKeeperStore
from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster, store_of
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def states(run: ClusterRun) -> dict[str, str]:
    """The state of each listed topology."""
    return {one["name"]: one["state"] for one in run.daemons.get("topologies")["topologies"]}


@pytest.mark.parametrize(
    "bad",
    [b"\x00\xff nonsense", b'{"kind":"TopologyRecord","format":99}'],
    ids=["nonsense", "of a newer format"],
)
def test_a_bad_record_is_reported_and_stops_no_other_topology(
    bad: bytes, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, slots=4) as run:
        run.another("second", "--wait")
        with store_of(run, zookeeper.servers) as store:
            store.put(paths.topology("second"), bad)
        run.wait_for(lambda: states(run).get("second") == "BAD", "that it is reported")
        run.flows_for(3.0, longest_gap=2.0)
        assert states(run)[run.name] == "ACTIVE"
        run.obey("kill", "second", "-w", "0", "--wait")
        run.wait_for(lambda: "second" not in states(run), "that it is gone")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "the end of its workers")
        assert run.failed() == 0


def spoil(store: ZooKeeperStore, above: str) -> None:
    """Replace every value below `path` with nonsense."""
    for name in store.children(above):
        path = f"{above}/{name}"
        if store.get(path) is not None:
            store.put(path, b"nonsense")
        spoil(store, path)


def test_nonsense_in_all_records_of_one_topology_stops_no_other(
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
            # A record that can be decoded but has impossible content.
            store.put(paths.topology("second"), json.dumps({**body, "state": "BOGUS"}).encode())
        run.wait_for(lambda: states(run).get("second") == "BAD", "that it is reported")
        mine = [worker for directory, worker in run.daemons.processes().items() if run.name in str(directory)]
        os.kill(mine[0].pid, signal.SIGKILL)
        run.wait_for(
            lambda: mine[0].pid not in {worker.pid for worker in run.daemons.processes().values()},
            "its death",
        )
        run.flows(200, 20.0)
        run.obey("kill", "second", "-w", "0", "--wait")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "the end of its workers")


MB = 1024 * 1024


@pytest.fixture
def generous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that accepts larger values than it does by default."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djute.maxbuffer={8 * MB}")
    with ZooKeeperServer(tmp_path / "zk") as server:
        yield server


def test_a_value_above_a_megabyte_is_reported_and_stops_no_other_topology(
    tmp_path: Path, generous: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, generous.servers, slots=4) as run:
        run.another("second", "--wait")
        client = KazooClient(generous.servers)
        client.start(10.0)
        try:
            path = run.daemons.root + paths.topology("second")
            whole, _ = client.get(path)
            client.set(path, whole[:-1] + b" " * 2 * MB + whole[-1:])
        finally:
            client.stop()
            client.close()
        run.wait_for(lambda: run.state_of("second") == "BAD", "that it is reported")
        assert "bytes" in run.status_of("second")["error"]
        run.rest_and_go_on()
        run.flows()
        run.obey("kill", "second", "-w", "0", "--wait")
        run.wait_for(lambda: run.names() == [run.name], "that it is gone")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 2, "the end of its workers")
        assert run.failed() == 0


def test_the_size_limit_of_a_topology_is_four_megabytes(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers, ballast=4 * MB - 20_000) as run:
        books = f"books={run.books}"
        done = run.daemons.squall("submit", str(run.file), "--", books, "name=larger", f"ballast={4 * MB}")
        assert done.returncode == 1
        assert f"of at most {4 * MB:,}; the largest is 'relay' with" in done.stderr, done.stderr
        assert "--resource" in done.stderr, done.stderr
        assert run.names() == [run.name]
        with store_of(run, zookeeper.servers) as store:
            assert len(store.children(paths.BLOBS)) == 1
        run.flows()
        assert run.failed() == 0
