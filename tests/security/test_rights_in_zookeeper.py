"""A ZooKeeper that a stranger prepared or that an operator left open: no Nimbus hands out a secret there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from nimbus.daemon import NimbusDaemon
from nimbus.security import access
from squall.cluster.records import NimbusRecord, encode
from squall.cluster.zookeeper import ZooKeeperStore
from squall.http.client import Client, Refused
from squall.security.sealing import KeyPair
from squall.security.tokens import bearer
from tests.nimbus_http.nimbuses import Cluster, until
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer

pytestmark = pytest.mark.slow

OURS = ("squall", "secret")
OWN = make_digest_acl(*OURS, all=True)
EVERY_ADDRESS = make_acl("ip", "0.0.0.0/0", all=True)


@pytest.fixture
def store(zookeeper: ZooKeeperServer, zookeeper_root: str) -> Iterator[ZooKeeperStore]:
    """A store with credentials; it is not connected yet."""
    found = ZooKeeperStore(zookeeper.servers, root=zookeeper_root, session_secs=4, credentials=OURS)
    yield found
    found.close()


@pytest.fixture
def nimbuses(store: ZooKeeperStore, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(store, tmp_path)
    yield found
    found.stop()


@contextmanager
def stranger_at(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.servers)
    client.start(PATIENCE_SECS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def refusal(nimbus: NimbusDaemon) -> str:
    """What an operator reads who asks this Nimbus to change something; "" while it leads."""
    client = Client([nimbus.url], lambda _: bearer(nimbus.token or "none yet"))
    try:
        client.post("supervisors/none/undrain", None)
    except Refused as error:
        return str(error) if error.kind == "NoLeader" else ""
    finally:
        client.close()
    return ""


def test_the_token_is_not_sealed_into_a_tree_with_open_children(
    zookeeper: ZooKeeperServer, zookeeper_root: str, store: ZooKeeperStore, nimbuses: Cluster
) -> None:
    mallory = NimbusRecord("mallory", "http://127.0.0.1:1", "mallory", KeyPair.make().public)
    with stranger_at(zookeeper) as stranger:
        stranger.create(zookeeper_root, b"", acl=[OWN, EVERY_ADDRESS])
        stranger.create(f"{zookeeper_root}/nimbuses", b"", acl=[OWN, EVERY_ADDRESS])
        stranger.create(f"{zookeeper_root}/nimbuses/mallory", encode(mallory), acl=[OWN, EVERY_ADDRESS])
        stranger.set_acls(zookeeper_root, [OWN])  # the root looks as it should
    store.start(PATIENCE_SECS)
    nimbus = nimbuses.start("n1")
    until(lambda: nimbus._control.why_not_leading, "the reason not to lead")
    assert f"{zookeeper_root}/nimbuses" in (nimbus._control.why_not_leading or "")
    assert "ip:0.0.0.0/0 (cdrwa)" in (nimbus._control.why_not_leading or "")
    assert not nimbus.leading and nimbus.token is None
    assert store.children("/keys") == []


def test_a_leader_that_finds_an_open_node_stops_leading_and_goes_on_when_it_is_closed(
    zookeeper: ZooKeeperServer,
    zookeeper_root: str,
    store: ZooKeeperStore,
    nimbuses: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "PAUSE_SECS", 0.2)
    monkeypatch.setattr(access, "AGAIN_SECS", 0.2)
    store.start(PATIENCE_SECS)
    nimbus = nimbuses.start_leader("n1")
    operator = KazooClient(zookeeper.servers, auth_data=[("digest", ":".join(OURS))])
    operator.start(PATIENCE_SECS)
    try:
        operator.set_acls(f"{zookeeper_root}/leadership", [OWN, EVERY_ADDRESS])
        until(lambda: f"{zookeeper_root}/leadership" in refusal(nimbus), "the refusal")
        assert "ip:0.0.0.0/0 (cdrwa)" in refusal(nimbus) and not nimbus.leading
        client = Client([nimbus.url], lambda _: bearer(nimbus.token or ""))
        assert "ip:0.0.0.0/0 (cdrwa)" in client.get("nimbuses")["why"], "`squall nimbuses` says it, too"
        client.close()
        mallory = NimbusRecord("mallory", "http://127.0.0.1:1", "mallory", KeyPair.make().public)
        store.put("/nimbuses/mallory", encode(mallory))
        operator.set_acls(f"{zookeeper_root}/leadership", [OWN])
        store.delete("/nimbuses/mallory")
        until(lambda: nimbus.leading, "the lead")
        assert refusal(nimbus) == ""
        assert store.children("/keys/operator") == [nimbus.me.id]
    finally:
        operator.stop()
        operator.close()
