"""JSON that servers of Squall send, and a small ASGI application for daemons that need no framework.

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

from squall.api.answers import ErrorAnswer, ErrorBody

_log = logging.getLogger(__name__)

App = Callable[..., Awaitable[Any]]
"""An ASGI application: (scope, receive, send)."""


class Refusal(Exception):
    """An answer with an error: its status, kind and reason."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def json_app(answer: Callable[[Mapping[str, Any]], object]) -> App:
    """Return an application. `answer` gets the scope of a request, in a thread; it returns the answer or raises `Refusal`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            status, body = 200, await asyncio.to_thread(answer, scope)
        except Refusal as refusal:
            status, body = refusal.status, error_answer(refusal.kind, refusal.message)
        except Exception:
            _log.exception("a request failed: %.200r", scope.get("path"))
            status, body = 500, error_answer("InternalError", "the log of the daemon says what went wrong")
        data = json_text(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return app


def json_text(answer: object) -> str:
    """Return an answer, a struct or plain values, as JSON. NaN and infinities become texts."""
    value = to_builtins(answer)
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a user's gauge may be anything
        return json.dumps(_finite(value), separators=(",", ":"))


def error_answer(kind: str, message: str, problems: tuple[str, ...] = ()) -> ErrorAnswer:
    """Return the body of an error."""
    return ErrorAnswer(ErrorBody(kind, message, list(problems)))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
