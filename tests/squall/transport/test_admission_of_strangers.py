"""Strangers who hold more connections than a worker may open files keep it from nothing: not from files, not from its peers."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from squall.transport.carrier import CONTROL, DATA
from squall.transport.carriers import same_host
from squall.transport.carriers.admission import KNOWN_FROM, LEAST, MOST, PortAdmission, places
from squall.transport.carriers.other_end import other_end
from squall.transport.carriers.sockets import Sockets, make_keys
from squall.values import Address, Keys
from tests.worker.flood import flooded

CAP = 30.0
#: Seconds within which a peer gets in during a flood (docs/security.md).
GETS_IN = 10.0

#: A worker's sockets with few files. It says what arrives, and for how many seconds no file could be opened at most. Arguments:
#: the keys, and whether its code keeps the interpreter busy.
_WORKER = """
import os, resource, sys, threading, time
from squall.transport.carriers import same_host
from squall.transport.carriers.other_end import other_end
from squall.transport.carriers.sockets import Sockets
from squall.values import Keys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
public, secret, busy = sys.argv[1:]
def no_unix_sockets(*_): raise OSError("peers come over TCP, as from another host")
same_host.listen = no_unix_sockets
sockets = Sockets(Keys(public, secret))
longest = 0.0
def opens():
    global longest
    last = time.monotonic()
    while True:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
            last = time.monotonic()
        except OSError:
            sockets.admission.make_room()
        longest = max(longest, time.monotonic() - last)
        time.sleep(0.02)
threading.Thread(target=opens, daemon=True).start()
print(*sockets.address, flush=True)
while True:
    if busy == "busy":
        sum(range(50_000))
    else:
        sockets.wait(0.1)
    for channel in (0, 1):
        while (parts := sockets.receive(channel)) is not None:
            print(bytes(parts[0]).decode(), longest, flush=True)
"""


class Victim:
    """The worker, and a peer of it."""

    def __init__(self, process: subprocess.Popen[bytes], keys: Keys) -> None:
        assert process.stdout is not None
        self.said = process.stdout.fileno()
        self.begun = b""
        data, control = self.line(time.monotonic() + CAP).split()
        self.address: Address = data, control
        self.peer = Sockets(keys)
        self.number = 0
        self.longest = 0.0

    def reach(self, within: float) -> None:
        """Send a message on each channel, and wait for both."""
        end = time.monotonic() + within
        wanted = set()
        for channel in (DATA, CONTROL):
            self.number += 1
            wanted.add(self.number)
            assert self.peer.send("victim", channel, [b"%d" % self.number])
        while wanted:
            number, longest = self.line(end).split()
            wanted.discard(int(number))
            self.longest = float(longest)

    def line(self, until: float) -> str:
        """The next line that the worker says."""
        while b"\n" not in self.begun:
            ready, _, _ = select.select([self.said], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the worker was not reached in time"
            self.begun += os.read(self.said, 4096)
        line, _, self.begun = self.begun.partition(b"\n")
        return line.decode()


@contextmanager
def victim(busy: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    keys = make_keys()
    monkeypatch.setattr(same_host, "nearest", lambda keys, endpoint: endpoint)
    command = [sys.executable, "-c", _WORKER, keys.public, keys.secret, busy]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, ExitStack() as stack:
        stack.callback(process.kill)
        found = Victim(process, keys)
        stack.callback(found.peer.close)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("busy", ["idle", "busy"])
def test_links_survive_a_flood_and_a_peer_that_comes_again_gets_in(
    busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with victim(busy, monkeypatch) as worker:
        worker.peer.connect("victim", worker.address)
        worker.reach(CAP)
        with ExitStack() as stack:
            for endpoint in worker.address:
                port = int(endpoint.rpartition(":")[2])
                stack.enter_context(flooded(port, connections=1_000, seconds=20))
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                worker.reach(CAP)  # the same link
                time.sleep(0.05)
            worker.peer.connect("victim", worker.address)
            worker.reach(GETS_IN)
        assert worker.longest < 3.0, "a worker without files ends after 3 s"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    one = socket.create_connection(listener.getsockname())
    return one, listener.accept()[0]


def test_a_peer_is_known_by_what_it_has_confirmed_and_the_oldest_half_of_the_others_is_closed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4 * LEAST, 4 * LEAST))
    with ExitStack() as stack:
        now = [100.0]
        admission = PortAdmission([listener.getsockname()[1]], lambda: now[0])
        stack.callback(admission.close)
        for _ in range(LEAST):
            stack.enter_context(open(os.devnull, "rb"))  # as many files as may be unknown connections
        pairs = [connected(listener) for _ in range(2 * LEAST)]
        for both in pairs:
            for end in both:
                stack.enter_context(end)
        known = pairs[:3]
        for one, other in known:
            other.sendall(bytes(KNOWN_FROM))
            one.recv(KNOWN_FROM, socket.MSG_WAITALL)
        assert admission.count() == 2 * LEAST - len(known)
        assert admission.close_oldest() is not None
        assert admission.count() == LEAST // 2
        assert len(closed(pairs)) == 2 * LEAST - len(known) - LEAST // 2
        assert not closed(known), "links are never closed"
        late = stack.enter_context(socket.socket())
        late.settimeout(0.0)
        assert late.connect_ex(listener.getsockname()) == errno.EINPROGRESS, "the gate is shut"
        now[0] += 1.0
        admission.close_oldest()
        assert select.select([], [late], [], CAP)[1], "the kernel tries again, and gets in"


def closed(pairs: list[tuple[socket.socket, socket.socket]]) -> list[socket.socket]:
    """The connections whose other end has been closed."""
    ready, _, _ = select.select([one for one, _ in pairs], [], [], 0)
    return ready


def test_files_that_are_not_connections_at_the_ports_are_left_alone(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as stack:
        pairs = [connected(other) for _ in range(3)]
        for both in pairs:
            for end in both:
                stack.enter_context(end)
        admission = PortAdmission([listener.getsockname()[1]])
        stack.callback(admission.close)
        assert admission.count() == admission.make_room() == 0
        assert not closed(pairs)


def test_no_descriptor_is_lost_to_a_connection_whose_number_means_another_file_by_now() -> None:
    with open(os.devnull, "rb") as file:
        free = os.dup(file.fileno())
        os.close(free)
        assert other_end(file.fileno(), "tcp://127.0.0.1:1") is None
        again = os.dup(file.fileno())
        os.close(again)
    assert again == free


def test_descriptors_that_user_code_has_closed_are_not_used_any_more(listener: socket.socket) -> None:
    admission = PortAdmission([listener.getsockname()[1]])
    one, other = connected(listener)
    with one, other:
        number = admission._other
        os.close(number)
        with open(os.dup2(other.fileno(), number), "rb", buffering=0, closefd=True):
            assert admission.make_room() == 0
            admission.close()
            os.fstat(number)
        assert not closed([(one, other)])


@pytest.mark.parametrize(
    ("limit", "most"), [(20, LEAST), (256, 64), (1024, 256), (524_288, MOST), (-1, MOST)]
)
def test_a_quarter_of_the_files_may_be_unknown_connections(limit: int, most: int) -> None:
    assert places(limit) == most
