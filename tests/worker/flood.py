"""Strangers who hold connections to a port of this machine: a process that ends by itself after a given number of seconds.

Must not know: single tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Holds connections, and opens one for each that is closed. Arguments: port, connections, seconds.
_FLOOD = """
import resource, select, socket, sys, time
port, most, seconds = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100 if hard < 0 else min(most + 100, hard), hard))
end, held, watch = time.monotonic() + seconds, {}, select.epoll()
print("begins", flush=True)
while time.monotonic() < end:
    while len(held) < most:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        held[connection.fileno()] = connection
        watch.register(connection, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
    for descriptor, _ in watch.poll(0.02):
        held.pop(descriptor).close()
"""


@contextmanager
def flooded(port: int, connections: int, seconds: int) -> Iterator[None]:
    """Flood a port until the block ends, or for this number of seconds."""
    command = [sys.executable, "-c", _FLOOD, str(port), str(connections), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as strangers:
        try:
            assert strangers.stdout is not None and strangers.stdout.readline() == b"begins\n"
            yield
        finally:
            strangers.kill()
