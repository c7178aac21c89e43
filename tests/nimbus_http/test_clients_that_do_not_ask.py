"""Whoever connects and asks nothing, or half a question, keeps neither the connection nor others from being answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nimbus.daemon import NimbusDaemon
from squall import http_connections
from squall.http_client import Client

CAP_SECS = 30.0
ASKED = b"GET /health HTTP/1.1\r\nHost: nimbus\r\n\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "REQUEST_SECS", 0.3)


@pytest.fixture
def connections(leader: NimbusDaemon) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(leader)) for _ in range(3)]


def connect(nimbus: NimbusDaemon) -> socket.socket:
    host, _, port = nimbus.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=CAP_SECS)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes it, at last."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def answer(connection: socket.socket) -> bytes:
    connection.sendall(ASKED)
    data = b""
    while b'"status"' not in data:
        data += connection.recv(4096)
    return data


def test_a_connection_without_a_request_is_closed(
    impatient: None, connections: list[socket.socket], client: Client
) -> None:
    _silent, half, second_half = connections
    half.sendall(b"GET /health HTT")
    assert answer(second_half).startswith(b"HTTP/1.1 200")
    second_half.sendall(b"GET /health HTT")
    assert all(is_closed(each) for each in connections)
    assert client.get("cluster")["leader"], "others are answered"


def test_a_request_that_trickles_in_is_not_waited_for(
    impatient: None, connections: list[socket.socket]
) -> None:
    stop = threading.Event()

    def trickle() -> None:
        for byte in ASKED * 100:
            try:
                connections[0].sendall(bytes([byte]))
            except OSError:
                return
            if stop.wait(0.05):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        assert is_closed(connections[0])
    finally:
        stop.set()
        thread.join(CAP_SECS)


def test_a_body_may_take_its_time(impatient: None, leader: NimbusDaemon) -> None:
    with connect(leader) as connection:
        token = leader.token
        head = f"POST /api/v1/supervisors/none/drain HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer {token}\r\n"
        connection.sendall(f"{head}Content-Length: 2\r\n\r\n".encode())
        threading.Event().wait(0.6)
        connection.sendall(b"{}")
        assert connection.recv(12) == b"HTTP/1.1 404"


def test_connections_over_the_limit_are_closed_at_once_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, leader: NimbusDaemon, connections: list[socket.socket]
) -> None:
    assert [answer(each)[:12] for each in connections] == [b"HTTP/1.1 200"] * 3
    monkeypatch.setattr(http_connections, "most_connections", lambda: 3)
    with connect(leader) as one_more:
        assert is_closed(one_more)
    assert answer(connections[0]).startswith(b"HTTP/1.1 200")
