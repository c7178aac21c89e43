"""Sends requests by httpx, and tries again what may be taken later.

httpx is imported where it is used. Must not know: tuples, how bodies and keys are made.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from squall_io.http.answers import Answer, meaning
from squall_io.kit.waiting import DoublingWait, Waiting
from topology_api import FailTuple, SquallError
from topology_api.wording import class_name, message_of

if TYPE_CHECKING:
    from topology_api import Context

METHODS: Final = ("POST", "PUT", "PATCH")
#: The most bytes of an answer that are read.
_ANSWER_BYTES: Final = 65_536


class ReceiverAway(SquallError):
    """The receiver did not take a request for as long as the sink waits. It may have taken effect."""


class ReceiverRefuses(SquallError):
    """The receiver refuses the sink's credentials, whatever the row is."""


class PostSettings(NamedTuple):
    """How requests are sent. headers: names in small letters. timeout, patience: seconds. ca: a file, None: the usual ones."""

    method: str
    headers: Mapping[str, str]
    timeout: float
    patience: float
    most: int
    ca: str | None


class Poster:
    """The connections of one task. `send` is called in one asyncio loop."""

    def __init__(self, settings: PostSettings, url: str, context: Context) -> None:
        self._httpx = _loaded()
        self._settings = settings
        self._verify = _authorities(settings.ca)
        parts = urlsplit(url)
        self._waiting = Waiting(
            f"{parts.scheme}://{parts.netloc}", context.log, lambda text: None, context.now
        )
        self._now = context.now
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._closing: asyncio.Task[None] | None = None
        #: Before this time nothing is sent: the receiver has asked for it.
        self._not_before = 0.0
        self._again = context.counter("requests sent again")
        context.gauge("seconds waiting", lambda: self._waiting.seconds)

    async def send(self, url: str, body: bytes, key: str) -> None:
        """Send a request until it is taken. Raises FailTuple if it never will be, ReceiverRefuses and
        ReceiverAway."""
        headers = {**self._settings.headers, "idempotency-key": key}
        until = self._now() + self._settings.patience
        backoff = DoublingWait()
        while True:
            if (pause := self._not_before - self._now()) > 0:
                await self._sleep(pause, until, self._waiting.reason)
            answer = await self._answered(url, body, headers, until + self._settings.timeout - self._now())
            if answer.verdict == "done":
                self._waiting.succeeded()
                return
            if answer.verdict == "never":
                raise FailTuple(f"{self._settings.method} {url}: {answer.why}")
            if answer.verdict == "login":
                raise ReceiverRefuses(f"{self._waiting.what} refuses this sink: {answer.why}")
            self._waiting.failed(answer.why)
            wait = backoff.next()
            if answer.after is not None:
                self._not_before = self._now() + answer.after
                wait = answer.after
            await self._sleep(wait, until, answer.why)
            self._again.add()

    async def _sleep(self, seconds: float, until: float, why: str) -> None:
        """Wait before the next try. Raises ReceiverAway if that would be too late."""
        if self._now() + seconds > until:
            raise ReceiverAway(
                f"{self._waiting.what} has not taken the request within {self._settings.patience:g} s: {why}"
            )
        await asyncio.sleep(seconds)

    async def _answered(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        """Return the answer, if it is whole within these seconds: the client limits each wait for a part, not their sum."""
        try:
            return await asyncio.wait_for(self._answer(url, body, headers), seconds)
        except asyncio.TimeoutError:
            return Answer("later", "its answer does not come to its end")

    async def _answer(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        httpx = self._httpx
        try:
            request = self._opened().stream(self._settings.method, url, content=body, headers=headers)
            async with request as response:
                said = await _beginning(response)
                return meaning(response.status_code, response.headers, said, time.time())
        except httpx.LocalProtocolError:  # its text may have the value of a header, and so a secret
            return Answer("never", "it cannot be sent: a header or the URL breaks the rules of HTTP")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            return Answer("never", f"it cannot be sent: {message_of(error)}")
        except httpx.TransportError as error:
            return Answer("later", f"{class_name(error)}: {message_of(error) or 'no answer'}")
        except httpx.DecodingError as error:
            return Answer("later", f"its answer cannot be read: {message_of(error)}")

    def _opened(self) -> Any:
        """Return the client; it is made in the loop in which it is used."""
        if self._client is None:
            httpx, most = self._httpx, self._settings.most
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            self._client = httpx.AsyncClient(
                verify=self._verify,
                timeout=self._settings.timeout,
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
                follow_redirects=False,
            )
            self._closing = asyncio.create_task(self._closed_at_the_end(self._client))
        return self._client

    async def _closed_at_the_end(self, client: Any) -> None:
        """Close the connections when the task ends, or the worker's loop, which cancels what runs in it."""
        assert self._ended is not None
        try:
            await self._ended.wait()
        finally:
            await client.aclose()

    def close(self) -> None:
        """Close the connections. Called in another thread than the loop's."""
        loop, ended, self._client = self._loop, self._ended, None
        if loop is not None and ended is not None:
            with suppress(RuntimeError):  # the loop has ended, and has closed them
                loop.call_soon_threadsafe(ended.set)


async def _beginning(response: Any) -> str:
    """Read an answer to its end, if it is not too long; return its beginning as text."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > _ANSWER_BYTES:
            break
    return b"".join(parts)[:_ANSWER_BYTES].decode(errors="replace")


def _authorities(ca: str | None) -> Any:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise SquallError(f"ca is {ca}, which cannot be read on this host: {error}") from None


def _loaded() -> Any:
    try:
        return importlib.import_module("httpx")
    except ImportError:
        raise SquallError("HttpSink needs httpx: install Squall with its extra `http`") from None
