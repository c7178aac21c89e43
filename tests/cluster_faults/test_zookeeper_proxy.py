"""The proxy in front of ZooKeeper works as it claims to: otherwise the tests that use it would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from squall.cluster.store import Exists, Unavailable
from squall.cluster.zookeeper import ZooKeeperStore
from tests.cluster_faults.zookeeper_proxy import Change, ZooKeeperProxy
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer, eventually, states_from_now

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper.servers) as made:
        yield made


@pytest.fixture
def store(proxy: ZooKeeperProxy, zookeeper_root: str) -> Iterator[ZooKeeperStore]:
    """A store that reaches ZooKeeper through the proxy."""
    store = ZooKeeperStore(proxy.servers, root=zookeeper_root, session_secs=4)
    store.start(PATIENCE_SECS)
    yield store
    store.close()


def test_notifications_are_lost_and_doubled(
    proxy: ZooKeeperProxy, store: ZooKeeperStore, zookeeper_store: ZooKeeperStore
) -> None:
    told: list[str] = []
    store.watch("/", told.append)
    zookeeper_store.put("/a/there", b"x")
    eventually(lambda: "/a/there" in told)
    for times in (0, 2):
        told.clear()
        proxy.notices = times
        before = proxy.noticed
        zookeeper_store.put("/a/there", b"y")
        eventually(lambda before=before: proxy.noticed == before + 1)  # type: ignore[misc]
        proxy.notices = 1
        zookeeper_store.put("/a/last", b"x")
        eventually(lambda: "/a/last" in told)
        assert told.count("/a/there") == times
        zookeeper_store.delete("/a/last")
        eventually(lambda: told.count("/a/last") == 2)


def test_a_change_whose_answer_is_lost_was_made(
    proxy: ZooKeeperProxy, store: ZooKeeperStore, zookeeper_root: str
) -> None:
    asked: list[Change] = []

    def once(change: Change) -> bool:
        asked.append(change)
        return len(asked) == 1

    proxy.loses = once
    with pytest.raises(Unavailable):
        store.create("/n", b"1")
    eventually(lambda: store.connected)
    with pytest.raises(Exists):
        store.create("/n", b"2")
    found = store.get("/n")
    assert found is not None and found[0] == b"1"
    store.put("/n", b"3", found[1])
    store.delete("/n")
    path = f"{zookeeper_root}/n"
    assert proxy.lost == [Change("create", path)]
    kinds = [change.kind for change in asked if change.path == path]
    assert (kinds[0], kinds[-2:]) == ("create", ["write", "remove"])


def test_connections_are_refused_and_a_session_ends_meanwhile(
    proxy: ZooKeeperProxy, store: ZooKeeperStore
) -> None:
    states = states_from_now(store)
    store.create("/e", b"1", ephemeral=True)

    def closing(change: Change) -> bool:
        proxy.closed = True
        return True

    proxy.loses = closing
    with pytest.raises(Unavailable):
        store.put("/n", b"1")
    proxy.loses = lambda change: False
    proxy.end_session()
    assert not store.connected
    proxy.closed = False
    eventually(lambda: states[-1] == "connected")
    assert states == ["suspended", "lost", "connected"]
    assert store.get("/e") is None and store.get("/n") is not None
