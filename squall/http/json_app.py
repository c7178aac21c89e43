"""The JSON that Squall's servers send, and a small ASGI application that answers in JSON, for daemons that need no framework.

Must not know: the meaning of requests, sockets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import to_builtins

from squall.api.answers import ErrorAnswer

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


def json_text(answer: object) -> str:
    """Return an answer (a struct or plain values) as JSON. NaN and infinities become texts."""
    value = to_builtins(answer)
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a user's gauge may be anything
        return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
