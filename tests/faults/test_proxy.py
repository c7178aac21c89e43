"""The proxy of the fault tests works as it claims to: otherwise the tests that use it would prove nothing."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import BACKWARD, FORWARD, ROOM, Proxy

CAP = 20.0
#: How long to check that nothing arrives.
QUIET = 0.15


class Pair:
    """Two ends of a connection through a proxy."""

    def __init__(self, listener: socket.socket, proxy: Proxy) -> None:
        self.proxy = proxy
        self.near = socket.create_connection(proxy.address)
        self.far, _ = listener.accept()
        for end in (self.near, self.far):
            end.settimeout(CAP)

    def ends(self) -> list[tuple[socket.socket, socket.socket, str]]:
        """(writer, reader, way)."""
        return [(self.near, self.far, FORWARD), (self.far, self.near, BACKWARD)]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(CAP)
        yield server


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    with Proxy(listener.getsockname()) as made:
        yield made


@pytest.fixture
def pair(listener: socket.socket, proxy: Proxy) -> Iterator[Pair]:
    made = Pair(listener, proxy)
    yield made
    made.near.close()
    made.far.close()


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"the end after {len(data)} of {count} bytes"
        data += piece
    return data


def nothing_comes(sock: socket.socket) -> bool:
    sock.settimeout(QUIET)
    try:
        return not sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(CAP)


def test_it_closes_also_when_its_busy_thread_saw_the_end_before_the_call(
    listener: socket.socket,
) -> None:
    proxy = Proxy(listener.getsockname())
    proxy._closing = True
    with socket.create_connection(proxy.address):  # keeps it busy
        proxy._thread.join(CAP)
    proxy.close()
    assert not proxy._thread.is_alive()


def test_bytes_go_both_ways_unchanged(pair: Pair) -> None:
    for writer, reader, _ in pair.ends():
        sent = os.urandom(300_000)
        thread = threading.Thread(target=writer.sendall, args=(sent,))
        thread.start()
        assert exactly(reader, len(sent)) == sent
        thread.join()


@pytest.mark.parametrize("which", [0, 1])
def test_a_cut_way_lets_nothing_through_and_loses_nothing(pair: Pair, which: int) -> None:
    writer, reader, way = pair.ends()[which]
    pair.proxy.cut(way)
    writer.sendall(b"held")
    assert nothing_comes(reader)
    reader.sendall(b"free")
    assert exactly(writer, 4) == b"free", "the other way goes on"
    pair.proxy.heal(way)
    assert exactly(reader, 4) == b"held"


def test_both_ways_are_cut_when_none_is_named_and_new_connections_too(
    pair: Pair, listener: socket.socket
) -> None:
    pair.proxy.cut()
    late = Pair(listener, pair.proxy)
    for writer, reader, _ in pair.ends() + late.ends():
        writer.sendall(b"x")
        assert nothing_comes(reader)
    pair.proxy.heal()
    for _, reader, _ in pair.ends() + late.ends():
        assert exactly(reader, 1) == b"x"
    late.near.close()
    late.far.close()


def test_a_cut_way_takes_a_bounded_number_of_bytes(pair: Pair) -> None:
    for end in (pair.near, pair.far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    pair.proxy.cut(FORWARD)
    pair.near.settimeout(QUIET)
    taken = 0
    with pytest.raises(TimeoutError):
        while taken < 100 * ROOM:
            taken += pair.near.send(b"x" * 65536)
    assert taken < 100 * ROOM


def test_a_delay_holds_bytes_back_in_their_order(pair: Pair) -> None:
    pair.proxy.delay(0.2, FORWARD)
    began = time.monotonic()
    pair.near.sendall(b"one")
    pair.near.sendall(b"two")
    assert exactly(pair.far, 6) == b"onetwo"
    assert time.monotonic() - began >= 0.2
    pair.far.sendall(b"back")
    assert exactly(pair.near, 4) == b"back"


def test_healing_releases_what_a_delay_holds(pair: Pair) -> None:
    pair.proxy.delay(1000.0, FORWARD)
    pair.near.sendall(b"one")
    assert nothing_comes(pair.far)
    pair.proxy.heal(FORWARD)
    assert exactly(pair.far, 3) == b"one"


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_one_bit_of_the_byte_at_a_distance_is_flipped_once(pair: Pair, distance: int) -> None:
    pair.proxy.flip(distance, FORWARD)
    sent = bytes(range(20))
    for part in (sent[:5], sent[5:]):
        pair.near.sendall(part)
        time.sleep(0.01)  # probably in two pieces; either is right
    got = exactly(pair.far, 20)
    assert [at for at in range(20) if got[at] != sent[at]] == [distance]
    assert bin(got[distance] ^ sent[distance]).count("1") == 1
    pair.near.sendall(sent)
    assert exactly(pair.far, 20) == sent


def test_bytes_are_lost(pair: Pair) -> None:
    pair.proxy.vanish(7, FORWARD)
    pair.near.sendall(b"0123456789")
    assert exactly(pair.far, 3) == b"789"


def test_broken_connections_are_reset_and_new_ones_are_accepted(pair: Pair, listener: socket.socket) -> None:
    pair.proxy.break_off()
    for end in (pair.near, pair.far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    again = Pair(listener, pair.proxy)
    again.near.sendall(b"x")
    assert exactly(again.far, 1) == b"x"
    again.near.close()
    again.far.close()


def test_the_end_of_a_connection_is_passed_on_after_the_bytes_before_it(pair: Pair) -> None:
    pair.near.sendall(b"last words")
    pair.near.shutdown(socket.SHUT_WR)
    assert exactly(pair.far, 10) == b"last words"
    assert pair.far.recv(1) == b""
    pair.far.sendall(b"answer")
    pair.far.close()
    assert exactly(pair.near, 6) == b"answer"
    assert pair.near.recv(1) == b""


def test_a_missing_target_resets_the_client(listener: socket.socket) -> None:
    with Proxy(listener.getsockname()) as proxy:
        listener.close()
        with socket.create_connection(proxy.address) as near:
            near.settimeout(CAP)
            with pytest.raises(ConnectionResetError):
                near.recv(1)
        assert proxy.connections == 0


def test_a_closed_proxy_leaves_no_thread_and_no_port(listener: socket.socket) -> None:
    proxy = Proxy(listener.getsockname())
    pair = Pair(listener, proxy)
    proxy.close()
    with pytest.raises(ConnectionResetError):
        pair.near.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(proxy.address)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proxy")]
    pair.near.close()
    pair.far.close()
