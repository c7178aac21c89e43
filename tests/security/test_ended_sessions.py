"""A stranger who reaches ZooKeeper computes the password of any session and ends it; with TLS the stranger does not get in."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from squall.cluster.zookeeper import ZooKeeperStore
from squall.security.zookeeper_tls import ClientFiles
from tests.certificates import make_certificates
from tests.zookeeper_servers import PATIENCE_SECS, ZooKeeperServer, client_files, eventually, states_from_now
from tests.zookeeper_wire import end_session

pytestmark = pytest.mark.slow

#: Of ZooKeeper's own sources: the "secret" that each server adds to the numbers of sessions.
SUPER_SECRET = 0xB3415C00
#: A stranger waits this long for an answer; one who is let in needs a fraction of it.
TRY_SECS = 3.0


def password_of(session: int) -> bytes:
    """The password that ZooKeeper gives to a session: the first 16 bytes of Java's `Random` with a seed that is known."""
    seed = ((session ^ SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (seed >> 16).to_bytes(4, "little")
    return password


@contextmanager
def daemon_at(server: ZooKeeperServer, root: str, files: ClientFiles | None) -> Iterator[ZooKeeperStore]:
    """The connection of a daemon with credentials, which is present in ZooKeeper."""
    credentials = ("squall", "secret")
    with closing(
        ZooKeeperStore(server.servers, root=root, session_secs=4, credentials=credentials, tls=files)
    ) as store:
        store.start(PATIENCE_SECS)
        store.create("/presence", b"here", ephemeral=True)
        yield store


def session_of(store: ZooKeeperStore) -> int:
    assert store._client is not None and store._client.session is not None
    return store._client.session


def test_without_tls_a_stranger_ends_the_session_of_a_daemon(
    zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    """If a ZooKeeper made this impossible by itself, docs/security.md would have to say so."""
    with daemon_at(zookeeper, zookeeper_root, None) as store:
        states = states_from_now(store)
        session = session_of(store)
        assert end_session(zookeeper.servers, session, password_of(session))
        eventually(lambda: states == ["suspended", "lost", "connected"])
        eventually(lambda: store.connected)
        assert not store.owns("/presence")


def test_with_tls_a_stranger_ends_no_session(
    tls_zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> None:
    files, other = client_files(tls_zookeeper), make_certificates(tmp_path)
    without_certificate = ssl.create_default_context(cafile=files.ca)
    with_another = ssl.create_default_context(cafile=files.ca)
    with_another.load_cert_chain(other.certificate, other.key)
    with daemon_at(tls_zookeeper, zookeeper_root, files) as store:
        states, session = states_from_now(store), session_of(store)

        for stranger in (None, without_certificate, with_another):
            with pytest.raises(OSError):
                end_session(tls_zookeeper.servers, session, password_of(session), stranger, TRY_SECS)
        assert store.owns("/presence") and session_of(store) == session
        assert states == []


def test_a_certificate_of_the_cluster_is_what_lets_a_client_in(
    tls_zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    """The strangers above would succeed with a daemon's files, so it is their lack that stops them."""
    files = client_files(tls_zookeeper)
    with daemon_at(tls_zookeeper, zookeeper_root, files) as store:
        states = states_from_now(store)
        session = session_of(store)
        assert end_session(tls_zookeeper.servers, session, password_of(session), files.context())
        eventually(lambda: states == ["suspended", "lost", "connected"])
