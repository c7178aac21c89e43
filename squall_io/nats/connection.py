"""A connection to NATS. Its event loop runs in a thread of its own, so that questions of the server are answered while the task
is busy; calls are made from other threads, one at a time.

A lost connection is not made again by the library: the next one is a new object.
Must not know: tuples, tasks, what messages mean.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from squall_io.kit.libraries import load_library
from squall_io.kit.queue_client import QueueAway
from squall_io.kit.secrets import resolve
from squall_io.kit.server_address import ServerAddress, tls_context
from squall_io.nats.subjects import FORM
from topology_api import SquallError

#: Seconds for a connection, and for the answer to a request.
CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 5.0
#: Seconds for the end of a connection.
_END_SECONDS: Final = 2.0
#: The server is asked this often whether it is there; without an answer until the next time, the connection is lost.
_PING_SECONDS: Final = 4
#: What errors of a login say.
_LOGIN: Final = ("authorization", "authentication")
#: Codes of JetStream: no such consumer, no such stream, JetStream not enabled for the server and for the account.
NO_CONSUMER, NO_STREAM = 10014, 10059
_NO_JETSTREAM: Final = (10076, 10039)

#: The parts of a file of credentials.
_CREDENTIALS: Final = ("NATS USER JWT", "USER NKEY SEED")

T = TypeVar("T")


class NatsAway(QueueAway):
    """A server does not answer, or the connection is lost. Another attempt may succeed."""


class NatsRefused(SquallError):
    """A server refuses what a connector asks for, and will until something is changed. code: that of JetStream, or 0."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def loaded(component: str, module: str = "nats") -> Any:
    """Return a module of nats-py. component: the class that needs it, for the error."""
    return load_library(component, module, library="nats-py", extra="nats")


def shown_server(server: ServerAddress) -> str:
    """Return how a server is named, for people."""
    return f"NATS at {server.host}:{server.port_of(FORM)}"


