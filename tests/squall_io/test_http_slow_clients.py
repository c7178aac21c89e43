"""The server of a webhook's task against clients that are silent, slow, or too many."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import squall.http.connections as shared
from squall.http.connections import Awaited, Patience
from squall_io.http import connections
from squall_io.http.serving import WebhookServer
from tests.zookeeper_servers import eventually


async def answering(scope: Any, receive: Any, send: Any) -> None:
    """Answer /body when the body is there, all else at once."""
    more = scope["path"] == "/body"
    while more:
        message = await receive()
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookServer]:
    short = {awaited: Patience(0.5, each.least) for awaited, each in shared.PATIENCE.items()}
    monkeypatch.setattr(shared, "PATIENCE", short)
    server = WebhookServer(answering, "127.0.0.1", 0, None, None)
    yield server
    server.stop()


def connected(server: WebhookServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def ended(client: socket.socket) -> bytes:
    """Read until the server ends the connection; return what it has sent."""
    found = b""
    with suppress(ConnectionResetError):
        while part := client.recv(65_536):
            found += part
    return found


def answered(client: socket.socket) -> bytes:
    """Send a request; return its answer."""
    client.sendall(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n")
    found = b""
    while not found.endswith(b"ok") and (part := client.recv(100)):
        found += part
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST / HTTP/1.1\r\nhost",
        b"POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_connection_that_stops_within_a_request_is_closed(server: WebhookServer, sent: bytes) -> None:
    with connected(server) as client:
        client.sendall(sent)
        assert ended(client) == b""


def test_bytes_that_trickle_in_do_not_keep_a_connection(server: WebhookServer) -> None:
    with connected(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\n")
        client.settimeout(0.05)

        def closed() -> bool:
            try:
                client.sendall(b"x: y\r\n")
                return client.recv(100) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(closed, 20)


def test_a_request_that_breaks_the_rules_logs_nothing(
    server: WebhookServer, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"):
        with connected(server) as client:
            client.sendall(sent)
            assert ended(client).startswith(b"HTTP/1.1 400")
    assert caplog.records == []


def test_after_a_refusal_the_rest_of_a_body_is_not_awaited_for_long(server: WebhookServer) -> None:
    with connected(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nbeginning")
        assert ended(client).endswith(b"ok")


def test_a_connection_above_the_limit_is_closed_and_the_others_are_served(
    server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "PATIENCE", dict.fromkeys(Awaited, Patience(60)))
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    with ExitStack() as stack:
        first, second = (stack.enter_context(connected(server)) for _ in range(2))
        for client in (first, second):
            assert answered(client).startswith(b"HTTP/1.1 200")
        with connected(server) as third:
            assert ended(third) == b""
        assert answered(first).startswith(b"HTTP/1.1 200")
