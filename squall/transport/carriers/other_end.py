"""Names the other end of an accepted connection, TCP or Unix socket, for a worker's log.

Must not know: messages, whether the connection is refused.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

#: Process, user and group, in the layout of Linux.
_CREDENTIALS: Final = struct.Struct("3i")


def other_end(descriptor: int, endpoint: str) -> str | None:
    """Return host and port, or local user and process, of the peer of a connection to `endpoint`; None if the connection is
    closed, or its descriptor has been reused. The text before the last colon is the same for all connections of one peer."""
    try:
        copy = os.dup(descriptor)
        try:
            connection = socket.socket(fileno=copy)
        except OSError:  # the descriptor means another file by now
            os.close(copy)
            return None
        with connection:
            own = connection.getsockname()
            if connection.family == socket.AF_UNIX:
                return _here(connection) if endpoint == f"ipc://{own}" else None
            other = connection.getpeername()
    except OSError:
        return None
    if not isinstance(own, tuple) or not endpoint.endswith(f":{own[1]}"):
        return None
    return f"{other[0]}:{other[1]}"


def _here(connection: socket.socket) -> str:
    """Return a text that names the user and the process on this host."""
    if (which := getattr(socket, "SO_PEERCRED", None)) is None:
        return "this host:a process"
    credentials = connection.getsockopt(socket.SOL_SOCKET, which, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return f"user {user} of this host:process {process}"
