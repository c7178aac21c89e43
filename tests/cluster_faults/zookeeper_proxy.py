"""A proxy between a daemon and ZooKeeper for fault tests, which understands the protocol.

    with ZooKeeperProxy(zookeeper.servers) as proxy:      # configure a daemon with proxy.servers
        proxy.notices = 0                                 # no notification arrives; 2: each one arrives twice
        proxy.loses = lambda change: change.path == ...   # such a change is made, and its answer never arrives
        proxy.closed = True                               # connections are refused until it is False again
        proxy.end_session()                               # the session of the latest client ends

An answer is lost with its connection, so the client cannot know whether its request was carried out.
Two threads serve a connection. Must not know: daemons, what the values mean.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final

from kazoo.client import KazooClient
from kazoo.protocol.connection import WATCH_XID
from kazoo.protocol.serialization import (
    CheckVersion,
    Connect,
    Create,
    Delete,
    SetData,
    Transaction,
    int_int_struct,
    int_struct,
    multiheader_struct,
    read_acl,
    read_buffer,
    read_string,
)

from tests.faults.proxy import reset

#: Seconds within which something immediate must have happened.
CAP: Final = 60.0
#: How the id of a topology ends: its number and the time of its submission.
_NUMBERS: Final = re.compile(r"-\d+-\d{9,}")


@dataclass(frozen=True)
class Change:
    """A change that a client has requested: the last step of its transaction; the steps before it only prepare it."""

    kind: str
    """"create", "write" or "remove"."""
    path: str


@dataclass
class Connection:
    """A client and the server, with the proxy between them."""

    client: socket.socket
    server: socket.socket
    #: The ids of the requests whose answers are to be lost.
    lost: dict[int, Change] = field(default_factory=dict)

    def end(self) -> None:
        """Close both ends at once; a thread that waits for either wakes up."""
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class ZooKeeperProxy:
    """A proxy for one ZooKeeper, on a port of its own."""

    def __init__(self, server: str) -> None:
        host, _, port = server.partition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: ZooKeeper's address for a client.
        self.servers = f"127.0.0.1:{self._listener.getsockname()[1]}"
        #: How many times each notification is passed on; and how many have arrived.
        self.notices = 1
        self.noticed = 0
        #: Whether the answer to a change is lost; and the changes that were made and not answered.
        self.loses: Callable[[Change], bool] = lambda change: False
        self.lost: list[Change] = []
        #: Whether new connections are refused; existing ones stay.
        self.closed = False
        self._session: tuple[int, bytes] | None = None
        self._connections: list[Connection] = []
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, name="zookeeper-proxy", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> ZooKeeperProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(CAP)
        for each in self._connections:
            each.end()
        for thread in self._threads:
            thread.join(CAP)
            assert not thread.is_alive(), "a thread of the proxy hangs"
        self._listener.close()

    def end_session(self) -> None:
        """Have the server end the session of the latest client: another connection takes it over and closes it."""
        assert self._session is not None, "no client has connected yet"
        host, port = self._target
        other = KazooClient(f"{host}:{port}", client_id=self._session)
        other.start(CAP)
        other.stop()
        other.close()

    # Threads

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.closed:
                reset(client)
                continue
            try:
                server = socket.create_connection(self._target, CAP)
            except OSError:
                reset(client)
                continue
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(client, server)
            self._connections.append(connection)
            for serve in (self._forward, self._backward):
                thread = threading.Thread(
                    target=serve, args=(connection,), name="zookeeper-proxy", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _forward(self, connection: Connection) -> None:
        """Forward requests; the first one opens the session."""
        first = True
        with contextlib.suppress(OSError):
            while (frame := frame_from(connection.client)) is not None:
                change = None if first else change_in(frame)
                if change is not None and self.loses(change):
                    connection.lost[int_struct.unpack_from(frame)[0]] = change
                first = False
                connection.server.sendall(framed(frame))
        connection.end()

    def _backward(self, connection: Connection) -> None:
        """Forward answers and notifications."""
        first = True
        with contextlib.suppress(OSError):
            while (frame := frame_from(connection.server)) is not None:
                number = int_struct.unpack_from(frame)[0]
                times = 1
                if first:
                    self._note_session(frame)
                elif number == WATCH_XID:
                    self.noticed += 1
                    times = self.notices
                elif number in connection.lost:
                    self.lost.append(connection.lost[number])
                    break
                first = False
                connection.client.sendall(framed(frame) * times)
        connection.end()
        connection.server.close()
        reset(connection.client)

    def _note_session(self, frame: bytes) -> None:
        opened, _ = Connect.deserialize(frame, 0)
        if opened.time_out > 0:  # otherwise the connection is over, and there will be another
            self._session = opened.session_id, opened.passwd


def frame_from(sock: socket.socket) -> bytes | None:
    """The next message; None at the end."""
    head = exactly(sock, int_struct.size)
    return None if head is None else exactly(sock, int_struct.unpack(head)[0])


def exactly(sock: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def framed(frame: bytes) -> bytes:
    return bytes(int_struct.pack(len(frame))) + frame


def change_in(frame: bytes) -> Change | None:
    """The change that a request makes; None if it makes none."""
    _, kind = int_int_struct.unpack_from(frame)
    steps = []
    if kind == Transaction.type:
        offset = int_int_struct.size
        while True:
            kind, done, _ = multiheader_struct.unpack_from(frame, offset)
            if done:
                break
            change, offset = step_at(kind, frame, offset + multiheader_struct.size)
            steps.append(change)
    else:
        with contextlib.suppress(KeyError):
            steps.append(step_at(kind, frame, int_int_struct.size)[0])
    changes = [step for step in steps if step is not None]
    if not changes:
        return None
    made = any(step.kind == "create" and step.path == changes[-1].path for step in changes)
    return Change("create" if made else changes[-1].kind, changes[-1].path)


_KINDS: Final = {Create.type: "create", SetData.type: "write", Delete.type: "remove", CheckVersion.type: ""}


def step_at(kind: int, frame: bytes, offset: int) -> tuple[Change | None, int]:
    """One step, and the offset of the next one; KeyError for a request that changes nothing."""
    name = _KINDS[kind]
    path, offset = read_string(frame, offset)
    if kind in (Create.type, SetData.type):
        _, offset = read_buffer(frame, offset)
    if kind == Create.type:
        (entries,) = int_struct.unpack_from(frame, offset)
        offset += int_struct.size
        for _ in range(entries):
            _, offset = read_acl(frame, offset)
    offset += int_struct.size  # the version, or the flags
    return (Change(name, path) if name else None), offset


def once_each() -> Callable[[Change], bool]:
    """For `loses`: the first change of each kind, whichever topology it concerns."""
    seen: set[Change] = set()

    def first(change: Change) -> bool:
        known = replace(change, path=_NUMBERS.sub("-N-T", change.path))
        is_new = known not in seen
        seen.add(known)
        return is_new

    return first
