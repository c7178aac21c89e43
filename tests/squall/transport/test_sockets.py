"""The sockets promise: a peer's messages arrive in order on each channel, any thread can end a wait, and nothing remains."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from squall.transport.carrier import CONTROL, DATA, Carrier, Parts
from squall.transport.carriers.sockets import Sockets, WorkerCannotListen, make_keys
from squall.values import Keys
from tests.squall.transport.messages import CAP, only_tcp, receive, send
from tests.zookeeper_servers import free_ports
from topology_api import SquallError

Make = Callable[..., Sockets]


@pytest.fixture(params=["secured", "plain", "secured over TCP"])
def keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Keys | None:
    if request.param.endswith("TCP"):
        only_tcp(monkeypatch)
    return None if request.param == "plain" else make_keys()


@pytest.fixture
def make(keys: Keys | None) -> Iterator[Make]:
    made: list[Sockets] = []

    def one(ports: tuple[int, int] = (0, 0)) -> Sockets:
        made.append(Sockets(keys, ports=ports))
        return made[-1]

    yield one
    for sockets in made:
        sockets.close()


def two_free_ports() -> tuple[int, int]:
    """Ports that stay free while no sockets have them: the kernel gives them to no other process."""
    one, other = free_ports(2)
    return one, other


def test_sockets_are_a_carrier(make: Make) -> None:
    carrier: Carrier = make()
    data, control = carrier.address
    assert data != control
    assert all(endpoint.startswith("tcp://127.0.0.1:") for endpoint in carrier.address)


def test_parts_of_any_size_and_kind_arrive_and_large_ones_are_writable(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    large = bytes(range(256)) * 8192
    parts: Parts = [b"head", bytearray(large), memoryview(large)[1:], b"", memoryview(b"tail")]
    send(one, "other", DATA, parts)
    end = time.monotonic() + CAP
    while (came := other.receive(DATA)) is None:
        assert time.monotonic() < end
        other.wait(0.5)
    assert [bytes(part) for part in came] == [bytes(part) for part in parts]
    assert isinstance(came[1], memoryview)
    assert not came[1].readonly
    came[1][0] = 99
    assert bytes(came[2][:2]) == large[1:3]


def test_large_parts_are_released_once_they_have_left_or_were_dropped(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    gone: list[weakref.ref[Any]] = []
    for number in range(20):
        array = numpy.full(300_000, number, "u1")
        gone.append(weakref.ref(array))
        send(one, "other", DATA, [b"head", array.data])
    del array
    for number in range(20):
        assert receive(other, DATA)[1] == bytes([number]) * 300_000
    one.connect("other", ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"))
    array = numpy.zeros(300_000, "u1")
    gone.append(weakref.ref(array))
    assert one.send("other", DATA, [array.data])
    del array
    one.disconnect("other")
    end = time.monotonic() + CAP
    while any(reference() is not None for reference in gone):
        assert time.monotonic() < end, "ZeroMQ keeps what it has sent"
        one.wait(0.01)


def test_large_parts_that_a_parent_has_sent_do_not_harm_its_forked_child(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    send(one, "other", DATA, [bytes(200_000)])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            one.close()
            mine, theirs = Sockets(None), Sockets(None)
            mine.connect("theirs", theirs.address)
            send(mine, "theirs", DATA, [bytes(300_000)])
            status = 0 if receive(theirs, DATA) == [bytes(300_000)] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert receive(other, DATA) == [bytes(200_000)]


def test_a_peer_that_is_not_there_yet_gets_its_messages_when_it_comes(make: Make) -> None:
    ports = two_free_ports()
    sender = make()
    sender.connect("late", (f"tcp://127.0.0.1:{ports[0]}", f"tcp://127.0.0.1:{ports[1]}"))
    for channel in (DATA, CONTROL):
        assert sender.send("late", channel, [b"early"])
    late = make(ports)
    assert late.ports == ports
    assert receive(late, DATA) == [b"early"]
    assert receive(late, CONTROL) == [b"early"]


def test_a_peer_that_comes_back_on_its_ports_is_reached_without_a_new_connect(make: Make) -> None:
    sender, first = make(), make(two_free_ports())
    sender.connect("peer", first.address)
    send(sender, "peer", CONTROL, [b"to the first"])
    assert receive(first, CONTROL) == [b"to the first"]
    first.close()
    second = make(first.ports)
    assert second.address == first.address
    end = time.monotonic() + CAP
    while second.receive(CONTROL) is None:
        assert time.monotonic() < end
        sender.send("peer", CONTROL, [b"sign"])
        second.wait(0.02)


def test_ports_that_are_in_use_by_now_are_replaced_by_free_ones(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sockets = make((port, 0))
        assert port not in sockets.ports
        assert all(sockets.ports)


def test_a_host_other_than_this_machine_is_an_error_that_names_it(keys: Keys | None) -> None:
    with pytest.raises(WorkerCannotListen, match=r"192\.0\.2\.1"):
        Sockets(keys, bind="192.0.2.1")
    with pytest.raises(SquallError, match="nonsense"):
        Sockets(keys, bind="no such host:nonsense")


def test_an_unreachable_peer_is_logged_and_skipped_until_the_next_attempt(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = make(), make()
    one.connect("peer", (other.address[0], "nonsense"))
    assert "worker peer at" in caplog.text
    assert "nonsense" in caplog.text
    assert not one.send("peer", DATA, [b"a"])
    assert not one.side().send(("nonsense", "nonsense"), [b"a"])
    one.connect("peer", other.address)
    send(one, "peer", DATA, [b"b"])
    assert receive(other, DATA) == [b"b"]


def test_without_free_descriptors_links_go_on_and_new_ones_come_up_later(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, late = make(), make(), make()
    one.connect("other", other.address)
    send(one, "other", DATA, [b"before"])
    assert receive(other, DATA) == [b"before"]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is not below the number of open files: poll() refuses to wait for more descriptors than the limit allows.
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    used: list[int] = []
    try:
        while True:
            try:
                used.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        one.connect("late", late.address)
        assert not one.side().send(late.address, [b"sign"])
        assert other.send("one", DATA, [b"nobody"]) is False
        send(one, "other", DATA, [b"meanwhile"])
        assert receive(other, DATA) == [b"meanwhile"]
    finally:
        for descriptor in used:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "Too many open files" in caplog.text
    assert not one.send("late", DATA, [b"a"])
    one.connect("late", late.address)
    send(one, "late", DATA, [b"b"])
    assert receive(late, DATA) == [b"b"]


def test_peers_reach_a_worker_by_the_host_they_know() -> None:
    sockets = Sockets(None, bind="127.0.0.1", host="worker.example")
    try:
        assert [endpoint.rpartition(":")[0] for endpoint in sockets.address] == ["tcp://worker.example"] * 2
    finally:
        sockets.close()


def test_a_wait_ends_by_itself(make: Make) -> None:
    sockets = make()
    sockets.wait(0)
    sockets.wait(0.001)
    assert sockets.receive(DATA) is None


def test_a_wait_ends_when_a_message_comes(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    send(one, "other", CONTROL, [b"a"])
    while (parts := other.receive(CONTROL)) is None:
        other.wait(None)  # for ever, unless it ends
    assert [bytes(part) for part in parts] == [b"a"]


def test_another_thread_ends_a_wait(make: Make) -> None:
    sockets = make()
    timer = threading.Timer(0.05, sockets.wake)
    timer.start()
    sockets.wait(None)
    timer.join()


def test_a_wake_before_the_wait_is_not_lost_and_many_count_as_one(make: Make) -> None:
    sockets = make()
    for _ in range(100_000):
        sockets.wake()
    sockets.wait(None)
    before = time.monotonic()
    sockets.wait(0.05)
    assert time.monotonic() - before >= 0.04


def test_a_signal_handler_ends_a_wait(make: Make) -> None:
    sockets = make()
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        came.append(number)
        sockets.wake()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        sockets.wait(None)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came == [signal.SIGUSR1]


def test_a_forked_child_neither_wakes_nor_closes_its_parent(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    child = os.fork()
    if child == 0:
        try:
            one.wake()
            one.close()
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    before = time.monotonic()
    one.wait(0.05)
    assert time.monotonic() - before >= 0.04
    send(one, "other", DATA, [b"alive"])
    assert receive(other, DATA) == [b"alive"]


def test_another_thread_sends_control_messages_by_its_own_sockets_while_the_loop_is_away(
    make: Make,
) -> None:
    one, other, third = make(), make(), make()
    side = one.side()
    sent: list[bool] = []

    def run() -> None:
        for number in range(20):
            sent.append(side.send(other.address, [b"sign", b"%d" % number]))
            sent.append(side.send(third.address, [b"sign", b"%d" % number]))

    thread = threading.Thread(target=run)
    thread.start()
    for peer in (other, third):
        for number in range(20):
            assert receive(peer, CONTROL) == [b"sign", b"%d" % number]
    thread.join()
    assert all(sent)
    side.close()
    assert not side.send(other.address, [b"late"])


def test_a_worker_closes_the_sockets_that_another_thread_left_open(make: Make) -> None:
    one, other = make(), make()
    side = one.side()
    assert side.send(other.address, [b"a"])
    one.close()
    assert not side.send(other.address, [b"b"])


def test_the_last_messages_still_leave_when_the_sockets_are_closed(make: Make) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    send(one, "other", CONTROL, [b"first"])
    assert receive(other, CONTROL) == [b"first"]
    assert one.send("other", CONTROL, [b"goodbye"])
    one.close()
    assert receive(other, CONTROL) == [b"goodbye"]


def test_after_the_end_nothing_is_left_and_every_call_is_harmless(make: Make) -> None:
    threads = threading.active_count()
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    one, other = make(), make()
    one.connect("other", other.address)
    send(one, "other", DATA, [b"a"])
    assert receive(other, DATA) == [b"a"]
    ports = [*one.ports, *other.ports]
    one.close()
    other.close()
    one.close()
    one.wake()
    assert one.receive(DATA) is None
    assert not one.send("other", DATA, [b"b"])
    one.disconnect("other")
    assert threading.active_count() == threads
    if before:
        assert set(os.listdir("/proc/self/fd")) == before
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_lost_peer_delays_the_end_only_for_the_given_time(make: Make) -> None:
    one = make()
    one.connect("gone", ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"))
    assert one.send("gone", CONTROL, [b"never arrives"])
    one.close()  # the test's timeout checks the promise: it ends
    assert one.receive(CONTROL) is None


def test_keys_are_new_each_time_and_the_secret_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    one, other = make_keys(), make_keys()
    assert (len(one.public), len(one.secret)) == (40, 40)
    assert len({one.public, one.secret, other.public, other.secret}) == 4
    with caplog.at_level(logging.DEBUG):
        Sockets(one).close()
    assert one.secret not in repr(one) + caplog.text
