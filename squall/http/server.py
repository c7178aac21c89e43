"""The HTTP server of a Nimbus: an application behind a socket, in this thread or in one of its own.

uvicorn runs it. What uvicorn would do with signals is left to whoever starts this.
Must not know: what the application is.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from squall.http_connections import BACKLOG, Listener, server_config
from squall.tls import ServerFiles
from topology_api.errors import SquallError

#: Connections at a time; a supervisor keeps one or two.
MOST_CONNECTIONS: Final = 4096
#: Seconds that a connection without a request is kept: longer than supervisors are silent.
KEEP_ALIVE_SECS: Final = 15
#: Seconds that requests have to end when the server stops.
GRACE_SECS: Final = 1
START_SECS: Final = 10.0


class CannotListen(SquallError):
    """An address that cannot be listened at."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. `CannotListen` says why not."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if host and ":" not in host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=socket.AddressFamily(family), backlog=BACKLOG)
        return Listener.of(listening)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            taken: str | None = (
                "another program listens there, perhaps another Nimbus; choose another --listen"
            )
        else:
            taken = error.strerror
        raise CannotListen(f"cannot listen at {host or '*'}:{port}: {taken or error}") from None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one application."""

    def __init__(self, app: ASGIApp, listener: socket.socket, tls: ServerFiles | None = None) -> None:
        self._listener = listener
        config = server_config(app, tls, KEEP_ALIVE_SECS, MOST_CONNECTIONS, GRACE_SECS)
        self._server = _Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve in this thread until `stop` is called."""
        self._server.run(sockets=[self._listener])

    def start(self) -> None:
        """Serve in a thread; returns when requests are taken."""
        self._thread = threading.Thread(target=self.run, name="squall-nimbus-http", daemon=True)
        self._thread.start()
        until = time.monotonic() + START_SECS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise CannotListen("the HTTP server has not come up; the log says why")
            time.sleep(0.005)

    def stop(self) -> None:
        """Take no more requests; those that run have a second. May be called from any thread and from a signal handler."""
        self._server.should_exit = True

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None:
            self._thread.join(GRACE_SECS + 3)
