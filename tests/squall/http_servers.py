"""Servers with real faults, for tests of the client: they answer, redirect, close, stay silent, send nonsense."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from squall.http.client import Client
from tests.zookeeper_servers import free_ports

Page = Callable[[BaseHTTPRequestHandler], None]


class Served:
    """A server whose pages are functions, and the requests that it got."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.connections: set[Any] = set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Small answers are sent at once.
            wbufsize = -1
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # clients here disconnect at any moment
                    super().handle()

            def handle_one(self) -> None:
                served.connections.add(self.client_address)
                if self.path == "/health" and self.command == "HEAD":  # whether it is awake
                    return page(None)(self)
                served.asked.append((self.command, self.path, self.headers.get("Authorization")))
                length = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(length)
                served.pages[self.path.partition("?")[0]](self)

            do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Frozen:
    """How a frozen server appears to others: the kernel accepts connections and data, and no answer comes."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def heard(self) -> list[bytes]:
        """The first line that came over each connection."""
        lines = []
        self.listener.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection = self.stack.enter_context(self.listener.accept()[0])
                connection.settimeout(10.0)
                lines.append(connection.recv(100).partition(b"\r")[0])
        return lines


def page(value: Any, status: int = 200, **headers: str) -> Page:
    """A page with JSON (or bytes)."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    return answer


def drop(handler: BaseHTTPRequestHandler) -> None:
    """The connection ends without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def unused_url() -> str:
    """The URL of a port on which no process listens."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


_MADE: list[Client] = []


def connect(urls: list[str], *arguments: Any, **options: Any) -> Client:
    """A client that is closed with the test."""
    _MADE.append(Client(urls, *arguments, **options))
    return _MADE[-1]


@pytest.fixture(autouse=True)
def clients_closed() -> Iterator[None]:
    yield
    while _MADE:
        _MADE.pop().close()


@pytest.fixture
def start() -> Iterator[Callable[[], Served]]:
    running: list[Served] = []

    def begin() -> Served:
        running.append(Served())
        return running[-1]

    yield begin
    for served in running:
        served.stop()


@pytest.fixture
def served(start: Callable[[], Served]) -> Served:
    return start()


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    with contextlib.ExitStack() as stack:
        yield Frozen(stack)
