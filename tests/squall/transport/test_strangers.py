"""Strangers at a worker's sockets are refused, counted and named, and links go on working meanwhile."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from squall.transport.carrier import CONTROL, DATA
from squall.transport.carriers.sockets import MOST_PART_BYTES, Sockets, make_keys

CAP = 30.0
LOG = logging.getLogger("squall.transport.carriers.sockets")

#: The beginning of ZMTP 3.1, mechanism CURVE, as a client.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
LONG_COMMAND = b"\x06"  # flags of a command with a length of 64 bits
LONG_MESSAGE = b"\x02"


class Pair:
    """Two workers of one topology with a working link; strangers connect to the second."""

    def __init__(self) -> None:
        self.keys = make_keys()
        self.one = Sockets(self.keys)
        self.other = Sockets(self.keys)
        self.one.connect("other", self.other.address)
        self.number = 0
        self.goes_on()
        self.before = dict(self.other.refusals)

    def goes_on(self) -> None:
        """Check that the link works on both channels, and that nothing else has come."""
        for channel in (DATA, CONTROL):
            self.number += 1
            end = time.monotonic() + CAP
            assert self.one.send("other", channel, [b"%d" % self.number])
            while (parts := self.other.receive(channel)) is None:
                assert time.monotonic() < end, "the link does not work any more"
                self.other.wait(0.2)
            assert [bytes(part) for part in parts] == [b"%d" % self.number]
        assert self.other.receive(DATA) is None
        assert self.other.receive(CONTROL) is None

    def refused(self) -> dict[str, int]:
        """The refusals since the link came up."""
        return {
            kind: count - self.before[kind]
            for kind, count in self.other.refusals.items()
            if count != self.before[kind]
        }

    def until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + CAP
        while not done():
            assert time.monotonic() < end, f"not in time; refused: {self.refused()}"
            self.other.wait(0.02)
            assert self.other.receive(DATA) is None
            assert self.other.receive(CONTROL) is None

    @property
    def at(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", port) for port in self.other.ports]


@pytest.fixture
def pair(caplog: pytest.LogCaptureFixture) -> Iterator[Pair]:
    with caplog.at_level(logging.INFO, LOG.name):
        pair = Pair()
        yield pair
        pair.one.close()
        pair.other.close()


@contextlib.contextmanager
def raw(pair: Pair, data: bytes, channel: int = DATA) -> Iterator[socket.socket]:
    """A TCP connection that has sent some bytes."""
    with socket.create_connection(pair.at[channel], timeout=CAP) as connection:
        connection.sendall(data)
        yield connection


def hung_up(connection: socket.socket) -> bool:
    """Read to the end, which comes only when the other side closes."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


def resident() -> int:
    """The memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def pushing(pair: Pair, prepare: Callable[[zmq.Socket[bytes]], None]) -> Iterator[zmq.Socket[bytes]]:
    """A ZeroMQ peer that sends to both channels, and learns why it is refused."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    push = context.socket(zmq.PUSH)
    try:
        push.linger = 0
        push.reconnect_ivl = 100
        prepare(push)
        for endpoint in pair.other.address:
            push.connect(endpoint)
        for _ in range(10):
            push.send_multipart([b"a message", b"from a stranger"], zmq.NOBLOCK)
        yield push
    finally:
        push.close(0)
        context.term()


def curve(server: str, public: str, secret: str) -> Callable[[zmq.Socket[bytes]], None]:
    def prepare(push: zmq.Socket[bytes]) -> None:
        push.curve_serverkey = server.encode()
        push.curve_publickey = public.encode()
        push.curve_secretkey = secret.encode()

    return prepare


def test_a_peer_that_knows_the_public_key_but_has_another_secret_is_a_stranger(pair: Pair) -> None:
    theirs = make_keys()
    with pushing(pair, curve(pair.keys.public, theirs.public, theirs.secret)):
        pair.until(lambda: pair.refused().get("stranger", 0) >= 2)
    pair.goes_on()
    assert set(pair.refused()) == {"stranger"}


def test_a_peer_that_claims_the_topologys_public_key_without_its_secret_is_refused(pair: Pair) -> None:
    theirs = make_keys()
    with pushing(pair, curve(pair.keys.public, pair.keys.public, theirs.secret)):
        pair.until(lambda: sum(pair.refused().values()) >= 2)
    pair.goes_on()
    assert set(pair.refused()) <= {"stranger", "garbage", "unfinished"}


def test_a_worker_of_another_topology_is_refused_and_its_own_sockets_take_no_harm(pair: Pair) -> None:
    foreign = Sockets(make_keys())
    try:
        foreign.connect("other", pair.other.address)
        for channel in (DATA, CONTROL):
            foreign.send("other", channel, [b"a message"])
        assert foreign.side().send(pair.other.address, [b"a sign"])
        pair.until(lambda: sum(pair.refused().values()) >= 3)
    finally:
        foreign.close()
    pair.goes_on()


def test_a_peer_that_does_not_encrypt_is_refused(pair: Pair) -> None:
    plain = GREETING.replace(b"CURVE", b"NULL\0")
    for channel in (DATA, CONTROL):
        with raw(pair, plain + b"\x04\x06\x05READY", channel) as connection:
            assert hung_up(connection)
    pair.until(lambda: pair.refused() == {"garbage": 2})
    pair.goes_on()


def test_a_zeromq_peer_without_keys_gets_nothing_through(pair: Pair) -> None:
    with pushing(pair, lambda push: None):
        pair.until(lambda: sum(pair.refused().values()) >= 2)
    pair.goes_on()
    assert set(pair.refused()) <= {"garbage", "unfinished"}


