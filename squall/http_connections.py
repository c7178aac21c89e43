"""Connections to a daemon's HTTP: who connects and does not get round to asking is not waited for.

uvicorn would wait for the first request of a connection, and for the end of half a one, for ever. And connections never take
all of the files that the process may have open: a daemon needs some for itself, and asyncio fills the log when none is left.
Must not know: what is asked.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds in which a request has to be there, but for its body.
REQUEST_SECS: Final = 15.0
#: Connections that wait until they are taken. As often asyncio tries again, and logs it, when no file can be opened.
BACKLOG: Final = 128


class Connection(H11Protocol):
    """A connection that is closed when no request comes, and at once when there are too many."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif self._patience is None and before.response_complete and not before.more_body:
            self._wait()  # for the rest of a request that is not the first

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._patience = self.loop.call_later(REQUEST_SECS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def most_connections() -> float:
    """How many connections a server may have: half of the files that this process may have open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if files == resource.RLIM_INFINITY else max(files // 2, 1)
