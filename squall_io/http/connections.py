"""The connections of a task's server: a limited number, each closed when it makes its server wait too long.

A connection may be silent or slow for as long as one of a daemon that has shown credentials: `squall.http.connections` has the
limits for the head of a request, its body, and the reading of answers.
Must not know: requests, what is answered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from squall.http.connections import Connection

#: The most connections at a time; further ones are closed.
CONNECTIONS: Final = 1000


class WebhookConnection(Connection):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._become_known()
        self._look()
        if len(self.connections) > CONNECTIONS:
            transport.abort()
