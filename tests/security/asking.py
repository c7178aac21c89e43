"""Requests to an ASGI application without a socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The response."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)["error"]
        return found


def ask(app: Any, method: str, path: str, authorization: str | None = None, body: bytes = b"") -> Answer:
    """One request and its complete response."""
    headers = [(b"host", b"nimbus"), (b"content-length", str(len(body)).encode())]
    if authorization is not None:
        headers.append((b"authorization", authorization.encode("latin-1", "replace")))
    target, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": target, "raw_path": target.encode(), "query_string": query.encode(), "headers": headers,
        "server": ("nimbus", 80), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part.get("body", b"") for part in rest))
