"""A small ASGI application that answers with JSON, for daemons that need no framework.

Must not know: the meaning of requests, sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from squall.api.answers import ErrorAnswer
from squall.http.json_text import json_text

_log = logging.getLogger(__name__)

#: An ASGI application: (scope, receive, send).
App = Callable[..., Awaitable[Any]]


class Refusal(Exception):
    """An answer with an error: its status, kind and reason."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def json_app(answer: Callable[[Mapping[str, Any]], object]) -> App:
    """Return an application. For each request it calls `answer`, in a thread, with the request's scope; `answer` returns the
    body of the answer or raises `Refusal`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            status, body = 200, await asyncio.to_thread(answer, scope)
        except Refusal as refusal:
            status, body = refusal.status, ErrorAnswer.of(refusal.kind, refusal.message)
        except Exception:
            _log.exception("a request failed: %.200r", scope.get("path"))
            status, body = 500, ErrorAnswer.of("InternalError", "the log of the daemon says what went wrong")
        data = json_text(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return app
