"""The server of a task: a socket, and uvicorn in a thread of its own.

Must not know: what is answered.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

from topology_api import SquallError

#: Connections that wait to be accepted.
_BACKLOG: Final = 512
#: Seconds for which an idle connection is kept.
_KEEP_ALIVE: Final = 15
#: Seconds that running requests have to end when the server stops.
GRACE_SECONDS: Final = 5


class PortTaken(SquallError):
    """The port cannot be had now: another program listens there, mostly an earlier run of the task that is about to end."""


class RefusedPort(SquallError):
    """The port, or the files of TLS, cannot be had until something is changed."""


class WebhookServer:
    """One server. port: 0 means any free one.

    certificate, key: files of this host, PEM; None: without TLS. Raises PortTaken and RefusedPort.
    """

    def __init__(
        self, app: Callable[..., Any], host: str, port: int, certificate: str | None, key: str | None
    ) -> None:
        import uvicorn

        from squall_io.http.connections import CONNECTIONS, WebhookConnection

        _check_tls(certificate, key)
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if certificate is None else 'https'}://{shown}:{self.port}"
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=WebhookConnection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS + 1,  # of requests whose clients are gone, too
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="squall-http", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Accept no more; wait until running requests are answered, for a few seconds at most."""
        self._server.should_exit = True
        self._thread.join(GRACE_SECONDS + 1)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # the task begins another one
            self.error = error


def _check_tls(certificate: str | None, key: str | None) -> None:
    if certificate is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise RefusedPort(
            f"the certificate {certificate} with the key {key or certificate} cannot be used on this host: {error}"
        ) from None


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=socket.AddressFamily(family), backlog=_BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        text = f"cannot listen at {host}:{port}: {why}"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise PortTaken(
                f"{text}; another program listens there, or another task of this spout on this host: give another port"
            ) from None
        raise RefusedPort(f"{text}; give a host and a port of this machine that its user may have") from None
