"""The sessions of a store in ZooKeeper: what ends them, what does not, and what comes back after their end."""

from __future__ import annotations

import threading

import pytest

from squall.clock import RealClock
from squall.cluster import paths
from squall.cluster.leadership import GuardedStore, Leadership, Presence
from squall.cluster.store import Deposed, Unavailable
from tests.faults.proxy import FORWARD, Proxy
from tests.squall.cluster.store_sessions import Open, tried
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer, eventually, states_from_now
from tests.zookeeper_wire import expire

pytestmark = pytest.mark.slow

#: A client's first request: its length, version, last change seen, session's length, id and password, and one flag.
HANDSHAKE_BYTES = 4 + 4 + 8 + 4 + 8 + (4 + 16) + 1


def test_a_handshake_without_an_answer_does_not_cost_the_session(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    host, port = zookeeper.servers.split(":")
    with Proxy((host, int(port))) as proxy:
        store = opened(f"{host}:{proxy.address[1]}")
        store.create("/e", b"x", ephemeral=True)
        states = states_from_now(store)
        proxy.cut()
        proxy.break_off()
        proxy.vanish(HANDSHAKE_BYTES, FORWARD)  # the server never sees the first handshake
        proxy.heal()
        eventually(lambda: states[-1:] == ["connected"])
        assert states == ["suspended", "connected"]
        assert store.owns("/e")
        store.close()


def test_after_the_end_of_a_session_there_is_another_and_watches_are_called(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    store.create("/e", b"x", ephemeral=True)
    told: list[str] = []
    states = states_from_now(store)
    store.watch("/a/b", told.append)
    expire(store)
    eventually(lambda: told == ["/a/b"])
    assert states == ["suspended", "lost", "connected"]
    assert other.get("/e") is None
    assert not store.owns("/e")
    store.create("/e", b"y", ephemeral=True)
    assert store.owns("/e")


def test_a_session_that_ends_in_the_middle_of_calls_leaves_no_orphaned_values(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    made: list[str] = []
    refused: list[str] = []
    enough = threading.Event()

    def make() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            try:
                store.create(f"/e/{number}", b"x", ephemeral=True)
                made.append(f"/e/{number}")
            except Unavailable:
                refused.append(f"/e/{number}")

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(3):
            before = len(made)
            eventually(lambda before=before: len(made) > before + 20)  # type: ignore[misc]
            expire(store)
            eventually(lambda: refused)
            refused.clear()
        before = len(made)
        eventually(lambda: len(made) > before + 20)
    finally:
        enough.set()
        thread.join(PATIENCE_SECS)
    left = eventually(lambda: tried(store.fresh)) and other.children("/e")
    assert left, "the last session made none"
    assert len(left) < len(made)  # those of the earlier sessions are gone
    assert all(store.owns(f"/e/{name}") for name in left)


def test_a_rival_leads_after_the_end_of_a_leaders_session_and_late_writes_are_refused(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    stores = [opened(zookeeper.servers), opened(zookeeper.servers)]
    clock = RealClock()
    old, rival = (Leadership(store, name, clock) for store, name in zip(stores, ("old", "rival")))
    guard = eventually(lambda: old.round(clock.now()))
    assert rival.round(clock.now()) is None
    expire(stores[0])
    later = eventually(lambda: rival.round(clock.now()))
    assert guard is not None and later is not None and later.version > guard.version
    eventually(lambda: stores[0].connected)
    with pytest.raises(Deposed):
        GuardedStore(stores[0], guard, lambda: True).put("/a", b"late")
    assert old.round(clock.now()) is None
    assert eventually(lambda: old.leader() == rival.leader() == "rival")


def test_presence_comes_back_by_itself_after_the_end_of_a_session(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    clock = RealClock()
    presence = Presence(store, paths.presence("s1"), b"1")
    eventually(lambda: presence.keep(clock.now()))
    expire(store)
    assert eventually(lambda: other.get(paths.presence("s1")) is None)
    assert eventually(lambda: presence.keep(clock.now()) and store.owns(paths.presence("s1")))
    found = eventually(lambda: other.get(paths.presence("s1")))
    assert found is not None and found[0] == b"1", "all sessions see it"
