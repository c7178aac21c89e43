"""A store in ZooKeeper when servers freeze, die and lose everything, when sessions end, and when credentials are wrong.

Its other promises are tested in test_store.py, beside the other stores.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_digest_acl_credential

import nimbus.daemon as nimbus_daemon
import squall.cluster.zookeeper.store as store_module
from squall.cluster.leadership import Presence
from squall.cluster.store import Conflict, Exists, Unavailable
from squall.cluster.zookeeper import NoAccess, ZooKeeperStore
from squall.cluster.zookeeper.client import TimedCall
from supervisor import nimbus_http, store_view
from tests.squall.cluster.store_sessions import Open, tried
from tests.zookeeper_servers import (
    PATIENCE_SECS,
    Ensemble,
    ZooKeeperServer,
    eventually,
    free_ports,
    states_from_now,
)
from tests.zookeeper_wire import expire

pytestmark = pytest.mark.slow

ALICE = ("alice", "a:secret:of-hers")


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that may be killed or frozen; each test leaves it running."""
    with ZooKeeperServer(tmp_path_factory.mktemp("own-zookeeper")) as server:
        yield server


def test_a_frozen_server_costs_one_call_its_limit_and_the_next_ones_nothing(
    opened: Open, own_server: ZooKeeperServer
) -> None:
    store = opened(own_server.servers, call_secs=1.0)
    version = store.put("/a", b"before")
    store.get("/a")  # so that the write needs no read before it
    own_server.freeze()
    try:
        with pytest.raises(Unavailable, match=r"/a: .* has not answered within 1 seconds"):
            store.put("/a", b"during", version)
        assert not store.connected
        for _ in range(100):  # with 1 s each, the test would take too long
            with pytest.raises(Unavailable, match="does not answer"):
                store.get("/a")
    finally:
        own_server.thaw()
    eventually(lambda: tried(lambda: store.get("/a")))
    found = store.get("/a")
    assert found is not None and found[0] == b"during"  # it reported a timeout, and was done


def test_a_store_can_be_closed_while_its_server_is_frozen(opened: Open, own_server: ZooKeeperServer) -> None:
    store = opened(own_server.servers)
    own_server.freeze()
    try:
        store.close()
        with pytest.raises(Unavailable, match="closed"):
            store.get("/a")
    finally:
        own_server.thaw()


def test_a_killed_server_that_comes_back_has_the_same_session(
    opened: Open, own_server: ZooKeeperServer
) -> None:
    store = opened(own_server.servers)
    store.create("/e", b"x", ephemeral=True)
    told: list[str] = []
    states = states_from_now(store)
    own_server.kill()
    eventually(lambda: not store.connected)
    with pytest.raises(Unavailable):
        store.get("/e")
    store.watch("/e", told.append)
    own_server.start()
    eventually(
        lambda: set(told) == {"/e"}
    )  # whatever it missed: the watch is called with its prefix, after each connection
    # A server that has just started on a machine under load may exceed the limit of a call, which then suspends the store.
    owned: list[bool] = []
    eventually(lambda: tried(lambda: owned.append(store.owns("/e"))))
    assert owned == [True]
    assert states[:2] == ["suspended", "connected"] and "lost" not in states
    before = len(told)
    eventually(lambda: tried(lambda: store.put("/e", b"y")))
    eventually(lambda: len(told) > before and set(told) == {"/e"})  # and it gets changes again


def test_a_server_that_comes_back_empty_is_an_empty_store_with_a_new_session(
    opened: Open, own_server: ZooKeeperServer
) -> None:
    store = opened(own_server.servers)
    store.put("/a", b"x")
    presence = Presence(store, "/presence/s1", b"1")
    assert presence.keep(0.0)
    told: list[str] = []
    store.watch("/", told.append)
    own_server.wipe()
    eventually(lambda: "/" in told)
    assert store.get("/a") is None
    assert store.children("/") == []
    assert presence.keep(0.0)
    assert store.owns("/presence/s1")


