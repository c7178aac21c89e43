"""A store over TLS: its sessions, its access lists, and what it says when there is no connection."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from unittest.mock import ANY

import pytest
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL
from msgspec import structs

from squall.cluster.store import OpenToStrangers, Unavailable
from squall.cluster.zookeeper import ZooKeeperStore
from squall.cluster.zookeeper.server import SERVER_FILE
from squall.cluster.zookeeper.tls import TlsFailed, connect
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
)

pytestmark = pytest.mark.slow

ALICE = ("alice", "a:secret:of-hers")
#: How long a start that must fail is given.
FAIL_SECS = 4.0


def test_a_restart_of_the_server_costs_no_session_and_no_change(
    opened: Open, tls_zookeeper: ZooKeeperServer
) -> None:
    """The server of all these tests: what it has is on the disk, so it is the same afterwards."""
    options = {"credentials": ALICE, "tls": client_files(tls_zookeeper), "session_secs": 5.0}
    store, other = (opened(tls_zookeeper.servers, **options) for _ in range(2))
    store.create("/presence", b"x", ephemeral=True)
    told: list[str] = []
    store.watch("/values", told.append)
    states = states_from_now(store)
    tls_zookeeper.kill()
    eventually(lambda: states == ["suspended"])
    assert not tried(lambda: store.get("/presence"))
    tls_zookeeper.start()
    for each in (store, other):
        eventually(partial(tried, each.fresh))
    assert states == ["suspended", "connected"]
    assert store.owns("/presence")
    told.clear()
    other.put("/values/a", b"y")
    eventually(lambda: "/values/a" in told)
    found = store.get("/values/a")
    assert found is not None and found[0] == b"y"


def test_values_of_every_size_come_back(opened: Open, tls_zookeeper: ZooKeeperServer) -> None:
    store, other = (opened(tls_zookeeper.servers, tls=client_files(tls_zookeeper)) for _ in range(2))
    for size in (1, 16_383, 16_384, 16_385, 100_000, 900_000):
        store.put("/a", b"x" * size)
        other.fresh()
        assert other.get("/a") == (b"x" * size, ANY)


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
        operator.create(f"{zookeeper_root}/a/c", b"x", acl=operator.get_acls(zookeeper_root)[0])
        assert sum(store.walk_access()) == 5
        # What `setAcl auth::cdrwa` does, by an operator whose zkCli.sh has a certificate.
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


# What a daemon says that cannot connect


@pytest.fixture(scope="module")
def said(
    zookeeper: ZooKeeperServer, tls_zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What each of several stores says whose start fails; they try at the same time, since each waits until it gives up."""
    good, other = client_files(tls_zookeeper), make_certificates(tmp_path_factory.mktemp("other"))
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with socket.create_server(("127.0.0.2", 0)) as listener:
        threading.Thread(target=show_certificate, args=(listener, tls_zookeeper), daemon=True).start()
        cases = {
            "refused": (tls_zookeeper.servers, ClientFiles(good.ca, other.certificate, other.key)),
            "distrusted": (tls_zookeeper.servers, structs.replace(good, ca=other.ca)),
            "another name": (f"127.0.0.2:{listener.getsockname()[1]}", good),
            "server without TLS": (zookeeper.servers, good),
            "daemon without TLS": (tls_zookeeper.servers, None),
            "nobody": (nobody, good),
            "nobody without TLS": (nobody, None),
        }
        with ThreadPoolExecutor(len(cases)) as pool:
            texts = dict(zip(cases, pool.map(why_not, *zip(*cases.values()))))
    return {
        name: text.replace(cases[name][0], "ZK").replace(other.certificate, "F")
        for name, text in texts.items()
    }


def why_not(servers: str, files: ClientFiles | None) -> str:
    with pytest.raises(Unavailable) as caught:
        ZooKeeperStore(servers, root="/never", tls=files).start(FAIL_SECS)
    return str(caught.value)


def show_certificate(listener: socket.socket, server: ZooKeeperServer) -> None:
    """Listen at an address that is not in a server's certificate."""
    assert server.plan.tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.plan.tls / SERVER_FILE)
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        with accepted, suppress(OSError):
            context.wrap_socket(accepted, server_side=True).close()


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("refused", "the ZooKeeper at ZK refuses squall.zookeeper.tls.certificate F (certificate unknown): it must be valid,"),
        ("refused", "signed by an authority in the server's ssl.trustStore"),
        ("distrusted", "does not vouch for the ZooKeeper at ZK: self-signed certificate in certificate chain"),
        ("another name", "the certificate of the ZooKeeper at ZK is not for that name"),
        ("another name", "name the server as its certificate does"),
        ("server without TLS", "the ZooKeeper at ZK ends a TLS handshake"),
        ("server without TLS", "is that its secureClientPort"),
        ("daemon without TLS", "the ZooKeeper at ZK speaks TLS: set squall.zookeeper.tls.ca, "),
        ("nobody", "is it running, and is this its address?"),
        ("nobody without TLS", "is it running, and is this its address?"),
    ],
)  # fmt: skip
def test_the_reason_is_given(said: dict[str, str], case: str, text: str) -> None:
    assert said[case].startswith(f"no ZooKeeper answered at ZK within {FAIL_SECS:g} seconds: ")
    assert text in said[case]


def test_nothing_is_sent_to_a_server_with_another_certificate(tls_zookeeper: ZooKeeperServer) -> None:
    """Neither to one whose authority is unknown, nor to one with the certificate of another name: a daemon's, for example."""
    heard: list[bytes] = []
    good = client_files(tls_zookeeper)
    assert tls_zookeeper.plan.tls is not None
    for chain in ((good.certificate, good.key), (tls_zookeeper.plan.tls / SERVER_FILE, None)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*chain)
        with socket.create_server(("127.0.0.2", 0)) as listener:

            def serve(listener: socket.socket = listener, context: ssl.SSLContext = context) -> None:
                accepted, _ = listener.accept()
                with accepted, suppress(OSError), context.wrap_socket(accepted, server_side=True) as client:
                    heard.append(client.recv(1))

            thread = threading.Thread(target=serve)
            thread.start()
            address = listener.getsockname()[:2]
            with pytest.raises(TlsFailed, match=r"is not for that name|does not vouch for"):
                connect(address, "127.0.0.2", PATIENCE_SECS, good)
            thread.join(PATIENCE_SECS)
    assert heard in ([], [b""], [b"", b""])


def test_a_running_daemon_logs_why_it_cannot_connect_again_and_uses_renewed_files(
    opened: Open, tls_zookeeper: ZooKeeperServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = client_files(tls_zookeeper), make_certificates(tmp_path / "other")
    files = ClientFiles(*(str(tmp_path / Path(path).name) for path in structs.astuple(good)))
    copy(good, files)
    store = opened(tls_zookeeper.servers, tls=files)
    copy(ClientFiles(good.ca, other.certificate, other.key), files)
    assert store._client is not None
    store._client._connection._socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: "refuses squall.zookeeper.tls.certificate" in caplog.text)
    copy(good, files)
    eventually(lambda: store.connected and tried(lambda: store.fresh()))
    assert caplog.text.count("no connection to ZooKeeper: ") == 1, "not at each attempt"


def copy(source: ClientFiles, target: ClientFiles) -> None:
    for old, new in zip(structs.astuple(source), structs.astuple(target)):
        Path(f"{new}.new").touch(0o600)
        shutil.copy(old, f"{new}.new")
        Path(f"{new}.new").rename(new)
