"""Free consecutive ports, for listeners on ports of a range."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

#: Below the ports that the system itself gives to connections.
FIRST, ROOM, ROOMS = 20_000, 40, 300


def free_range(count: int) -> range:
    """This many. Concurrent test processes search in ranges of their own, and do not take each other's."""
    begin = os.getpid() % ROOMS
    for room in (*range(begin, ROOMS), *range(begin)):
        start = FIRST + room * ROOM
        for first in range(start, start + ROOM - count + 1, count):
            with ExitStack() as stack:
                try:
                    for port in range(first, first + count):
                        stack.enter_context(socket.create_server(("127.0.0.1", port)))
                except OSError:
                    continue
                return range(first, first + count)
    raise AssertionError("no free ports")
