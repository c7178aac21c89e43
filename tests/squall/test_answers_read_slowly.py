"""Bytes of an answer count as soon as a client has read them, also below TLS: this distinguishes a slow client from one that
has gone. It uses real sockets, and does not wait for the timeout (tests/squall/test_http_connections.py).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from squall.http.connections import Awaited, Connection
from squall.security.tls import client_context
from tests.certificates import make_certificates

ANSWER = 4_000_000  # more than fits into the buffers of the sockets
CAP_SECS = 30.0


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Send the whole answer at once, like an answer of JSON."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(ANSWER)})


async def until(question: Callable[[], bool]) -> None:
    async def asking() -> None:
        while not question():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(asking(), CAP_SECS)


async def taking(server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> None:
    made: list[Any] = []

    def connection() -> Connection:
        config = uvicorn.Config(application, log_config=None)
        made.append(Connection(config, ServerState(), {}, asyncio.get_running_loop()))
        return made[0]  # type: ignore[no-any-return]

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as sock:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        serving = await loop.create_server(connection, sock=listening, ssl=server)
        sock.setblocking(False)
        await loop.sock_connect(sock, listening.getsockname())
        name = None if client is None else "localhost"
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=client, server_hostname=name, limit=16_384
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: nimbus\r\n\r\n")
        await until(lambda: bool(made) and made[0]._awaited is Awaited.TAKING)
        before = made[0]._gone()
        for _ in range(10):
            await reader.readexactly(20_000)  # far less than the answer
        await until(lambda: made[0]._gone() >= before + 100_000)
        assert made[0]._awaited is Awaited.TAKING, "most of it is still unread"
        made[0].transport.abort()
        writer.transport.abort()
        serving.close()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_bytes_read_by_a_slow_client_count_at_once(tls: bool, tmp_path: Path) -> None:
    server = client = None
    if tls:
        made = make_certificates(tmp_path / "certificates")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(made.certificate, made.key)
        client = client_context(made.ca)
    asyncio.run(taking(server, client))