class NatsConnection:
    """A connection. `open` makes it, and only then other methods may be called.

    component: the class that needs it, for errors. name: of the client, for the server's lists. credentials: the path of a
    file of credentials (JWT and key) on this host, or None.
    """

    def __init__(self, component: str, server: ServerAddress, credentials: str | None, name: str) -> None:
        self._library = loaded(component, "nats.aio.client")
        self._errors = loaded(component, "nats.errors")
        self._failures = loaded(component, "nats.js.errors")
        self._server, self._credentials, self._name = server, credentials, name
        self.where = shown_server(server)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run_loop, name="connection to NATS", daemon=True)
        self._lost = ""
        #: What the server has said that the user may not do.
        self._forbidden = ""
        self._running: Future[Any] | None = None
        self.client: Any = None
        #: The context of JetStream.
        self.stream: Any = None

    def open(self) -> None:
        """Connect. Raises NatsAway and NatsRefused."""
        server = self._server
        more: dict[str, Any] = {}
        if server.user is not None:
            password = "" if server.password is None else resolve("password", server.password)
            more["user"] = server.user
            more["password"] = partial(
                self._given, password
            )  # called when the connection is encrypted, or not
        if self._credentials is not None:
            check_credentials(self._credentials)
            more["user_credentials"] = self._credentials
        if server.is_encrypted_by(FORM):
            more["tls"] = tls_context(server.tls)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        host = f"[{server.host}]" if ":" in server.host else server.host
        url = f"nats://{host}:{server.port_of(FORM)}"
        try:
            self.client = self._library.Client()
            self.run(
                self.client.connect(
                    url, name=self._name, allow_reconnect=False, connect_timeout=CONNECT_SECONDS,
                    ping_interval=_PING_SECONDS, max_outstanding_pings=1, error_cb=self._on_error,
                    closed_cb=self._on_closed, **more,
                ),
                2 * CONNECT_SECONDS,
            )  # fmt: skip
            self._given("")
        except BaseException:
            self.close()
            raise
        self.stream = self.client.jetstream(timeout=ANSWER_SECONDS)

    def _given(self, password: str) -> str:
        """Return the password, unless a server that is to be reached by TLS has not asked for it: the library goes on without."""
        if self._server.is_encrypted_by(FORM) and not self.client._server_info.get("tls_required"):
            raise NatsRefused(
                f"{self.where} does not ask for TLS, and url begins with tls://: let the server require it, or begin url with"
                " nats://"
            )
        return password

    def run(self, what: Coroutine[Any, Any, T], seconds: float = 2 * ANSWER_SECONDS) -> T:
        """Run a call of the library in the loop, and return what it returns. Raises NatsAway and NatsRefused."""
        assert self._loop is not None, "open was called"
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(what, seconds), self._loop)
        self._running = future
        try:
            return future.result(seconds + ANSWER_SECONDS)
        except Exception as error:
            raise self.explained(error) from None

    def explained(self, error: BaseException) -> SquallError:
        """Return what an error of the library means."""
        text = str(error).removeprefix("nats: ") or type(error).__name__
        if isinstance(error, SquallError):
            return error
        if self._forbidden:
            return NatsRefused(f"{self.where} refuses it: {self._forbidden}; give the user the rights")
        if any(word in text.lower() for word in _LOGIN):
            return NatsRefused(
                f"{self.where} refuses the login: {text}; check the user in url, and password or credentials"
            )
        if isinstance(error, self._failures.APIError):
            return self._of_jetstream(error)
        import ssl

        if isinstance(
            error, (ssl.SSLError, self._errors.SecureConnRequiredError, self._errors.SecureConnWantedError)
        ):
            return NatsRefused(f"{self.where} and this host agree on no TLS: {text}; check url and tls")
        if isinstance(error, (OSError, asyncio.TimeoutError, self._errors.Error)):
            return NatsAway(self._lost or (text if text != "TimeoutError" else "no answer"))
        return SquallError(f"{self.where}: {type(error).__name__}: {text}")

    def _of_jetstream(self, error: Any) -> SquallError:
        text = f"{error.description} ({error.err_code})"
        if error.err_code in _NO_JETSTREAM:
            return NatsRefused(
                f"{self.where} has no JetStream: {text}; start the server with it", error.err_code
            )
        if (error.code or 0) >= 500:  # no leader, no room, JetStream is starting
            return NatsAway(f"JetStream cannot now: {text}")
        return NatsRefused(f"{self.where} refuses it: {text}", error.err_code or 0)

    def check(self) -> None:
        """Raise NatsAway if the connection is lost, and NatsRefused if the server has said that the user has no right."""
        if self._forbidden:
            raise NatsRefused(f"{self.where} refuses it: {self._forbidden}; give the user the rights")
        if self.client is None or self.client.is_closed:
            raise NatsAway(self._lost or "the connection is lost")

    def close(self) -> None:
        """End the connection: in good order if the server answers, else at once."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if self.client is not None:
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(self.client.close(), loop).result(_END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_END_SECONDS)

    def _run_loop(self) -> None:
        loop = self._loop
        assert loop is not None, "open was called"
        try:
            loop.run_forever()
            loop.run_until_complete(_end_tasks())
        finally:
            loop.close()

    async def _on_error(self, error: Exception) -> None:
        text = str(error).removeprefix("nats: ")
        if "permissions violation" in text.lower():
            self._forbidden = text
            if self._running is not None:
                self._running.cancel()  # there will be no other answer
        else:
            self._lost = text

    async def _on_closed(self) -> None:
        self._lost = self._lost or "the connection is lost"


def check_credentials(path: str) -> None:
    """Raise NatsRefused for a file that has no credentials: the library would wait for the server, or read for ever."""
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise NatsRefused(f"credentials {path!r} cannot be read on this host: {error.strerror}") from None
    if missing := [each for each in _CREDENTIALS if f"BEGIN {each}" not in text]:
        raise NatsRefused(
            f"credentials {path!r} have no {' and no '.join(missing)}: give a file that nsc has made"
        )


async def _end_tasks() -> None:
    """End what the library has left running."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
