"""What a webhook's sender is answered, and what is not shown to it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from squall.stores.files import FilesUnavailable
from squall_io.http.admitting import Admittance, RateLimit
from squall_io.http.grouping import GroupCommit
from squall_io.http.stored_requests import StoredRequest, unpacked
from squall_io.http.webhooks import BodiesUnderWay, WebhookApp
from squall_io.kit.codecs import decoder


class Request:
    """A request to an application of which each segment fails."""

    def __init__(self, body: bytes, decode: Any = "bytes") -> None:
        self._body = body
        self.stored = asyncio.Event()
        self.messages: list[Mapping[str, Any]] = []
        rules = Admittance(None, None, "authorization", 1000, RateLimit(None, lambda: 0.0), lambda: "")
        log = logging.getLogger(__name__)
        self.commits = GroupCommit(
            "w", self._put, lambda *stored: None, lambda error: None, "x", log, lambda: 0.0
        )
        self.coming = BodiesUnderWay()
        self.app = WebhookApp(
            rules, decoder(decode), self.commits, self.coming, lambda: "", lambda status: None
        )
        self._loop = asyncio.get_running_loop()

    def _put(self, writer: str, number: int, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self.stored.set)
        raise FilesUnavailable("cannot write /var/lib/private")

    async def _receive(self) -> Mapping[str, Any]:
        return {"type": "http.request", "body": self._body}

    async def _send(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    async def run(self) -> None:
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        await self.app(scope, self._receive, self._send)

    @property
    def answer(self) -> tuple[int, str]:
        start, body = self.messages
        return start["status"], json.loads(body["body"])["error"]


def test_a_request_that_is_not_stored_in_time_is_answered_without_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("squall_io.http.grouping.ANSWER_SECONDS", 0.05)

    async def run() -> tuple[int, str]:
        request = Request(b"x")
        await request.run()
        assert "/var/lib/private" in request.commits.trouble  # `squall status` shows it
        assert request.coming.bytes == 0
        return request.answer

    assert asyncio.run(run()) == (503, "the request is not stored yet")


def test_a_server_that_follows_one_that_has_ended_stores_the_same_segment_first() -> None:
    puts: list[tuple[int, list[bytes]]] = []
    begun, broken = threading.Event(), threading.Event()
    broken.set()

    def put(writer: str, number: int, data: bytes) -> None:
        puts.append((number, [request.body for request in unpacked(data, "")]))
        begun.set()
        if broken.is_set():
            raise FilesUnavailable("its answer is lost")

    log = logging.getLogger(__name__)
    commits = GroupCommit("w", put, lambda *stored: None, lambda error: None, "x", log, lambda: 0.0)

    async def first() -> None:
        task = asyncio.create_task(commits.add(StoredRequest(b"1", {}, "/", "", 0.0)))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()

    asyncio.run(first())
    broken.clear()
    assert asyncio.run(commits.add(StoredRequest(b"2", {}, "/", "", 0.0))) == "w.2.0"
    assert puts[0] == puts[-2] == (1, [b"1"])
    assert puts[-1] == (2, [b"2"])
    assert commits.waiting_bytes == 0


def test_a_body_that_a_function_cannot_read_is_answered_without_its_error() -> None:
    def decode(body: bytes) -> object:
        raise ValueError("s3cret")

    async def run() -> tuple[int, str]:
        request = Request(b"x", decode)
        await request.run()
        return request.answer

    assert asyncio.run(run()) == (400, "the body cannot be read")


def test_a_request_that_is_cut_off_at_the_end_is_answered() -> None:
    async def run() -> tuple[int, str]:
        request = Request(b"x")
        task = asyncio.create_task(request.run())
        await request.stored.wait()
        task.cancel()
        await task
        return request.answer

    assert asyncio.run(run()) == (503, "the server stops")
