"""A site whose ZooKeeper was open closes it as docs/cluster.md says, while a topology runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.cluster_faults.cluster_run import ClusterRun, file_to_submit
from tests.cluster_faults.daemon_processes import CREDENTIALS, Daemons
from tests.faults.running import Tally
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer

pytestmark = pytest.mark.slow

OPTION = "squall.zookeeper.credentials.file"
FLAG = "--insecure-zookeeper"


def set_acl(servers: str, root: str) -> None:
    """`setAcl -R ROOT auth::cdrwa` of zkCli.sh."""
    client = KazooClient(servers, auth_data=[("digest", ":".join(CREDENTIALS))])
    client.start(PATIENCE_SECS)
    try:
        nodes = [root]
        for node in nodes:
            nodes += [f"{node}/{name}" for name in client.get_children(node)]
            client.set_acls(node, [make_digest_acl(*CREDENTIALS, all=True)])
    finally:
        client.stop()
        client.close()


def test_an_open_zookeeper_is_closed_without_a_pause_of_the_topology(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    books = tmp_path / "books"
    books.mkdir()
    daemons = Daemons(tmp_path / "cluster", zookeeper.servers, supervisors=1, site={OPTION: None})
    everyone = (*daemons.nimbuses, *daemons.supervisors)
    for daemon in everyone:
        daemon.arguments.append(FLAG)
    with daemons:
        file = file_to_submit(tmp_path / "submitted")
        run = ClusterRun(daemons, books, "ledger", file, Tally(books))
        run.obey("submit", str(file), "--wait", "--", f"books={books}")
        run.flows()
        workers = {started.pid for started in daemons.processes().values()}
        assert all(f"{FLAG}: everyone who can reach ZooKeeper" in daemon.text() for daemon in everyone)
        closed = {**daemons.site, OPTION: str(daemons.folder / "credentials")}
        daemons.site_file.write_text(yaml.safe_dump(closed))
        set_acl(zookeeper.servers, daemons.root)
        for daemon in everyone:
            daemon.stop()
            daemon.arguments.remove(FLAG)
            daemon.start()
        run.wait_for(lambda: daemons.leader() is not None and len(daemons.supervisors_there()) == 1, "both")
        run.flows()
        assert {started.pid for started in daemons.processes().values()} == workers, "the same processes"
        assert run.failed() == 0
        run.kill()
