"""Who is at the other end of a connection that came to a worker, in words for its log: over TCP, or by a Unix socket.

Must not know: what is said on it, whether it is let in.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

#: Process, user and group, as Linux tells them.
_CREDENTIALS: Final = struct.Struct("3i")


def other_end(descriptor: int, endpoint: str) -> str | None:
    """Host and port, or user and process here, of whoever connected to an endpoint of ours; None if it is gone, or the
    descriptor is another's by now. What stands before the last colon stays when it comes again."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
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
    """A process of this host."""
    which = getattr(socket, "SO_PEERCRED", None)
    if which is None:
        return "this host:a process"
    credentials = connection.getsockopt(socket.SOL_SOCKET, which, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return f"user {user} of this host:process {process}"
