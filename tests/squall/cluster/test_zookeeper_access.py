"""The access lists of every node of a real ZooKeeper: what strangers left open is found, wherever it is."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, make_acl, make_digest_acl

from squall.cluster.store import OpenToStrangers, Unavailable
from squall.cluster.zookeeper import NoAccess, ZooKeeperStore
from squall.cluster.zookeeper.client import TimedCall
from squall.cluster.zookeeper.store import PAGE
from tests.squall.cluster.store_sessions import Open
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer

pytestmark = pytest.mark.slow

ALICE = ("alice", "a:secret:of-hers")
HERS = make_digest_acl(*ALICE, all=True)
STRANGERS = {
    "world": (make_acl("world", "anyone", all=True), "world:anyone (cdrwa)"),
    "readers": (make_acl("world", "anyone", read=True), "world:anyone (r)"),
    "ip": (make_acl("ip", "0.0.0.0/0", all=True), "ip:0.0.0.0/0 (cdrwa)"),
    "digest": (make_digest_acl("mallory", "hers", all=True), "digest:mallory (cdrwa)"),
}


@contextmanager
def client_of(servers: str, credentials: tuple[str, str] | None = None) -> Iterator[KazooClient]:
    auth = [] if credentials is None else [("digest", ":".join(credentials))]
    client = KazooClient(servers, auth_data=auth)
    client.start(PATIENCE_SECS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def walked(store: ZooKeeperStore) -> int:
    """How many nodes a whole walk checks."""
    return sum(store.walk_access())


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("where", ["", "/nimbuses", "/deep/er/node"])
def test_an_entry_of_a_stranger_is_found_on_every_node(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str, who: str, where: str
) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    store.put("/nimbuses/n1", b"x")
    store.put("/deep/er/node", b"x")
    store.create("/leadership/leader", b"x", ephemeral=True)
    assert walked(store) == 8
    entry, shown = STRANGERS[who]
    with client_of(zookeeper.servers, ALICE) as operator:
        operator.set_acls(zookeeper_root + where, [HERS, entry])
        with pytest.raises(OpenToStrangers, match=re.escape(shown)) as caught:
            walked(store)
        assert str(caught.value).startswith(f"{zookeeper_root}{where} in the ZooKeeper at ")
        operator.set_acls(zookeeper_root + where, [HERS])
    assert walked(store) == 8


@pytest.mark.parametrize("who", STRANGERS)
def test_a_root_that_a_stranger_made_beforehand_is_refused_at_the_start(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str, who: str
) -> None:
    entry, shown = STRANGERS[who]
    with client_of(zookeeper.servers) as stranger:
        stranger.create(zookeeper_root, b"", acl=[HERS, entry])
    with pytest.raises(NoAccess, match=re.escape(shown)):
        opened(zookeeper.servers, credentials=ALICE)


def test_a_node_whose_access_list_is_hidden_belongs_to_strangers(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    store.put("/nimbuses/n1", b"x")
    with client_of(zookeeper.servers, ALICE) as operator:
        operator.create(
            f"{zookeeper_root}/nimbuses/planted", b"x", acl=[make_digest_acl("mallory", "hers", all=True)]
        )
    with pytest.raises(OpenToStrangers, match=f"{zookeeper_root}/nimbuses/planted .*belongs to strangers"):
        walked(store)


def test_a_node_of_which_squall_may_not_list_what_is_below_is_found(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    store.put("/nimbuses/n1", b"x")
    with client_of(zookeeper.servers, ALICE) as operator:
        operator.set_acls(f"{zookeeper_root}/nimbuses", [make_digest_acl(*ALICE, admin=True, write=True)])
    with pytest.raises(OpenToStrangers, match=f"{zookeeper_root}/nimbuses .*may not read it"):
        walked(store)


def test_a_store_without_credentials_checks_nothing(opened: Open, zookeeper: ZooKeeperServer) -> None:
    store = opened(zookeeper.servers)
    store.put("/a", b"x")
    assert walked(store) == 0


def test_a_thousand_nodes_are_checked_in_pages_with_few_requests_each(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    store.put("/reports/t/w0", b"x")
    with client_of(zookeeper.servers, ALICE) as operator:
        acl = [ACL(HERS.perms, Id(HERS.id.scheme, HERS.id.id))]
        made = [
            operator.create_async(f"{zookeeper_root}/reports/t/w{number}", b"x", acl=acl)
            for number in range(1, 997)
        ]
        for each in made:
            each.get(timeout=PATIENCE_SECS)
        began = time.monotonic()
        pages = list(store.walk_access())
        assert time.monotonic() - began < 5, "0.2 s on a quiet machine, docs/security.md"
        assert sum(pages) == 1000 and max(pages) <= PAGE and len(pages) <= 1000 / PAGE + 3
        operator.set_acls(f"{zookeeper_root}/reports/t/w500", [make_acl("ip", "0.0.0.0/0", write=True)])
        with pytest.raises(OpenToStrangers, match=r"/w500 .*belongs to strangers"):
            walked(store)


def test_nodes_that_disappear_during_the_walk_do_no_harm(
    opened: Open, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    for number in range(3):
        store.put(f"/a/{number}/below", b"x")
    checked = TimedCall.check_closed

    def meanwhile(call: TimedCall, paths: list[str], credentials: tuple[str, str]) -> list[str]:
        found = checked(call, paths, credentials)
        if "/a" in paths:
            for number in range(3):
                store.delete(f"/a/{number}/below")
        return found

    monkeypatch.setattr(TimedCall, "check_closed", meanwhile)
    assert walked(store) == 5  # root, a, and the three names that it had


def test_a_store_that_is_away_says_so(opened: Open, zookeeper: ZooKeeperServer) -> None:
    store = opened(zookeeper.servers, credentials=ALICE)
    store.close()
    with pytest.raises(Unavailable):
        walked(store)
