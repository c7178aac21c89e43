"""A client that connects and sends nothing, or an incomplete request, can neither keep the connection nor delay the answers to
others. (`tests/squall/test_http_connections.py` tests slow clients that are waited for.)
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon
from squall.http import connections as http_connections
from squall.http import server as http_server
from squall.http.client import Client, Refused, at
from squall.http.connections import PATIENCE, Awaited, Patience
from squall.http.pool import Address
from squall.security.tls import client_context
from squall.security.tokens import bearer
from tests.certificates import make_certificates
from tests.nimbus_http.nimbuses import Cluster, closing, until

CAP_SECS = 30.0
ASKED = b"GET /health HTTP/1.1\r\nHost: nimbus\r\n\r\n"
#: A request that is refused because it has no token, and that announces a body.
REFUSED = b"POST /api/v1/topologies HTTP/1.1\r\nHost: nimbus\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for awaited in (Awaited.FIRST, Awaited.REQUEST):
        monkeypatch.setitem(PATIENCE, awaited, Patience(0.3))


@pytest.fixture
def impatient_with_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATIENCE, Awaited.REST, Patience(0.3))
    monkeypatch.setitem(PATIENCE, Awaited.BODY, Patience(0.3, least=15_000))


@pytest.fixture
def connections(leader: NimbusDaemon) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(leader)) for _ in range(3)]


def connect(nimbus: NimbusDaemon) -> socket.socket:
    address = Address.of(nimbus.url)
    return socket.create_connection((address.host, address.port), timeout=CAP_SECS)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes the connection in time."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def answer(connection: socket.socket, asked: bytes = ASKED, end: bytes = b'"status"') -> bytes:
    connection.sendall(asked)
    data = b""
    while end not in data:
        piece = connection.recv(4096)
        assert piece, f"the connection has ended after {data!r}"
        data += piece
    return data


@contextmanager
def trickling(connection: socket.socket, data: bytes) -> Iterator[None]:
    """Meanwhile this many bytes are sent one by one, as long as they are accepted."""
    stop = threading.Event()

    def trickle() -> None:
        for byte in data:
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                return
            if stop.wait(0.05):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(CAP_SECS)


def tls_conf(folder: Path) -> dict[str, str]:
    """The settings of a Nimbus with HTTPS."""
    made = make_certificates(folder / "certificates")
    names = ("squall.tls.certificate", "squall.tls.key", "squall.tls.ca")
    return dict(zip(names, (made.certificate, made.key, made.ca)))


def authorized(nimbus: NimbusDaemon, method: str, path: str, size: int) -> bytes:
    """The head of an operator's request that announces a body."""
    lines = (f"{method} /api/v1/{path} HTTP/1.1", "Host: nimbus", f"Authorization: Bearer {nimbus.token}")
    return "\r\n".join((*lines, f"Content-Length: {size}", "", "")).encode()


def test_a_connection_without_a_request_is_closed(
    impatient: None, connections: list[socket.socket], client: Client
) -> None:
    _silent, half, second_half = connections
    half.sendall(b"GET /health HTT")
    assert answer(second_half).startswith(b"HTTP/1.1 200")
    second_half.sendall(b"GET /health HTT")
    assert all(is_closed(each) for each in connections)
    assert client.get("cluster")["leader"], "others are answered"


def test_an_idle_connection_without_credentials_is_closed_and_one_with_them_stays(
    monkeypatch: pytest.MonkeyPatch, leader: NimbusDaemon
) -> None:
    monkeypatch.setattr(http_connections, "UNKNOWN_KEEP_SECS", 0.3)
    known = authorized(leader, "GET", "cluster", 0)
    with connect(leader) as operator, connect(leader) as unknown:
        answer(operator, known, b'"leader"')
        answer(unknown)
        assert is_closed(unknown)
        assert answer(operator, known, b'"leader"').startswith(b"HTTP/1.1 200")


def test_a_request_that_trickles_in_is_not_waited_for(
    impatient: None, connections: list[socket.socket]
) -> None:
    with trickling(connections[0], ASKED * 100):
        assert is_closed(connections[0])


def test_a_body_may_take_longer_than_a_request(impatient: None, leader: NimbusDaemon) -> None:
    with connect(leader) as connection, connect(leader) as silent:
        connection.sendall(authorized(leader, "POST", "supervisors/none/drain", 2))
        assert is_closed(silent), "this long ago the body could have come"
        assert answer(connection, b"{}", b"\r\n").startswith(b"HTTP/1.1 404")


