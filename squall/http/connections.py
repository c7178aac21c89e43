"""Connections to a daemon's HTTP server, with limits for slow clients.

uvicorn would wait for ever for the first request of a connection, for the rest of a request, for a body that trickles in (even
after a refusal, when it reads the body only to drop it), and for a client that does not read the answer. Here a table sets a
limit for each of these waits, a shorter one for a client that has shown no credentials. The number of connections is limited
too (`admission.py`), because the daemon itself needs open files, and asyncio floods the log when no file can be opened.
Must not know: the meaning of requests.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import resource
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from squall.http.admission import ADDRESS, FULL, UNKNOWN, Admission, Notice

_log = logging.getLogger(__name__)

#: The most connections that wait to be accepted. When no file can be opened, asyncio tries this many times in a row to accept a
#: connection, and logs each failure.
BACKLOG: Final = 128
#: Seconds for the TLS handshake.
HANDSHAKE_SECS: Final = 10.0
#: How many seconds an idle connection is kept that has shown no credentials.
UNKNOWN_KEEP_SECS: Final = 5
#: The extension of a request's scope by which the application says that the request has shown valid credentials.
_SHOWN: Final = "squall.shown"


class Awaited(enum.Enum):
    """The kinds of waits on a connection."""

    FIRST = "the head of a request, on a connection that has shown no credentials"
    REQUEST = "the head of a request, on a connection that has shown credentials"
    BODY = "the body of a request that is not answered yet"
    REST = "the rest of a body that was answered before it was read"
    TAKING = "that the client reads its answer"


class Patience(msgspec.Struct, frozen=True):
    """A wait may last `secs` seconds. With `least`, it may go on for `secs` more seconds each time at least `least` bytes were
    transferred."""

    secs: float
    least: int | None = None


#: A client on the slowest line transfers 500 bytes a second. A wait that begins and ends while one piece of data is handled is
#: not measured.
PATIENCE: Final = {
    Awaited.FIRST: Patience(5.0),
    Awaited.REQUEST: Patience(15.0),
    Awaited.BODY: Patience(30.0, least=15_000),
    # Long enough for a client that sends a file in good faith to read the answer before the connection ends.
    Awaited.REST: Patience(10.0),
    Awaited.TAKING: Patience(30.0, least=15_000),
}


class Connection(H11Protocol):
    """A connection that is closed when a wait on it exceeds its limit."""

    _awaited: Awaited | None = None
    _timer: asyncio.TimerHandle | None = None
    _received = 0
    #: The bytes transferred when the timer was set.
    _mark = 0
    #: Whether the application has been too slow since the timer was set, so that the client could not send.
    _held_up = False
    #: The number of this connection at `admission`.
    _number = -1
    #: Whether a request on this connection has shown valid credentials.
    _known = False

    def __init__(self, *args: Any, admission: Admission | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._admission = admission
        self._keep_known = self.timeout_keep_alive
        self.timeout_keep_alive = min(self._keep_known, UNKNOWN_KEEP_SECS)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (own := transport.get_extra_info("socket")) is not None:
            self._number = own.fileno()
        self._look()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:
            extensions: dict[str, Any] = self.scope.setdefault("extensions", {})
            extensions[_SHOWN] = self._shows_credentials

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._held_up = self._held_up or self.flow.read_paused
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        super().shutdown()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    def _shows_credentials(self) -> None:
        """Called by the application, in any thread."""
        if not self._known:
            with suppress(RuntimeError):  # the server has ended
                self.loop.call_soon_threadsafe(self._become_known)

    def _become_known(self) -> None:
        """Give this connection the place and the patience of one that has shown credentials."""
        self._known, self.timeout_keep_alive = True, self._keep_known
        # The number of a closed connection may belong to a new one.
        if self._admission is not None and self._number >= 0 and not self.transport.is_closing():
            self._admission.show(self._number)

    def _should_upgrade(self) -> bool:
        return False  # otherwise uvicorn would log the advice to install a library for upgrades

    def _look(self) -> None:
        if (awaited := self._what_is_awaited()) is not self._awaited:
            self._wait_for(awaited)

    def _what_is_awaited(self) -> Awaited | None:
        """Return the present wait. None if the connection waits for the application's answer, or for the next request, for
        which uvicorn has a timer."""
        if self.transport.is_closing() or self.flow.write_paused:
            return Awaited.TAKING
        if self.conn.their_state is h11.SEND_BODY:
            return Awaited.REST if self.conn.our_state is h11.DONE else Awaited.BODY
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            return Awaited.REQUEST if self._known else Awaited.FIRST
        return None

    def _wait_for(self, awaited: Awaited | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = awaited
        if awaited is not None:
            self._mark, self._held_up = self._gone(), self.flow.read_paused
            self._timer = self.loop.call_later(PATIENCE[awaited].secs, self._time_is_up, awaited)

    def _time_is_up(self, awaited: Awaited) -> None:
        least = PATIENCE[awaited].least
        blameless = awaited is Awaited.BODY and self._held_up
        if blameless or (least is not None and self._gone() - self._mark >= least):
            self._wait_for(awaited)
        else:
            self.transport.abort()

    def _gone(self) -> int:
        """Return a number that grows with each byte of progress: with each byte that arrives or, in the wait `TAKING`, with
        each byte that leaves this process."""
        if self._awaited is not Awaited.TAKING:
            return self._received
        # The bytes of the answer that have not left this process. With TLS, most of these bytes are in the transport below TLS,
        # and TLS does not count them.
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        lower: int = 0 if below is None else below.get_write_buffer_size()
        return -(self.transport.get_write_buffer_size() + lower)


def shows_credentials(scope: Mapping[str, Any]) -> None:
    """Record that the request with this scope has shown valid credentials."""
    shown: Callable[[], None] | None = scope.get("extensions", {}).get(_SHOWN)
    if shown is not None:
        shown()


class _Accepted(socket.socket):
    """A connection that says when it is closed."""

    leave: Callable[[], None] | None = None

    def close(self) -> None:
        """Close the socket. The next connection may have its number from then on."""
        if self.leave is not None:
            self.leave()
            self.leave = None
        super().close()


class Listener(socket.socket):
    """A listening socket that closes connections when there are too many: new ones, or old ones that have shown no credentials.

    Connections count from the moment they are accepted, even before the TLS handshake.
    """

    #: The most connections, whatever number of files this process may open.
    most: float = float("inf")

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.admission = Admission(lambda: min(self.most, most_connections()), time.monotonic)
        self._accepted: dict[int, _Accepted] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        taken, address = super().accept()
        connection = _Accepted(taken.family, taken.type, taken.proto, fileno=taken.detach())
        number = connection.fileno()
        decision = self.admission.enter(number, str(address[0]))
        if decision.notice is not None:
            _log.warning("%s", _text_of(decision.notice, self.getsockname()[1]))
        if not decision.admitted:
            connection.close()
            raise ConnectionAbortedError("too many connections")  # asyncio goes on to the next
        if decision.evicted is not None:
            # asyncio sees the end of the stream, and closes the connection, in a TLS handshake too.
            with suppress(OSError):
                self._accepted[decision.evicted].shutdown(socket.SHUT_RDWR)
        self._accepted[number] = connection
        connection.leave = partial(self._leave, number)
        return connection, address

    def _leave(self, number: int) -> None:
        self.admission.leave(number)
        del self._accepted[number]


def _text_of(notice: Notice, port: int) -> str:
    why = {
        ADDRESS: "this address has too many connections that have shown no credentials",
        UNKNOWN: "there are too many connections that have shown no credentials",
        FULL: "there are too many connections for the files that this process may open (ulimit -n)",
    }[notice.why]
    others = f" ({notice.closed} since the last message)" if notice.closed > 1 else ""
    return f"port {port}: closed a connection from {notice.host}: {why}{others}"


def most_connections() -> float:
    """Return how many connections a server may have: half of the files that this process may have open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if files == resource.RLIM_INFINITY else max(files // 2, 1)
