"""A foreign or oversized value in ZooKeeper: its topology is marked bad, and the others run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from squall.cluster import paths
from squall.cluster.zookeeper import ZooKeeperStore
from tests.cluster_faults.cluster_run import GAP, ClusterRun, ledger_cluster, store_of
from tests.cluster_faults.daemon_processes import CREDENTIALS
from tests.faults.running import Tally
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


MB = 1024 * 1024


@pytest.fixture(scope="module")
def generous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that accepts larger values than it does by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djute.maxbuffer={8 * MB}")
        with ZooKeeperServer(tmp_path_factory.mktemp("zk")) as server:
            yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, generous: ZooKeeperServer) -> Iterator[ClusterRun]:
    with ledger_cluster(tmp_path_factory.mktemp("values"), generous.servers, slots=4) as run:
        yield run


@pytest.fixture
def run(shared: ClusterRun) -> Iterator[ClusterRun]:
    """A cluster with a second topology, whose records a test damages; it can still be killed, and the first one runs on."""
    shared.another("second", "--wait")
    yield shared
    shared.obey("kill", "second", "-w", "0", "--wait")
    shared.wait_for(lambda: shared.is_gone("second"), "that it is gone")
    shared.wait_for(lambda: len(shared.daemons.living_workers()) == 2, "the end of its workers")
    shutil.rmtree(shared.books.with_name("second"))


def states(run: ClusterRun) -> dict[str, str]:
    """The state of each listed topology."""
    return {one["name"]: one["state"] for one in run.daemons.get("topologies")["topologies"]}


@pytest.mark.parametrize(
    "bad",
    [b"\x00\xff nonsense", b'{"kind":"TopologyRecord","format":99}'],
    ids=["nonsense", "of a newer format"],
)
def test_a_bad_record_is_reported_and_stops_no_other_topology(
    bad: bytes, run: ClusterRun, generous: ZooKeeperServer
) -> None:
    with store_of(run, generous.servers) as store:
        store.put(paths.topology("second"), bad)
    run.wait_for(lambda: states(run).get("second") == "BAD", "that it is reported")
    run.flows_for(2.0, longest_gap=GAP)
    assert states(run)[run.name] == "ACTIVE"
    assert run.failed() == 0


def test_a_value_above_a_megabyte_is_reported_and_stops_no_other_topology(
    run: ClusterRun, generous: ZooKeeperServer
) -> None:
    client = KazooClient(generous.servers, auth_data=[("digest", ":".join(CREDENTIALS))])
    client.start(PATIENCE_SECS)
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
    assert run.failed() == 0


def test_the_size_limit_of_a_topology_is_four_megabytes(
    shared: ClusterRun, generous: ZooKeeperServer, tmp_path: Path
) -> None:
    books = f"books={tmp_path}"
    with store_of(shared, generous.servers) as store:
        before = len(store.children(paths.BLOBS))
        submit = ("submit", str(shared.file), "--", books)
        shared.obey(*submit, "name=large", f"ballast={4 * MB - 20_000}")
        done = shared.daemons.squall(*submit, "name=larger", f"ballast={4 * MB}")
        assert done.returncode == 1
        assert f"but at most {4 * MB:,} are allowed; the largest is 'relay' with" in done.stderr, done.stderr
        assert "--resource" in done.stderr, done.stderr
        assert sorted(shared.names() or ()) == ["large", shared.name]
        assert len(store.children(paths.BLOBS)) == before + 1
    large = Tally(tmp_path)
    shared.wait_for(lambda: large.of("A") >= 50, "tuples of the large topology")
    shared.obey("kill", "large", "-w", "0", "--wait")
    assert shared.failed() == 0


def spoil(store: ZooKeeperStore, above: str) -> None:
    """Replace every value below `path` with nonsense."""
    for name in store.children(above):
        path = f"{above}/{name}"
        if store.get(path) is not None:
            store.put(path, b"nonsense")
        spoil(store, path)


def test_nonsense_in_all_records_of_one_topology_stops_no_other(
    run: ClusterRun, generous: ZooKeeperServer
) -> None:
    """The last test of the cluster: a worker is killed."""
    with store_of(run, generous.servers) as store:
        found = store.get(paths.topology("second"))
        assert found is not None
        body = json.loads(found[0])
        for above in (paths.reports(body["id"]), paths.keys(body["id"]), paths.bundle(body["id"])):
            spoil(store, above)
        store.put(paths.LEADER, b"nonsense")
        # A record that can be decoded but has impossible content.
        store.put(paths.topology("second"), json.dumps({**body, "state": "BOGUS"}).encode())
    run.wait_for(lambda: states(run).get("second") == "BAD", "that it is reported")

    def mine() -> set[int]:
        found = run.daemons.processes()
        return {worker.pid for directory, worker in found.items() if run.name in str(directory)}

    killed = next(iter(mine()))
    os.kill(killed, signal.SIGKILL)
    run.wait_for(lambda: len(mine() - {killed}) == 2, "a process in its place")
    run.flows(200)
