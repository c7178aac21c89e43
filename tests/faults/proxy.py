"""A TCP proxy that makes network faults: it cuts either direction, delays, loses or changes bytes, breaks connections.

A `Proxy` listens on a port of its own for one target. A connection through it has two ways, `FORWARD` (from the client) and
`BACKWARD`. A cut way keeps its connections and lets nothing through, like a network that loses packets: data waits in the proxy
(bounded), then in the kernel, and flows when the cut heals. One thread serves a proxy. Must not know: who communicates through
it, and what is said.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
WAYS: Final = (FORWARD, BACKWARD)
#: Limit of bytes that wait in the proxy for one way of one connection; above it, the proxy stops reading.
ROOM: Final = 1 << 18
PIECE: Final = 1 << 16
RESET: Final = struct.pack("ii", 1, 0)
NEVER: Final = float("inf")


@dataclass
class Weather:
    """The present faults of a way."""

    cut: bool = False
    delay: float = 0.0
    #: Distances in bytes from now at which one bit is flipped; and how many bytes from now are lost.
    flips: list[int] = field(default_factory=list)
    vanish: int = 0
    #: Bytes passed on so far, over all connections.
    passed: int = 0


@dataclass
class Way:
    """One way of one connection: the waiting pieces, each with the time at which it may go on."""

    source: socket.socket
    target: socket.socket
    name: str
    pieces: deque[tuple[float, bytes]] = field(default_factory=deque)
    waiting: int = 0
    ended: bool = False
    closed: bool = False


class Proxy:
    """One target behind a port of its own."""

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1") -> None:
        self.target = target
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._weather = {name: Weather() for name in WAYS}
        self._ways: list[Way] = []
        self._commands: deque[Callable[[], None]] = deque()
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._closing = False
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, name=f"proxy {self.address[1]}", daemon=True)
        self._thread.start()

    # The faults: each takes effect before its method returns.

    def cut(self, *names: str) -> None:
        """Let nothing through any more, on these ways (none named: both)."""
        self._call(lambda: self._set(names, cut=True))

    def heal(self, *names: str) -> None:
        """Let everything through again, at once."""
        self._call(lambda: self._set(names, cut=False, delay=0.0))

    def delay(self, seconds: float, *names: str) -> None:
        """Hold each piece back for this many seconds."""
        self._call(lambda: self._set(names, delay=seconds))

    def flip(self, distance: int, *names: str) -> None:
        """Flip a bit of the byte at this distance."""

        def mark() -> None:
            for weather in self._those(names):
                weather.flips.append(distance)

        self._call(mark)

    def vanish(self, count: int, *names: str) -> None:
        """Lose the next bytes."""
        self._call(lambda: self._set(names, vanish=count))

    def break_off(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._call(self._break_all)

    def passed(self, name: str = FORWARD) -> int:
        """How many bytes were passed on."""
        return self._weather[name].passed

    def close(self) -> None:
        """Reset everything, and end."""
        self._closing = True
        self._wake()
        self._thread.join(10.0)
        assert not self._thread.is_alive(), "the proxy's thread hangs"
        for one in (self._here, self._there):  # not by the thread: it may end before it is woken
            one.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Internal: all of it runs in the proxy's thread.

    def _those(self, names: tuple[str, ...]) -> list[Weather]:
        return [self._weather[name] for name in names or WAYS]

    def _set(self, names: tuple[str, ...], **changes: float) -> None:
        for weather in self._those(names):
            for name, value in changes.items():
                setattr(weather, name, value)

    def _call(self, command: Callable[[], None]) -> None:
        done = threading.Event()
        self._commands += [command, done.set]
        self._wake()
        assert done.wait(10.0), "the proxy's thread hangs"

    def _wake(self) -> None:
        self._there.send(b"!")

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._round()
        finally:
            self._break_all()
            self._listener.close()

    def _round(self) -> None:
        now = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._here, selectors.EVENT_READ)
            for sock, events in self._wanted(now).items():
                selector.register(sock, events)
            due = min((way.pieces[0][0] for way in self._ways if way.pieces), default=NEVER)
            ready = selector.select(None if due in (NEVER,) or due <= now else due - now)
            seen = {key.fileobj for key, _ in ready}
        if self._here in seen:
            self._here.recv(PIECE)
            while self._commands:
                self._commands.popleft()()
        if self._listener in seen:
            self._accept()
        for way in list(self._ways):
            if not way.closed and not self._weather[way.name].cut:
                self._move(way, way.source in seen)
        self._ways = [way for way in self._ways if not way.closed]

    def _wanted(self, now: float) -> dict[socket.socket, int]:
        """Which sockets to wait for: those to read and those to write."""
        wanted: dict[socket.socket, int] = {}
        for way in self._ways:
            if self._weather[way.name].cut:
                continue
            if not way.ended and way.waiting < ROOM:
                wanted[way.source] = wanted.get(way.source, 0) | selectors.EVENT_READ
            if way.pieces and way.pieces[0][0] <= now:
                wanted[way.target] = wanted.get(way.target, 0) | selectors.EVENT_WRITE
        return wanted

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(self.target, timeout=5.0)
        except OSError:
            reset(near)
            return
        self.connections += 1
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ways += [Way(near, far, FORWARD), Way(far, near, BACKWARD)]

    def _move(self, way: Way, readable: bool) -> None:
        weather = self._weather[way.name]
        try:
            if readable and not way.ended and way.waiting < ROOM:
                data = way.source.recv(PIECE)
                way.ended = not data
                if data := changed(data, weather):
                    way.pieces.append((time.monotonic() + weather.delay, data))
                    way.waiting += len(data)
            while way.pieces and (way.pieces[0][0] <= time.monotonic() or not weather.delay):
                due, data = way.pieces[0]
                sent = way.target.send(data)
                weather.passed += sent
                way.waiting -= sent
                if sent < len(data):
                    way.pieces[0] = (due, data[sent:])
                else:
                    way.pieces.popleft()
            if way.ended and not way.pieces:
                way.closed = True
                self._shut(way)
        except BlockingIOError:
            pass
        except OSError:
            self._break(way)

    def _shut(self, way: Way) -> None:
        """One way has ended: pass the end on; the second end closes the connection."""
        other = next((one for one in self._ways if one.source is way.target and not one.closed), None)
        if other is None:
            way.source.close()
            way.target.close()
        else:
            way.target.shutdown(socket.SHUT_WR)

    def _break(self, way: Way) -> None:
        for one in self._ways:
            if one.source in (way.source, way.target):
                one.closed = True
        reset(way.source)
        reset(way.target)

    def _break_all(self) -> None:
        for way in self._ways:
            if not way.closed:
                self._break(way)
        self._ways = []


def changed(data: bytes, weather: Weather) -> bytes:
    """Pass on the rest of a piece."""
    for distance in weather.flips:
        if distance < len(data):
            data = data[:distance] + bytes([data[distance] ^ 0x10]) + data[distance + 1 :]
    weather.flips = [distance - len(data) for distance in weather.flips if distance >= len(data)]
    lost = min(weather.vanish, len(data))
    weather.vanish -= lost
    return data[lost:]


def reset(sock: socket.socket) -> None:
    """Close so that the peer gets an error at once."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()
