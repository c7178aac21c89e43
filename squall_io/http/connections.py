"""The connections of a task's server: a limited number, each closed when it makes its server wait too long.

A connection may be silent or slow for as long as one of a daemon that has shown credentials: `squall.http.connections` has the
limits for the head of a request, its body, and the reading of answers.
Must not know: requests, what is answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from squall.http.connections import Connection

#: The most connections at a time; further ones are closed.
CONNECTIONS: Final = 1000
#: Where uvicorn logs what happens on a connection: errors of this code, but not each request that breaks the rules of HTTP.
_log: Final = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)


class WebhookConnection(Connection):
    """One connection."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.logger = _log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._become_known()
        self._look()
        if len(self.connections) > CONNECTIONS:
            transport.abort()
