"""A connection to RabbitMQ. Its loop runs in a thread of its own, so that heartbeats are answered while the task is busy; calls
are made from other threads, one at a time.

A lost connection is not made again: the next one is a new object.
Must not know: tuples, tasks, what messages mean.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any, Final

from squall_io.kit.libraries import load_library
from squall_io.kit.secrets import resolve
from squall_io.kit.server_address import ServerAddress, tls_context
from squall_io.rabbitmq.address import FORM, shown_server, vhost_of
from squall_io.rabbitmq.faults import RabbitAway, explained, innermost, of_connecting
from topology_api import SquallError

#: Seconds for the connection of a socket, for the login after it, and for the answer to a call.
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
#: Seconds for the end of a connection.
_END_SECONDS: Final = 2.0
#: Seconds between heartbeats; after some more without a word of the server, the connection is lost.
_HEARTBEAT_SECONDS: Final = 10
#: The user and password of a server that was not configured, for clients on its own host.
_GUEST: Final = "guest"

#: Called when the server closes a channel: with the code and the text.
ChannelClosed = Callable[[int, str], None]


def loaded(component: str) -> Any:
    """Return the library. component: the class that needs it, for the error."""
    pika = load_library(component, "pika", library="pika", extra="rabbitmq")
    log = logging.getLogger("pika")
    if log.level == logging.NOTSET:  # it says what the connector says again, with tracebacks
        log.setLevel(logging.CRITICAL)
    return pika


class RabbitConnection:
    """A connection. `open` makes it, and only then other methods may be called.

    component: the class that needs it, for errors. name: of the connection, for the server's lists.
    """

    def __init__(self, component: str, server: ServerAddress, name: str) -> None:
        self._library = loaded(component)
        self._server, self._name = server, name
        self.where = shown_server(server)
        #: Held while what callbacks change is read; notified after each change.
        self.changed = threading.Condition()
        #: Why it can be used no more.
        self.fault: SquallError | None = None
        #: Why the server takes no messages now, as it says; "": it does.
        self.blocked = ""
        self._connection: Any = None
        self._pending: Future[Any] | None = None
        self._ending = False
        self._loop = load_library(
            component, "pika.adapters.select_connection", library="pika", extra="rabbitmq"
        ).IOLoop()
        self._thread = threading.Thread(target=self._run, name="connection to RabbitMQ", daemon=True)

    def open(self) -> None:
        """Connect. Raises RabbitAway and RabbitRefused."""
        parameters = self._parameters()
        self._thread.start()
        try:
            self.ask(lambda done: self._connect(parameters, done), 3 * CONNECT_SECONDS)
        except BaseException:
            self.close()
            raise

    def ask(self, begin: Callable[[Callable[..., None]], object], seconds: float = ANSWER_SECONDS) -> Any:
        """Begin a call in the loop's thread, and return the answer.

        begin: gets what to call with the answer, from the same thread. Raises what the connection is lost by, or RabbitAway.
        """
        self.check()
        answer: Future[Any] = Future()
        self._pending = answer

        def begun() -> None:
            if self.fault is not None:
                _set(answer, self.fault)
                return
            try:
                begin(lambda *given: _set(answer, given[-1] if given else None))
            except Exception as error:
                _set(answer, self._of_library(error))

        self._loop.add_callback_threadsafe(begun)
        try:
            return answer.result(seconds)
        except NoAnswer:
            raise self.fault or RabbitAway(f"no answer within {seconds:g} s") from None
        finally:
            self._pending = None

    def do(self, call: Callable[[], object]) -> None:
        """Make a call in the loop's thread that has no answer."""

        def called(done: Callable[..., None]) -> None:
            call()
            done()

        self.ask(called)

    def channel(self, closed: ChannelClosed) -> Any:
        """Open a channel. closed: called in the loop's thread when the server closes it, not when the connection is lost."""

        def on_close(channel: Any, reason: Any) -> None:
            if isinstance(reason, self._library.exceptions.ChannelClosedByBroker):
                closed(reason.reply_code, reason.reply_text)
                if self._pending is not None:
                    _set(self._pending, explained(self.where, reason.reply_code, reason.reply_text))

        channel = self.ask(lambda done: self._connection.channel(on_open_callback=done))
        channel.add_on_close_callback(on_close)
        return channel

    def fail(self, error: SquallError) -> None:
        """The connection can be used no more."""
        with self.changed:
            self.fault = self.fault or error
            self.changed.notify_all()
        if self._pending is not None:
            _set(self._pending, self.fault)

    def check(self) -> None:
        """Raise why it can be used no more."""
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        """End the connection: in good order if the server answers, else at once."""
        self._ending = True
        if not self._thread.is_alive():
            return
        self._loop.add_callback_threadsafe(self._end)
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            self._loop.add_callback_threadsafe(self._abort)
            self._thread.join(_END_SECONDS)

    def _parameters(self) -> Any:
        """Return what the library wants to know. Raises SquallError for secrets and files that are not there."""
        server, library = self._server, self._library
        user, password = server.user or _GUEST, _GUEST if server.user is None else ""
        if server.password is not None:
            password = resolve("password", server.password)
        tls = None
        if server.is_encrypted_by(FORM):
            tls = library.SSLOptions(tls_context(server.tls), server.host)
        return library.ConnectionParameters(
            host=server.host, port=server.port_of(FORM), virtual_host=vhost_of(server.url),
            credentials=library.PlainCredentials(user, password), heartbeat=_HEARTBEAT_SECONDS, ssl_options=tls,
            socket_timeout=CONNECT_SECONDS, stack_timeout=2 * CONNECT_SECONDS, connection_attempts=1,
            client_properties={"connection_name": self._name},
        )  # fmt: skip

    # In the thread of the loop.

    def _run(self) -> None:
        try:
            self._loop.start()
        except Exception as error:
            self.fail(SquallError(f"{self.where}: {type(error).__name__}: {error}"))
        self._loop.close()

    def _connect(self, parameters: Any, done: Callable[..., None]) -> None:
        self._connection = self._library.SelectConnection(
            parameters, on_open_callback=done, on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close, custom_ioloop=self._loop,
        )  # fmt: skip
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)

    def _on_open_error(self, connection: Any, error: BaseException) -> None:
        self.fail(of_connecting(self.where, error))
        self._connection = None
        self._loop.stop()

    def _on_close(self, connection: Any, error: BaseException) -> None:
        self.fail(self._of_library(error))
        self._connection = None
        self._loop.stop()

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        self._block(f"it takes no messages now: {frame.method.reason or 'blocked'}")

    def _on_unblocked(self, connection: Any, frame: Any) -> None:
        self._block("")

    def _block(self, why: str) -> None:
        with self.changed:
            self.blocked = why
            self.changed.notify_all()

    def _of_library(self, error: BaseException) -> SquallError:
        """Return what an error of the library means on a connection that was made."""
        cause = innermost(error)
        exceptions = self._library.exceptions
        if isinstance(cause, (exceptions.ConnectionClosedByBroker, exceptions.ChannelClosedByBroker)):
            return explained(self.where, cause.reply_code, cause.reply_text)
        if isinstance(cause, (exceptions.AMQPError, OSError)):
            text = " ".join(str(part) for part in cause.args) or type(cause).__name__
            return self.fault or RabbitAway(" ".join(text.split()))
        return SquallError(f"{self.where}: {type(cause).__name__}: {cause}")

    def _end(self) -> None:
        if self._connection is None:
            self._loop.stop()
        elif (
            self._connection.is_open and not self.blocked
        ):  # a server that takes nothing does not read the end either
            self._connection.close()
        else:
            self._abort()

    def _abort(self) -> None:
        """Drop the connection without a word."""
        if self._connection is not None:
            self._connection._terminate_stream(
                RabbitAway("the server did not answer the end of the connection")
            )
        self._loop.call_later(0.5, self._loop.stop)


def _set(answer: Future[Any], value: Any) -> None:
    """Answer, unless that was done: by a fault, or by nothing in time."""
    if answer.done():
        return
    if isinstance(value, BaseException):
        answer.set_exception(value)
    else:
        answer.set_result(value)