def test_the_body_of_a_refused_request_is_not_waited_for(
    impatient_with_bodies: None, connections: list[socket.socket], client: Client
) -> None:
    trickles, silent, _ = connections
    for connection in (trickles, silent):
        assert answer(connection, REFUSED, b"}}").startswith(b"HTTP/1.1 401")
    with trickling(trickles, bytes(100)):
        assert is_closed(trickles)
    assert is_closed(silent)
    assert client.get("cluster")["leader"], "others are answered"


def test_a_connection_whose_refused_request_is_complete_can_be_used_again(
    impatient: None, connections: list[socket.socket]
) -> None:
    answer(connections[0], REFUSED, b"}}")
    assert answer(connections[0], bytes(100) + ASKED).startswith(b"HTTP/1.1 200")
    answer(connections[0], REFUSED, b"}}")
    connections[0].sendall(bytes(100) + ASKED[:20])
    assert is_closed(connections[0]), "and half a request after it is not waited for"


def test_a_file_that_comes_too_slowly_is_not_waited_for_and_leaves_nothing(
    impatient_with_bodies: None, leader: NimbusDaemon, client: Client
) -> None:
    name = "0" * 64
    with connect(leader) as connection:
        connection.sendall(authorized(leader, "PUT", at("files", name), 1_000_000) + bytes(50_000))
        until(lambda: list(leader.files.directory.iterdir()), "the file that comes in")
        with trickling(connection, bytes(100)):
            assert is_closed(connection)
    until(lambda: not list(leader.files.directory.iterdir()), "the end of what came in")
    assert not client.exists(at("files", name))


def test_a_client_that_does_not_read_its_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, leader: NimbusDaemon
) -> None:
    monkeypatch.setitem(PATIENCE, Awaited.TAKING, Patience(0.3, least=15_000))
    asked = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: nimbus\r\n\r\n" * 1000
    with connect(leader) as connection, pytest.raises(ConnectionError):
        while True:
            connection.sendall(
                asked
            )  # until nothing can be written any more, and then the connection has ended


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_our_client_gets_the_refusal_of_a_file_that_it_is_still_sending_when_the_connection_ends(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, tmp_path: Path, tls: bool
) -> None:
    monkeypatch.setitem(PATIENCE, Awaited.REST, Patience(0.0))
    conf = tls_conf(tmp_path) if tls else {}
    leader = cluster.start_leader(conf={"nimbus.package.limit.bytes": 1_000_000, **conf})
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(50_000_000)  # more than fits into buffers
    trusted = conf.get("squall.tls.ca")
    client = Client([leader.url], lambda url: bearer(leader.token or ""), trusted)
    with closing(client), pytest.raises(Refused, match="larger than the 1,000,000 bytes"):
        client.put_file(at("files", "0" * 64), path)


def test_connections_over_the_limit_are_closed_at_once_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, leader: NimbusDaemon, connections: list[socket.socket]
) -> None:
    assert [answer(each)[:12] for each in connections] == [b"HTTP/1.1 200"] * 3
    monkeypatch.setattr(http_connections, "most_connections", lambda: 3)
    with connect(leader) as one_more:
        assert is_closed(one_more)
    assert answer(connections[0]).startswith(b"HTTP/1.1 200")


def test_a_tls_handshake_that_does_not_begin_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_SECS", 0.3)
    leader = cluster.start_leader(conf=tls_conf(tmp_path))
    with connect(leader) as silent:
        assert is_closed(silent)


def test_connections_without_a_tls_handshake_count_too(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, tmp_path: Path
) -> None:
    conf = tls_conf(tmp_path)
    leader = cluster.start_leader(conf=conf)
    monkeypatch.setattr(http_connections, "most_connections", lambda: 3)
    with ExitStack() as stack:
        first = [stack.enter_context(connect(leader)) for _ in range(3)]
        assert is_closed(stack.enter_context(connect(leader)))
        first[0].close()
        trusted = client_context(conf["squall.tls.ca"])

        def agreed() -> ssl.SSLSocket | None:
            try:
                return trusted.wrap_socket(connect(leader), server_hostname="127.0.0.1")
            except OSError:  # the other one is still there
                return None

        with until(agreed, "a place") as connection:
            assert answer(connection).startswith(b"HTTP/1.1 200")
