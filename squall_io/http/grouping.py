"""Stores requests, those that come together as one segment: a request is answered when its segment is on disk.

While one segment is stored, further requests wait and become the next one. A segment of which it is not known whether it was
stored is stored again under its number, with the same content, until it is: so numbers have no gaps.
Must not know: HTTP, who reads segments.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from squall.stores.files import FilesUnavailable
from squall_io.http.segments import Segment
from squall_io.http.stored_requests import StoredRequest, id_of, packed
from squall_io.kit.waiting import Waiting
from topology_api import SquallError
from topology_api.wording import message_of

#: Seconds after which a request is answered that could not be stored so far; it may still be.
ANSWER_SECONDS: Final = 20.0
#: The most bytes of requests in one segment, unless one alone has more.
SEGMENT_BYTES: Final = 4 << 20
#: The most bytes of requests that wait to be stored.
WAITING_BYTES: Final = 64 << 20
#: What a request costs beside its body.
_OVERHEAD: Final = 1024


class NotStored(SquallError):
    """A request that could not be stored in time."""


class PutSegment(Protocol):
    """Stores a segment, as `LogFiles.put` does."""

    def __call__(self, writer: str, number: int, data: bytes) -> None:
        """Return when the segment is on disk. Raises FilesError."""


class GroupCommit:
    """The segments of one writer. All methods are called in the server's asyncio loop, except where a text says otherwise. A
    server that follows one that has ended goes on with what that one has not stored.

    put: stores a segment; called in a thread. stored: gets each stored segment, with its bytes and its requests.
    refused: gets errors that waiting does not help.
    """

    def __init__(
        self,
        writer: str,
        put: PutSegment,
        stored: Callable[[int, int, list[StoredRequest]], None],
        refused: Callable[[Exception], None],
        what: str,
        log: logging.Logger,
        now: Callable[[], float],
    ) -> None:
        self.writer = writer
        self._put, self._stored, self._refused = put, stored, refused
        #: Why nothing can be stored now, "" if it can. Any thread may read it.
        self.trouble = ""
        #: The bytes that wait to be stored. Any thread may read it.
        self.waiting_bytes = 0
        self._waits = Waiting(what, log, self._show, now)
        self._queue: deque[tuple[StoredRequest, asyncio.Future[str]]] = deque()
        self._number = 1
        #: What is being stored, under `_number`: until that is known, no other content may get the number.
        self._batch: list[tuple[StoredRequest, asyncio.Future[str]]] = []
        self._running: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "squall-http-log")

    async def add(self, request: StoredRequest) -> str:
        """Store a request; return its id when it is on disk. Raises NotStored if that takes too long."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        self.waiting_bytes += len(request.body) + _OVERHEAD
        if self._running is None or self._running.get_loop() is not asyncio.get_running_loop():
            self._running = asyncio.create_task(self._store_all())
        try:
            return await asyncio.wait_for(asyncio.shield(future), ANSWER_SECONDS)
        except asyncio.TimeoutError:
            # Why is no matter of the sender's: it may show paths of this host.
            raise NotStored("the request is not stored yet") from None

    async def _store_all(self) -> None:
        try:
            while self._batch or self._queue:
                self._batch = self._batch or self._next_batch()
                await self._store_one(self._batch)
                self._batch = []
        finally:
            self._running = None

    def _next_batch(self) -> list[tuple[StoredRequest, asyncio.Future[str]]]:
        batch: list[tuple[StoredRequest, asyncio.Future[str]]] = []
        size = 0
        while self._queue and (not batch or size < SEGMENT_BYTES):
            request, future = self._queue.popleft()
            size += len(request.body) + _OVERHEAD
            batch.append((request, future))
        return batch

    async def _store_one(self, batch: list[tuple[StoredRequest, asyncio.Future[str]]]) -> None:
        requests = [request for request, _ in batch]
        data, number = packed(requests), self._number
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, self._put, self.writer, number, data)
                break
            except FilesUnavailable as error:
                await asyncio.sleep(self._waits.failed(str(error)))
            except Exception as error:  # whatever it is: the next number may come only after this one
                self._refused(error)
                await asyncio.sleep(self._waits.failed(message_of(error)))
        self._waits.succeeded()
        self._number += 1
        self._stored(number, len(data), requests)
        for row, (request, future) in enumerate(batch):
            self.waiting_bytes -= len(request.body) + _OVERHEAD
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(id_of(Segment(self.writer, number), row))

    def _show(self, text: str) -> None:
        self.trouble = text

    def close(self) -> None:
        """End; called when the loop has ended."""
        self._thread.shutdown(wait=False)
