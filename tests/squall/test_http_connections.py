"""A slow client that makes progress is waited for; time is an input here. Clients without progress: tests/nimbus_http."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from squall.http import connections
from squall.http.connections import PATIENCE, Awaited, Connection, Listener

BODY, TAKING = PATIENCE[Awaited.BODY], PATIENCE[Awaited.TAKING]
HEAD = b"PUT /file HTTP/1.1\r\nHost: nimbus\r\nContent-Length: 1000000\r\n\r\n"


class Timer:
    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when, self.call, self.cancelled = when, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """The timers of a connection, by a clock that the test sets; the test's loop runs the tasks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.create_task = asyncio.get_running_loop().create_task

    def call_later(self, secs: float, call: Callable[..., object], *arguments: object) -> Timer:
        self.timers.append(Timer(self.now + secs, lambda: call(*arguments)))
        return self.timers[-1]

    def advance(self, secs: float) -> None:
        self.now += secs
        due = [timer for timer in self.timers if timer.when <= self.now]
        self.timers = [timer for timer in self.timers if timer.when > self.now]
        for timer in due:
            if not timer.cancelled:
                timer.call()


class Transport:
    """The transport of a connection; it keeps data that the test declares unread."""

    def __init__(self) -> None:
        self.aborted = self.paused = self.closing = False
        self.unsent = 0

    def get_extra_info(self, name: str) -> Any:
        return None

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing or self.aborted

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True


class Application:
    """Reads a piece of the body whenever the test lets it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while True:
            await self.go_on.wait()
            if (await receive())["type"] == "http.disconnect":
                return


class Connected:
    """A connection to an application, with its clock."""

    def __init__(self) -> None:
        self.application = Application()
        self.loop, self.transport = Loop(), Transport()
        config = uvicorn.Config(self.application, log_config=None)
        connection: Any = Connection(config, ServerState(), {}, self.loop)
        self.connection = connection
        connection.connection_made(self.transport)

    async def send(self, data: bytes, taken: bool = True) -> None:
        """Bytes from the client, which the application reads or leaves."""
        if not taken:
            self.application.go_on.clear()
        self.connection.data_received(data)
        if taken:
            await self.take()

    async def take(self) -> None:
        """Let the application read the available bytes and all later ones."""
        self.application.go_on.set()
        for _ in range(5):
            await asyncio.sleep(0)  # it runs

    async def end(self) -> None:
        self.application.go_on.set()
        self.connection.connection_lost(None)
        await asyncio.gather(*self.connection.tasks)


def with_connection(test: Callable[[Connected], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        connected = Connected()
        try:
            await test(connected)
        finally:
            await connected.end()

    asyncio.run(run())


def test_a_body_that_comes_slowly_and_steadily_is_waited_for_however_long_it_takes() -> None:
    async def test(client: Connected) -> None:
        await client.send(HEAD)
        assert BODY.least is not None
        for _ in range(20):
            await client.send(bytes(BODY.least))
            client.loop.advance(BODY.secs)
            assert not client.transport.aborted
        await client.send(bytes(BODY.least - 1))
        client.loop.advance(BODY.secs)
        assert client.transport.aborted, "a byte too few"

    with_connection(test)


def test_early_fast_bytes_do_not_excuse_later_silence() -> None:
    async def test(client: Connected) -> None:
        await client.send(HEAD)
        for _ in range(9):
            await client.send(bytes(100_000))
        client.loop.advance(BODY.secs)
        assert not client.transport.aborted
        client.loop.advance(BODY.secs)
        assert client.transport.aborted

    with_connection(test)


def test_a_client_is_not_blamed_for_an_application_that_is_behind() -> None:
    async def test(client: Connected) -> None:
        await client.send(HEAD + bytes(100_000), taken=False)
        assert client.transport.paused, "it cannot send"
        client.loop.advance(BODY.secs)
        assert not client.transport.aborted
        await client.take()
        assert not client.transport.paused
        client.loop.advance(BODY.secs)
        client.loop.advance(BODY.secs)
        assert client.transport.aborted, "all the time it could"

    with_connection(test)


@pytest.mark.parametrize("closing", [False, True])
def test_an_answer_that_is_read_slowly_is_waited_for(closing: bool) -> None:
    async def test(client: Connected) -> None:
        assert TAKING.least is not None
        client.transport.unsent = 10 * TAKING.least
        if closing:
            client.connection.shutdown()
        else:
            client.connection.pause_writing()
        for _ in range(9):
            client.transport.unsent -= TAKING.least
            client.loop.advance(TAKING.secs)
            assert not client.transport.aborted
        client.transport.unsent -= TAKING.least - 1
        client.loop.advance(TAKING.secs)
        assert client.transport.aborted

    with_connection(test)


def test_a_client_is_not_timed_out_while_its_answer_is_made() -> None:
    async def test(client: Connected) -> None:
        await client.send(b"GET / HTTP/1.1\r\nHost: nimbus\r\n\r\n", taken=False)
        client.loop.advance(3600.0)
        assert not client.transport.aborted

    with_connection(test)


def test_a_listener_accepts_another_connection_when_one_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 1)
    with Listener(fileno=socket.create_server(("127.0.0.1", 0)).detach()) as listener:
        with (
            socket.create_connection(listener.getsockname()),
            socket.create_connection(listener.getsockname()),
        ):
            taken, _ = listener.accept()
            with taken, pytest.raises(ConnectionAbortedError):
                listener.accept()
        with socket.create_connection(listener.getsockname()) as client:
            again, address = listener.accept()
            again.close()
            assert address == client.getsockname()
