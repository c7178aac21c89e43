"""The server's answers: an ASGI application that stores the POSTs that it takes, and answers 202 when they are on disk.

Must not know: sockets, files, tuples.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from squall_io.http.admitting import TRY_AGAIN, Admittance, RequestRefusal, joined
from squall_io.http.grouping import GroupCommit, NotStored
from squall_io.http.stored_requests import StoredRequest
from squall_io.kit.codecs import Decode, UnreadableMessage

#: Seconds in which a body must have come; less than the connection waits for a silent client, so that it is answered.
BODY_SECONDS: Final = 25.0
#: The path of the health check, which shows no token.
HEALTH: Final = "/health"

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class _Gone(Exception):
    """The client has ended the connection before its request was complete."""


class BodiesUnderWay:
    """The bodies that are being received. Any thread may read it."""

    def __init__(self) -> None:
        #: What they have, or may have at most.
        self.bytes = 0


class WebhookApp:
    """The application of one task.

    read: what decodes a body, to refuse what cannot be read. coming: counts what is received, for `full`.
    full: why no request is taken now, "" if they are.
    count: gets the status of each answer.
    """

    def __init__(
        self,
        admittance: Admittance,
        read: Decode,
        commits: GroupCommit,
        coming: BodiesUnderWay,
        full: Callable[[], str],
        count: Callable[[int], None],
    ) -> None:
        self._admittance, self._read, self._commits = admittance, read, commits
        self._coming, self._full, self._count = coming, full, count

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        if path == HEALTH and method in ("GET", "HEAD"):
            why = self._full()
            await _answer(send, 503 if why else 200, {"status": why or "ok"})
            return
        try:
            refusal, id = await self._taken(scope, receive)
        except _Gone:
            return
        except asyncio.CancelledError:  # the server stops, and has waited
            refusal, id = RequestRefusal(503, "the server stops", TRY_AGAIN), ""
        if refusal is None:
            self._count(202)
            await _answer(send, 202, {"id": id})
            return
        self._count(refusal.status)
        headers = [] if refusal.header is None else [refusal.header]
        if refusal.after is not None:
            headers.append(("retry-after", str(refusal.after)))
        await _answer(send, refusal.status, {"error": refusal.why}, headers)

    async def _taken(self, scope: Mapping[str, Any], receive: Receive) -> tuple[RequestRefusal | None, str]:
        """Store a request; return why it is refused, or its id."""
        headers = joined(scope["headers"])
        refusal = self._admittance.refusal(scope["method"], scope["path"], headers)
        if refusal is not None:
            return refusal, ""
        size = self._admittance.most_of(headers)
        self._coming.bytes += size
        try:
            body = await asyncio.wait_for(self._body(receive), BODY_SECONDS)
        except asyncio.TimeoutError:
            return RequestRefusal(408, f"the body did not come within {BODY_SECONDS:g} s"), ""
        finally:
            self._coming.bytes -= size
        if (refusal := self._admittance.too_large(len(body))) is not None:
            return refusal, ""
        try:
            self._read(body)
        except UnreadableMessage:  # the text of a function's error is no matter of the sender's
            return RequestRefusal(400, "the body cannot be read"), ""
        query = scope["query_string"].decode("latin-1")
        kept = self._admittance.kept(headers)
        request = StoredRequest(body, kept, scope["path"], query, time.time())
        try:
            return None, await self._commits.add(request)
        except NotStored as error:
            return RequestRefusal(503, str(error), TRY_AGAIN), ""

    async def _body(self, receive: Receive) -> bytes:
        """Return the body; of a too large one, only so much that this can be seen."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if not message.get("more_body") or self._admittance.too_large(size) is not None:
                return b"".join(parts)


async def _answer(
    send: Send, status: int, content: Mapping[str, object], headers: list[tuple[str, str]] | None = None
) -> None:
    body = json.dumps(content).encode()
    every = [("content-type", "application/json"), ("content-length", str(len(body))), *(headers or ())]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
