"""Connections to a daemon's HTTP server, with limits for slow clients.

uvicorn would wait for ever for the first request of a connection, for the rest of a request, for a body that trickles in (even
after a refusal, when it reads the body only to drop it), and for a client that does not read the answer. Here a table sets a
limit for each of these waits. The number of connections is limited too, because the daemon itself needs open files, and asyncio
floods the log when no file can be opened.
Must not know: the meaning of requests.
"""

from __future__ import annotations

import asyncio
import enum
import resource
import socket
import weakref
from dataclasses import dataclass
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: The most connections that wait to be accepted. When no file can be opened, asyncio tries this many times in a row to accept a
#: connection, and logs each failure.
BACKLOG: Final = 128


class Awaited(enum.Enum):
    """The kinds of waits on a connection."""

    REQUEST = "the head of a request"
    BODY = "the body of a request that is not answered yet"
    REST = "the rest of a body that was answered before it was read"
    TAKING = "that the client reads its answer"


@dataclass(frozen=True)
class Patience:
    """A wait may last `secs` seconds. With `least`, it may go on for `secs` more seconds each time at least `least` bytes were
    transferred."""

    secs: float
    least: int | None = None


#: A client on the slowest line transfers 500 bytes a second. A wait that begins and ends while one piece of data is handled is
#: not measured.
PATIENCE: Final = {
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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

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
            return Awaited.REQUEST
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


class Listener(socket.socket):
    """A listening socket that closes new connections at once when there are too many.

    Connections count from the moment they are accepted, even before the TLS handshake.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._taken: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        most = most_connections()
        if len(self._taken) >= most:
            self._taken = weakref.WeakSet(each for each in self._taken if each.fileno() >= 0)
        if len(self._taken) >= most:
            connection.close()
            raise ConnectionAbortedError("too many connections")  # asyncio goes on to the next
        self._taken.add(connection)
        return connection, address


def most_connections() -> float:
    """Return how many connections a server may have: half of the files that this process may have open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if files == resource.RLIM_INFINITY else max(files // 2, 1)
