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

from squall.api.errors import ErrorAnswer

_log = logging.getLogger(__name__)

#: An ASGI application: (scope, receive, send).
App = Callable[..., Awaitable[Any]]


class Refusal(Exception):
    """An answer with an error: its status, kind and reason."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


#: Returns the body of a request; the argument is the most bytes that are read. Raises `Refusal` for a longer body.
ReadBody = Callable[[int], bytes]


def json_app(answer: Callable[[Mapping[str, Any], ReadBody], object]) -> App:
    """Return an application. For each request it calls `answer`, in a thread, with the request's scope and a function that
    reads its body; `answer` returns the body of the answer or raises `Refusal`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()

        def read(most: int) -> bytes:
            return asyncio.run_coroutine_threadsafe(_body(receive, most), loop).result()

        try:
            status, body = 200, await asyncio.to_thread(answer, scope, read)
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


async def _body(receive: Any, most: int) -> bytes:
    """Return the body of a request."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "BadRequest", "the connection ended before the request was complete")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise Refusal(413, "TooLarge", f"the request has more than {most} bytes")
        if not message.get("more_body"):
            return b"".join(pieces)


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
