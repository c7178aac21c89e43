"""A store over TLS: its sessions, its access lists, and what it says when there is no connection."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from squall.cluster.store import OpenToStrangers, Unavailable
from squall.cluster.zookeeper import ZooKeeperStore
from squall.security.zookeeper_tls import ClientFiles
from tests.certificates import make_certificates
from tests.squall.cluster.store_sessions import Open, tried
from tests.zookeeper_servers import (
    PATIENCE_SECS,
    ZooKeeperServer,
    client_files,
    eventually,
    free_ports,
    states_from_now,
    tls_plan,
)

pytestmark = pytest.mark.slow

ALICE = ("alice", "a:secret:of-hers")
#: How long a start that must fail is given.
FAIL_SECS = 3.0


def test_a_restart_of_the_server_costs_no_session_and_no_change(opened: Open, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path, plan=tls_plan(tmp_path / "server")) as server:
        options = {"credentials": ALICE, "tls": client_files(server), "session_secs": 5.0}
        store, other = opened(server.servers, **options), opened(server.servers, **options)
        store.create("/presence", b"x", ephemeral=True)
        told: list[str] = []
        store.watch("/values", told.append)
        states = states_from_now(store)
        server.kill()
        eventually(lambda: states == ["suspended"])
        assert not tried(lambda: store.get("/presence"))
        server.start()
        eventually(lambda: store.connected and other.connected)
        eventually(lambda: tried(lambda: store.fresh()) and tried(lambda: other.fresh()))
        assert states == ["suspended", "connected"]
        assert store.owns("/presence")
        told.clear()
        other.put("/values/a", b"y")
        eventually(lambda: "/values/a" in told)
        found = store.get("/values/a")
        assert found is not None and found[0] == b"y"


def test_values_of_every_size_come_back(
    opened: Open, tls_zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    store, other = (opened(tls_zookeeper.servers, tls=client_files(tls_zookeeper)) for _ in range(2))
    for size in (1, 16_383, 16_384, 16_385, 100_000, 900_000):
        store.put("/a", os.urandom(1) * size)
        eventually(lambda size=size: (found := other.get("/a")) is not None and len(found[0]) == size)


def test_only_the_credentials_are_in_access_lists_and_not_the_certificate(
    opened: Open, tls_zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    files = client_files(tls_zookeeper)
    store = opened(tls_zookeeper.servers, tls=files, credentials=ALICE)
    store.put("/a/b", b"x")
    store.create("/e", b"x", ephemeral=True)
    assert sum(store.walk_access()) == 4
    certificate = {"use_ssl": True, "ca": files.ca, "certfile": files.certificate, "keyfile": files.key}
    with client_of(tls_zookeeper, auth_data=[("digest", ":".join(ALICE))], **certificate) as operator:
        entries, _ = operator.get_acls(f"{zookeeper_root}/a/b")
        assert {entry.id.scheme for entry in entries} == {"digest"}
        operator.add_auth("digest", ":".join(ALICE))
        operator.create(f"{zookeeper_root}/a/c", b"x", acl=operator.get_acls(zookeeper_root)[0])
        assert sum(store.walk_access()) == 5
        # What `setAcl auth::cdrwa` does, by an operator whose zkCli.sh has a certificate.
        from kazoo.security import CREATOR_ALL_ACL

        operator.set_acls(f"{zookeeper_root}/a/c", CREATOR_ALL_ACL)
        advice = re.escape(f"setAcl -R {zookeeper_root} digest:USER:HASH:cdrwa")
        with pytest.raises(OpenToStrangers, match=rf"x509:CN=squall .*{advice}"):
            sum(store.walk_access())


@contextmanager
def client_of(server: ZooKeeperServer, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(server.servers, **options)
    client.start(PATIENCE_SECS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_answers_that_arrive_in_one_record_are_all_seen_at_once(
    zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> None:
    """What TLS has decrypted does not wake the thread that waits for the socket."""
    made = make_certificates(tmp_path)
    files = ClientFiles(made.ca, made.certificate, made.key)
    with coalescing(zookeeper, files) as (port, together):
        store = ZooKeeperStore(
            f"127.0.0.1:{port}", root=zookeeper_root, session_secs=4, tls=files, call_secs=60
        )
        with closing(store):
            store.start(PATIENCE_SECS)
            assert store._client is not None
            pings = store._client._connection
            together.set()
            asked = [store._client.exists_async(zookeeper_root) for _ in range(3)]
            for each in asked:
                each.get(timeout=PATIENCE_SECS)
                assert not pings.ping_outstanding.is_set()


@contextmanager
def coalescing(server: ZooKeeperServer, files: ClientFiles) -> Iterator[tuple[int, threading.Event]]:
    """A port with TLS in front of a server without it. When the event is set, it keeps three answers back, and sends them in
    one record."""
    together = threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            accepted, _ = listener.accept()
            with (
                context.wrap_socket(accepted, server_side=True) as client,
                socket.create_connection(("127.0.0.1", server.plan.port)) as behind,
            ):
                forth = threading.Thread(target=pump, args=(client, behind))
                forth.start()
                held = b""
                while data := behind.recv(65536):
                    held += data
                    if not together.is_set() or answers_in(held) == 3:
                        together.clear()
                        client.sendall(held)
                        held = b""
                forth.join()

    def pump(source: ssl.SSLSocket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield int(listener.getsockname()[1]), together
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_SECS)


def answers_in(data: bytes) -> int:
    """How many answers of ZooKeeper there are, each with its length in front."""
    number = 0
    while data:
        data, number = data[4 + int.from_bytes(data[:4], "big") :], number + 1
    return number


# What a daemon says


def why_not(servers: str, files: ClientFiles | None) -> str:
    with pytest.raises(Unavailable) as caught:
        ZooKeeperStore(servers, root="/never", tls=files).start(FAIL_SECS)
    text = str(caught.value)
    assert text.startswith(f"no ZooKeeper answered at {servers} within {FAIL_SECS:g} seconds: ")
    return text


def test_a_certificate_that_the_server_refuses_is_named(
    tls_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    files, other = client_files(tls_zookeeper), make_certificates(tmp_path)
    text = why_not(tls_zookeeper.servers, ClientFiles(files.ca, other.certificate, other.key))
    assert f"refuses squall.zookeeper.tls.certificate {other.certificate} (certificate unknown)" in text
    assert "an authority in the server's ssl.trustStore" in text


def test_a_server_with_a_certificate_for_another_name_is_refused(tls_zookeeper: ZooKeeperServer) -> None:
    servers = f"127.0.0.2:{tls_zookeeper.plan.port}"
    plan = replace(tls_zookeeper.plan, host="127.0.0.2")
    with socket.create_server(("127.0.0.2", plan.port)) as listener:
        threading.Thread(target=show_certificate, args=(listener, tls_zookeeper), daemon=True).start()
        text = why_not(servers, client_files(tls_zookeeper))
    assert f"the certificate of the ZooKeeper at {servers} is not for that name" in text
    assert "name the server as its certificate does" in text


def show_certificate(listener: socket.socket, server: ZooKeeperServer) -> None:
    assert server.plan.tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.plan.tls / "server.pem")
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        with accepted, suppress(OSError):
            context.wrap_socket(accepted, server_side=True).close()


def test_a_server_without_tls_is_reported(zookeeper: ZooKeeperServer, tls_zookeeper: ZooKeeperServer) -> None:
    text = why_not(zookeeper.servers, client_files(tls_zookeeper))
    assert f"the ZooKeeper at {zookeeper.servers} ends a TLS handshake" in text and "secureClientPort" in text


def test_a_server_that_wants_tls_is_reported_to_a_daemon_without(tls_zookeeper: ZooKeeperServer) -> None:
    text = why_not(tls_zookeeper.servers, None)
    assert f"the ZooKeeper at {tls_zookeeper.servers} speaks TLS: set squall.zookeeper.tls.ca, " in text


def test_a_server_that_is_not_there_is_no_matter_of_tls(tls_zookeeper: ZooKeeperServer) -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    for files in (client_files(tls_zookeeper), None):
        assert why_not(servers, files).endswith("is it running, and is this its address?")


def test_a_running_daemon_logs_why_it_cannot_connect_again_and_uses_renewed_files(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ZooKeeperServer(tmp_path, plan=tls_plan(tmp_path / "server")) as server:
        good = client_files(server)
        (tmp_path / "daemon").mkdir()
        files = ClientFiles(*(str(tmp_path / "daemon" / Path(path).name) for path in vars(good).values()))
        copy(good, files)
        store = opened(server.servers, tls=files)
        store.put("/a", b"x")
        other = make_certificates(tmp_path / "other")
        copy(ClientFiles(good.ca, other.certificate, other.key), files)
        server.kill()
        server.start()
        eventually(lambda: "refuses squall.zookeeper.tls.certificate" in caplog.text)
        copy(good, files)
        eventually(lambda: store.connected and tried(lambda: store.fresh()))
        assert caplog.text.count("no connection to ZooKeeper: ") < 5, "not at each attempt"


def copy(source: ClientFiles, target: ClientFiles) -> None:
    for old, new in zip(vars(source).values(), vars(target).values()):
        shutil.copy(old, new)