def test_an_ensemble_that_loses_its_leader_keeps_the_session_and_every_confirmed_write(
    opened: Open, tmp_path: Path
) -> None:
    with Ensemble(tmp_path) as ensemble:
        store, other = opened(ensemble.servers), opened(ensemble.servers)
        store.create("/e", b"x", ephemeral=True)
        version = store.create("/n", b"0")
        confirmed = 0
        ensemble.kill(ensemble.leader())
        while confirmed < 20:
            try:
                version = store.put("/n", str(confirmed + 1).encode(), version)
                confirmed += 1
            except Unavailable:  # done or not: read again before deciding
                found = eventually(lambda: (tried(store.fresh) and tried_value(store, "/n")) or None)
                assert found is not None and int(found[0]) in (confirmed, confirmed + 1)
                confirmed, version = int(found[0]), found[1]
        eventually(lambda: tried(other.fresh))
        assert eventually(lambda: tried_value(other, "/n")) == (b"20", version)
        assert eventually(lambda: tried(store.fresh)) and store.owns("/e")


def tried_value(store: ZooKeeperStore, path: str) -> tuple[bytes, int] | None:
    try:
        return store.get(path)
    except Unavailable:
        return None


def test_a_connection_that_gave_up_is_started_again(
    opened: Open, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(zookeeper.servers)
    store.put("/a", b"x")
    client = store._client
    assert client is not None

    def fail(*_: object) -> None:
        raise RuntimeError("xids do not match")

    monkeypatch.setattr(client._connection, "_read_socket", fail)
    assert not tried(lambda: store.put("/b", b"x"))
    eventually(lambda: store._client is not client and store.connected)
    eventually(lambda: tried(lambda: store.put("/c", b"x")))
    assert store.get("/a") is not None


def test_a_fault_right_after_a_connect_does_not_end_the_thread_that_calls_watches(
    opened: Open,
    zookeeper: ZooKeeperServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = opened(zookeeper.servers)
    told: list[str] = []
    store.watch("/", told.append)
    failed: list[str] = []

    def fail_once(call: TimedCall, closed: bool) -> None:
        if not failed:
            failed.append("now")
            raise NoNodeError

    monkeypatch.setattr(TimedCall, "check_access", fail_once)
    store._state_changed("connected")
    eventually(lambda: failed and "/" in told)
    assert "the thread that looks after ZooKeeper" in caplog.text
    store.put("/a", b"x")
    eventually(lambda: "/a" in told)


def test_a_value_is_not_read_again_until_another_client_changes_it(
    opened: Open, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    told: list[str] = []
    store.watch("/a/b", told.append)
    other.put("/a/b", b"x")
    eventually(lambda: told)
    told.clear()
    asked: list[str] = []
    read, names = TimedCall.read, TimedCall.names

    def noting_read(call: TimedCall, path: str) -> tuple[bytes, int] | None:
        asked.append(path)
        return read(call, path)

    def noting_names(call: TimedCall, path: str) -> list[str]:
        asked.append(path)
        return names(call, path)

    monkeypatch.setattr(TimedCall, "read", noting_read)
    monkeypatch.setattr(TimedCall, "names", noting_names)
    for _ in range(5):
        store.get("/a/b"), store.get("/nothing"), store.children("/a")
    assert asked == ["/a/b", "/nothing", "/a"]
    other.put("/a/b", b"y")
    eventually(lambda: told)
    found = store.get("/a/b")
    assert found is not None and found[0] == b"y"
    store.children("/a"), store.get("/nothing")
    assert asked[3:] == ["/a/b", "/a"]  # other clients' values beside it are still cached


def test_a_change_without_a_notification_is_noticed_after_a_while(
    opened: Open, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MEMORY_SECS", 0.3)
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    version = store.put("/a", b"x")
    assert store.get("/a") == (b"x", version)
    client = store._client
    assert client is not None
    client.changed = lambda path, data: None
    newer = other.put("/a", b"y")
    eventually(lambda: store.get("/a") == (b"y", newer))


def test_a_change_without_a_notification_is_noticed_by_every_daemon_within_ten_seconds() -> None:
    for look in (nimbus_daemon.LOOK_SECS, store_view.EVERY, nimbus_http.LOOK):
        assert store_module.MEMORY_SECS + look <= 10


def test_a_refused_write_drops_the_cached_value_that_refused_it(
    opened: Open, zookeeper: ZooKeeperServer
) -> None:
    store, other = opened(zookeeper.servers), opened(zookeeper.servers)
    version = store.put("/a", b"x")
    store.get("/a"), store.get("/b")
    client = store._client
    assert client is not None
    client.changed = lambda path, data: None  # there are no notifications: the cache is stale from here on
    newer = other.put("/a", b"y")
    made = other.create("/b", b"z")
    with pytest.raises(Conflict):
        store.put("/a", b"mine", version)
    assert store.get("/a") == (b"y", newer)
    with pytest.raises(Exists):
        store.create("/b", b"mine")
    assert store.get("/b") == (b"z", made)


def test_with_credentials_only_their_owner_can_access_a_node(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    root = f"{zookeeper_root}/deeper"
    store = opened(zookeeper.servers, root=root, credentials=ALICE)
    store.put("/a/b/c", b"x")
    store.create("/a/b", b"y")
    store.create("/e/f", b"x", ephemeral=True)
    store.put("/gone/far", b"x")
    store.delete("/gone/far")
    hers = make_digest_acl_credential(*ALICE)
    walker = KazooClient(zookeeper.servers, auth_data=[("digest", ":".join(ALICE))])
    walker.start(PATIENCE_SECS)
    try:
        nodes = [zookeeper_root]
        for node in nodes:
            entries, _ = walker.get_acls(node)
            assert [(entry.id.scheme, entry.id.id, entry.perms) for entry in entries] == [
                ("digest", hers, 31)
            ], node
            nodes += [f"{node}/{name}" for name in walker.get_children(node)]
    finally:
        walker.stop()
        walker.close()
    assert sorted(node.removeprefix(root) for node in nodes if node.startswith(root + "/")) == [
        "/a", "/a/b", "/a/b/c", "/e", "/e/f",
    ]  # fmt: skip


@pytest.mark.parametrize("credentials", [None, ("alice", "guessed"), ("mallory", ALICE[1])])
def test_wrong_credentials_are_reported_at_the_start(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str, credentials: tuple[str, str] | None
) -> None:
    opened(zookeeper.servers, credentials=ALICE).put("/a", b"x")
    store = ZooKeeperStore(zookeeper.servers, root=zookeeper_root, credentials=credentials)
    with pytest.raises(NoAccess, match="does not allow this with these credentials"):
        store.start(PATIENCE_SECS)
    with pytest.raises(Unavailable, match="closed"):
        store.get("/a")


def test_a_root_that_is_open_to_all_is_refused_for_a_store_with_credentials(
    opened: Open, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    opened(zookeeper.servers).put("/a", b"x")
    with pytest.raises(NoAccess, match=f"{zookeeper_root} .* is open to everybody"):
        opened(zookeeper.servers, credentials=ALICE)


def test_credentials_are_in_no_log_and_no_error(
    zookeeper: ZooKeeperServer, zookeeper_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    logging.getLogger("kazoo").setLevel(1)
    store = ZooKeeperStore(zookeeper.servers, root=zookeeper_root, credentials=ALICE)
    store.start(PATIENCE_SECS)
    store.put("/a", b"canary-in-a-value")
    expire(store)
    eventually(lambda: tried(lambda: store.get("/a")))
    store.close()
    with pytest.raises(NoAccess) as caught:
        ZooKeeperStore(zookeeper.servers, root=zookeeper_root, credentials=("alice", "wrong-canary")).start(
            PATIENCE_SECS
        )
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("squall"))
    assert "ZooKeeper at" in logged
    for text in (logged, str(caught.value), repr(store)):
        assert ALICE[1] not in text and "canary" not in text


def test_without_a_server_the_start_ends_in_time_and_names_the_address() -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    store = ZooKeeperStore(where)
    for _ in range(2):  # and it can be tried again
        with pytest.raises(Unavailable, match=f"no ZooKeeper answered at {where} within 0.2 seconds"):
            store.start(0.2)
    assert not store.connected


def test_a_server_that_listens_and_never_answers_is_given_up_in_time() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(Unavailable, match=where):
            ZooKeeperStore(where).start(0.3)


def test_a_store_waits_for_its_server_and_uses_the_session_length_that_it_grants(
    tmp_path: Path, zookeeper_root: str
) -> None:
    server = ZooKeeperServer(tmp_path)
    store = ZooKeeperStore(server.servers, root=zookeeper_root, session_secs=60)
    assert store.session_secs == 60
    late = threading.Thread(target=server.start)
    late.start()
    try:
        store.start(PATIENCE_SECS)
        assert store.session_secs == 5  # 20 ticks of 250 ms
    finally:
        late.join(PATIENCE_SECS)
        store.close()
        server.kill()


def test_no_thread_is_left_when_a_store_is_closed(zookeeper: ZooKeeperServer, zookeeper_root: str) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("squall-zookeeper")}

    before = threads()
    store = ZooKeeperStore(zookeeper.servers, root=zookeeper_root)
    store.start(PATIENCE_SECS)
    assert threads() - before
    store.close()
    store.close()
    eventually(lambda: not threads() - before)
