"""Ends a session of ZooKeeper from another connection, in one write.

A client library would connect, then close: between the two the owner, whose connection the server has dropped, may connect
again and take its session back. Here the server has the request to end the session before its owner hears of anything.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Final

from squall.cluster.zookeeper import ZooKeeperStore
from tests.zookeeper_servers import PATIENCE_SECS, eventually

PASSWORD_BYTES: Final = 16
_CLOSE: Final = struct.pack(">iii", 8, 1, -11)  # its length, the number of the request, and its kind
_SESSION_MILLIS: Final = 10_000


def end_session(
    servers: str,
    session: int,
    password: bytes,
    tls: ssl.SSLContext | None = None,
    secs: float = PATIENCE_SECS,
) -> bool:
    """Take a session over and end it. False: the server knows no such session, or it is not ended yet.

    Raises `OSError` where the server does not answer, or drops the connection before it has answered the handshake.
    """
    host, port = servers.split(":")
    asked = struct.pack(">iqiqi", 0, 0, _SESSION_MILLIS, session, PASSWORD_BYTES) + password + b"\0"
    with contextlib.ExitStack() as connections:
        connection = connections.enter_context(socket.create_connection((host, int(port)), timeout=secs))
        if tls is not None:
            connection = connections.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(struct.pack(">i", len(asked)) + asked + _CLOSE)
        _, _, granted = struct.unpack(">iiq", _answer(connection)[:16])
        if granted != session:
            return False
        try:
            number, _, error = struct.unpack(">iqi", _answer(connection)[:16])
        except OSError:
            return False  # the owner was quicker
        return (number, error) == (1, 0)


def _answer(connection: socket.socket) -> bytes:
    """One answer without its length."""
    return _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise ConnectionResetError(f"ZooKeeper closed the connection after {len(got)} of {size} bytes")
        got += part
    return got


def expire(store: ZooKeeperStore) -> None:
    """Have the server end a store's session now."""

    def is_ended() -> bool:
        client = store._client
        assert client is not None
        session, password = client.client_id or (0, b"")
        return session != 0 and end_session(store.servers, session, password)

    eventually(is_ended)
