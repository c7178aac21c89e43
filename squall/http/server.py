"""An HTTP server of a daemon: uvicorn runs an ASGI application behind a socket, in the calling thread or in a new one.

Must not know: what the application is, signals (uvicorn's own handlers are not installed).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import uvicorn

from squall.http.admission import PER_ADDRESS
from squall.http.connections import BACKLOG, HANDSHAKE_SECS, Connection, Listener
from squall.http.json_app import App
from squall.security.tls import ServerFiles
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: When the server stops, the seconds that requests in progress have to end.
GRACE_SECS: Final = 1
START_SECS: Final = 10.0


class CannotListen(SquallError):
    """This process cannot listen at the address."""


def listen(host: str, port: int) -> Listener:
    """Return a socket that listens at a name or an address; port 0 means any free port. Raises `CannotListen` with the
    reason."""
    bare = host.strip("[]")
    try:
        found = socket.getaddrinfo(bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family = socket.AddressFamily(found[0]) if bare else socket.AF_INET
        return Listener(fileno=socket.create_server((bare, port), family=family, backlog=BACKLOG).detach())
    except (OSError, UnicodeError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            why = "another program listens there"
        raise CannotListen(f"cannot listen at {host or '*'}:{port}: {why}; choose another --listen") from None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn has no setting for the time of the TLS handshake, so asyncio gets it here."""
        loop: Any = asyncio.get_running_loop()
        if self.config.ssl is not None:
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=HANDSHAKE_SECS)
        try:
            await super().startup(sockets)
        finally:
            vars(loop).pop("create_server", None)


class HttpServer:
    """Serves one application. keep_alive: seconds that an idle connection is kept that has shown credentials. most: the limit
    for connections at a time. per_address: the limit for connections of one address that have shown no credentials."""

    def __init__(
        self,
        app: App,
        listener: Listener,
        name: str,
        keep_alive: int,
        most: int,
        tls: ServerFiles | None = None,
        per_address: int = PER_ADDRESS,
    ) -> None:
        listener.most, listener.admission.per_address = most, per_address
        self._listener = listener
        self._name = name
        # uvicorn writes nothing to stdout; only its warnings reach the log.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=partial(Connection, admission=listener.admission),  # type: ignore[arg-type]
            backlog=BACKLOG,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=GRACE_SECS,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
            ssl_ciphers=None,  # Python's default; older releases of uvicorn would use ciphers of TLS 1.0
        )
        self._server = _Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve in this thread until `stop` is called."""
        self._server.run(sockets=[self._listener])

    def start(self) -> None:
        """Serve in a thread; return when the server accepts requests."""
        self._thread = threading.Thread(target=self._run_in_thread, name=self._name, daemon=True)
        self._thread.start()
        until = time.monotonic() + START_SECS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise CannotListen("the HTTP server did not start; see the log")
            time.sleep(0.005)

    def stop(self) -> None:
        """Accept no more requests; running requests have a second to end. Any thread and signal handlers may call this."""
        self._server.should_exit = True

    def join(self) -> None:
        """Wait until the server has ended; requests that still run are cut off."""
        if self._thread is not None:
            self._thread.join(GRACE_SECS + 1)
            self._server.force_exit = True
            self._thread.join(GRACE_SECS + 2)

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException:  # the daemon goes on without the server
            _log.exception("the HTTP server has ended: this daemon does not answer any more")