def test_a_user_name_and_password_give_no_access(pair: Pair) -> None:
    def prepare(push: zmq.Socket[bytes]) -> None:
        push.plain_username = b"admin"
        push.plain_password = b"admin"

    with pushing(pair, prepare):
        pair.until(lambda: sum(pair.refused().values()) >= 2)
    pair.goes_on()
    assert set(pair.refused()) <= {"garbage", "unfinished"}


@pytest.mark.parametrize("channel", [DATA, CONTROL])
@pytest.mark.parametrize(
    "data",
    [
        b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # the beginning of TLS
        b"SSH-2.0-OpenSSH_9.6\r\n",
        bytes(range(256)) * 40,
        b"\xff" + bytes(range(1, 100)),
        b"\x01\x00" * 100,
        GREETING + b"\x00\x05hello",
        GREETING + b"\x04\x03\x05WHAT?" + bytes(100),
        GREETING.replace(b"\x03\x01CURVE", b"\x03\x01GSSAPI") + bytes(64),
    ],
    ids=[
        "http",
        "tls",
        "ssh",
        "bytes",
        "almost a greeting",
        "zeros",
        "message first",
        "no such command",
        "gssapi",
    ],
)
def test_a_peer_with_another_protocol_is_disconnected(pair: Pair, data: bytes, channel: int) -> None:
    with raw(pair, data, channel) as connection:
        assert hung_up(connection)
    pair.until(pair.refused)
    pair.goes_on()
    assert sum(pair.refused().values()) == 1


def test_random_bytes_are_disconnected_and_never_reach_the_worker(pair: Pair) -> None:
    for seed in range(50):
        size = 64 + 37 * seed
        noise = bytes((seed * 31 + 7 * place * place + place // 3) % 256 for place in range(size))
        with raw(pair, noise) as connection:
            with contextlib.suppress(OSError):  # it may have been disconnected already
                connection.shutdown(socket.SHUT_WR)
            assert hung_up(connection)
    pair.until(lambda: sum(pair.refused().values()) == 50)
    pair.goes_on()


@pytest.mark.parametrize("flags", [LONG_COMMAND, LONG_MESSAGE])
@pytest.mark.parametrize("length", [1 << 32, MOST_PART_BYTES + 1, (1 << 63) - 1, (1 << 64) - 1])
def test_a_length_beyond_the_limit_is_disconnected_before_anything_is_read(
    pair: Pair, flags: bytes, length: int
) -> None:
    before = resident()
    with raw(pair, GREETING + flags + struct.pack(">Q", length) + bytes(1000)) as connection:
        assert hung_up(connection)
    assert resident() - before < 16 << 20
    pair.until(pair.refused)
    pair.goes_on()


def test_an_announced_gigabyte_uses_no_memory_until_it_comes_and_its_sender_is_disconnected_in_time(
    pair: Pair,
) -> None:
    before = resident()
    with contextlib.ExitStack() as stack:
        data = GREETING + LONG_COMMAND + struct.pack(">Q", MOST_PART_BYTES) + bytes(1000)
        connections = [stack.enter_context(raw(pair, data)) for _ in range(8)]
        pair.goes_on()
        assert resident() - before < 32 << 20
        assert all(hung_up(connection) for connection in connections)
    pair.until(lambda: pair.refused() == {"unfinished": 8})
    pair.goes_on()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for 500 connections with both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize(
    "data",
    [b"", GREETING[:5], GREETING, GREETING + LONG_COMMAND],
    ids=["idle", "begun", "greeted", "half open"],
)
@pytest.mark.slow
def test_five_hundred_silent_connections_block_no_worker_and_are_disconnected(
    pair: Pair, data: bytes
) -> None:
    before = resident()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw(pair, data, number % 2)) for number in range(500)]
        pair.goes_on()
        pair.one.connect("other", pair.other.address)  # a worker that comes now is accepted
        pair.goes_on()
        assert resident() - before < 64 << 20
        assert all(hung_up(connection) for connection in connections)
    pair.until(lambda: sum(pair.refused().values()) >= 490)
    pair.goes_on()
    assert set(pair.refused()) == {"unfinished"}


def test_a_peer_that_disconnects_in_the_middle_of_the_handshake_is_counted(pair: Pair) -> None:
    for cut in (1, 10, 11, 12, 40, 64):
        with raw(pair, GREETING[:cut]):
            pass
    pair.until(lambda: sum(pair.refused().values()) == 6)
    pair.goes_on()


def test_one_peer_is_logged_once_a_minute_however_often_it_comes(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):
        with raw(pair, GREETING[:20]):
            pass
    pair.until(lambda: sum(pair.refused().values()) == 30)
    lines = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    known = [line for line in lines if "127.0.0.1" in line]
    assert (
        1 <= len(lines) <= 2
    )  # one for the address, one for those that were gone before theirs could be read
    assert len(known) <= 1
    assert all("did not finish the handshake" in line for line in lines)


def test_workers_of_the_topology_that_come_and_go_are_not_counted(pair: Pair) -> None:
    for _ in range(10):
        worker = Sockets(pair.keys)
        worker.connect("other", pair.other.address)
        for channel in (DATA, CONTROL):
            assert worker.send("other", channel, [b"hello"])
            end = time.monotonic() + CAP
            while pair.other.receive(channel) is None:
                assert time.monotonic() < end
                pair.other.wait(0.2)
        worker.close()
    pair.goes_on()
    assert pair.refused() == {}
