"""Workers on one host are linked by Unix sockets, others by TCP; without a setting, and without leftovers.

The kernel's list of connections shows which of them carries a link.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from squall.transport.carrier import CONTROL, DATA
from squall.transport.carriers import same_host
from squall.transport.carriers.sockets import Sockets, make_keys
from squall.values import Keys
from tests.port_ranges import free_range
from tests.squall.transport.messages import CAP, PACE, receive, send

LOG = logging.getLogger("squall.transport.carriers.sockets")
#: The state of a connection in /proc/net/unix.
CONNECTED = "03"
BOTH = (DATA, CONTROL)

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/net/unix"), reason="the kernel's list of Unix sockets is Linux's"
)

Make = Callable[..., Sockets]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Replaces /tmp, which other tests use meanwhile; a short path, unlike `tmp_path`."""
    made = tempfile.mkdtemp(prefix="s", dir="/tmp")
    monkeypatch.setattr(same_host, "_ROOT", made)
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture
def keys() -> Keys:
    return make_keys()


@pytest.fixture
def make(root: Path, keys: Keys) -> Iterator[Make]:
    made: list[Sockets] = []

    def one(ports: tuple[int, int] = (0, 0), secured: Keys | None = keys) -> Sockets:
        made.append(Sockets(secured, ports=ports))
        return made[-1]

    yield one
    for sockets in made:
        sockets.close()


def connections(path: str) -> int:
    """How many accepted connections of a Unix socket's listener still exist, according to the kernel."""
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return sum(row[5] == CONNECTED and row[7:] == [path] for row in rows)


def paths(sockets: Sockets, keys: Keys | None) -> list[str]:
    """The Unix sockets of a worker."""
    return [same_host.path_of(keys, endpoint) for endpoint in sockets.address]


def talk(one: Sockets, other: Sockets) -> None:
    """A message goes from one to the other on each channel."""
    for channel in BOTH:
        send(one, "other", channel, [b"hello"])
        assert receive(other, channel) == [b"hello"]


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + CAP
    while not done():
        assert time.monotonic() < end, "not in time"
        time.sleep(PACE)


@pytest.mark.parametrize("secured", [True, False], ids=["secured", "plain"])
def test_workers_on_one_host_are_linked_by_unix_sockets(make: Make, keys: Keys, secured: bool) -> None:
    theirs = keys if secured else None
    one, other = make(secured=theirs), make(secured=theirs)
    one.connect("other", other.address)
    talk(one, other)
    assert [connections(path) for path in paths(other, theirs)] == [1, 1]
    assert one.side().send(other.address, [b"sign"])
    assert receive(other, CONTROL) == [b"sign"]
    assert [connections(path) for path in paths(other, theirs)] == [1, 2]
    assert other.refusals == dict.fromkeys(other.refusals, 0), "no peer checked the sockets visibly"


def test_the_folder_is_its_users_alone_and_is_removed_with_the_last_worker(make: Make, keys: Keys) -> None:
    before = os.umask(0)
    try:
        one, other = make(), make()
    finally:
        os.umask(before)
    assert os.stat(same_host.folder()).st_mode & 0o7777 == 0o700
    assert len(os.listdir(same_host.folder())) == 4
    one.close()
    assert sorted(os.listdir(same_host.folder())) == sorted(map(os.path.basename, paths(other, keys)))
    other.close()
    assert not os.path.exists(same_host.folder())


def test_a_peer_that_knows_a_worker_by_another_endpoint_connects_over_tcp(make: Make, keys: Keys) -> None:
    one, other = make(), make()
    data, control = (endpoint.replace("127.0.0.1", "localhost") for endpoint in other.address)
    one.connect("other", (data, control))
    talk(one, other)
    assert [connections(path) for path in paths(other, keys)] == [0, 0]


def test_in_another_network_the_same_endpoint_is_another_worker(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make()
    assert same_host.nearest(None, other.address[DATA]) == other.address[DATA], "of another topology"
    here = same_host._network()
    monkeypatch.setattr(same_host, "_network", lambda: f"not {here}")
    for keys in (None, other._keys):
        assert same_host.nearest(keys, other.address[DATA]) == other.address[DATA]


def open_to_others(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o750)


def a_link(folder: Path) -> None:
    if folder.exists():
        folder.rename(folder.with_name("elsewhere"))
    else:
        folder.with_name("elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


def a_file(folder: Path) -> None:
    if folder.exists():
        folder.rename(folder.with_name("elsewhere"))
    folder.touch(mode=0o600)


SPOILERS = pytest.mark.parametrize("spoil", [open_to_others, a_link, a_file])


@SPOILERS
def test_a_worker_listens_only_in_a_folder_of_its_users_alone(
    make: Make, keys: Keys, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(Path(same_host.folder()))
    with caplog.at_level(logging.INFO, LOG.name):
        one, other = make(), make()
    assert "connect over TCP" in caplog.text and "not private to this user" in caplog.text
    one.connect("other", other.address)
    talk(one, other)
    assert not any(map(os.path.exists, paths(other, keys)))


@SPOILERS
def test_a_peer_connects_only_in_a_folder_of_its_users_alone(
    make: Make, keys: Keys, spoil: Callable[[Path], None]
) -> None:
    one, other = make(), make()
    spoil(Path(same_host.folder()))
    one.connect("other", other.address)
    talk(one, other)
    assert [connections(path) for path in paths(other, keys)] == [0, 0]


def test_another_users_folder_is_not_used(
    make: Make, keys: Keys, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    folder = root / f"squall-{stranger}"
    folder.mkdir(mode=0o700)  # it belongs to our real user
    one, other = make(), make()
    one.connect("other", other.address)
    talk(one, other)
    assert os.listdir(folder) == []


def test_removed_sockets_leave_the_link_unchanged_and_the_next_one_uses_tcp(make: Make, keys: Keys) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    talk(one, other)
    names = paths(other, keys)
    for path in names:
        os.unlink(path)
    talk(one, other)
    assert [connections(path) for path in names] == [1, 1]
    one.connect("other", other.address)
    talk(one, other)
    until(lambda: [connections(path) for path in names] == [0, 0])


def test_a_worker_restarted_on_its_ports_is_reached_again_by_its_connected_peers(
    make: Make, keys: Keys
) -> None:
    # Not from the ports that the system gives to connections: any process could get these while no one listens on them.
    data, control = free_range(2)
    one, first = make(), make(ports=(data, control))
    one.connect("other", first.address)
    talk(one, first)
    first.close()
    second = make(ports=first.ports)
    assert second.address == first.address
    talk(one, second)
    assert [connections(path) for path in paths(second, keys)] == [1, 1]


@pytest.mark.slow
def test_the_remains_of_a_killed_worker_are_not_used_and_are_removed_while_others_live(
    make: Make, root: Path, keys: Keys
) -> None:
    code = (
        "import sys; from squall.transport.carriers import same_host; from squall.transport.carriers.sockets import Sockets;"
        " from squall.values import Keys;"
        f" same_host._ROOT = {str(root)!r}; sockets = Sockets(Keys({keys.public!r}, {keys.secret!r}));"
        " print(*sockets.address, flush=True); sys.stdin.read()"
    )
    living = make()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        endpoints = process.stdout.readline().split()
        left = [same_host.path_of(keys, endpoint) for endpoint in endpoints]
        assert [same_host.nearest(keys, endpoint) for endpoint in endpoints] == [f"ipc://{it}" for it in left]
        same_host.sweep()
        assert all(map(os.path.exists, left)), "it lives"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert all(map(os.path.exists, left))
    assert [same_host.nearest(keys, endpoint) for endpoint in endpoints] == endpoints
    same_host.sweep()
    assert not any(map(os.path.exists, left))
    talker = make()
    talker.connect("other", living.address)
    talk(talker, living)
    assert [connections(path) for path in paths(living, keys)] == [1, 1]
    talker.close()
    living.close()
    assert not os.path.exists(same_host.folder())


def test_a_cleanup_leaves_the_files_of_another_host_in_a_shared_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(same_host.folder(), 0o700)
    with monkeypatch.context() as there, socket.socket(socket.AF_UNIX) as bound:
        there.setattr("platform.node", lambda: "another.example")
        path = same_host.path_of(None, "tcp://another.example:6700")
        bound.bind(path)
    same_host.sweep()
    assert os.path.exists(path), "its worker may live: unknown on this host"
    with monkeypatch.context() as there:
        there.setattr("platform.node", lambda: "another.example")
        same_host.sweep()
    assert not os.path.exists(same_host.folder())


def test_paths_are_short_whatever_the_temporary_directory_the_user_and_the_endpoint(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = same_host.path_of(keys, "tcp://h:1")
    monkeypatch.setenv("TMPDIR", "/tmp/" + "long/" * 40)
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert same_host.path_of(keys, "tcp://h:1") == usual
    monkeypatch.setattr(os, "geteuid", lambda: 2**32 - 2)
    monkeypatch.setattr("platform.node", lambda: "n" * 64)
    assert len(same_host.path_of(keys, f"tcp://{'h' * 250}:65535")) <= 103


def test_a_folder_that_is_removed_before_its_use_is_made_again(root: Path) -> None:
    bound: list[str] = []

    def bind(endpoint: str) -> None:
        bound.append(endpoint)
        if len(bound) == 1:
            os.rmdir(same_host.folder())
            raise FileNotFoundError(endpoint)

    same_host.listen(None, "tcp://h:1", bind)
    assert len(bound) == 2 and os.path.exists(same_host.folder())


@pytest.mark.parametrize("channel", BOTH)
@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40], ids=["http", "bytes"])
def test_a_peer_with_another_protocol_is_disconnected_and_counted(
    make: Make, keys: Keys, channel: int, data: bytes
) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    talk(one, other)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CAP)
        connection.connect(paths(other, keys)[channel])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
            while connection.recv(65_536):
                pass
        until(lambda: sum(other.refusals.values()))
    assert {kind: count for kind, count in other.refusals.items() if count} == {"garbage": 1}
    talk(one, other)
    assert other.receive(channel) is None


def test_a_refused_peer_is_named_by_user_and_process(
    make: Make, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    other = make()
    came = 0

    def named() -> bool:
        nonlocal came
        came += 1
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(paths(other, keys)[DATA])
            connection.settimeout(CAP)
            connection.recv(10)  # it was accepted, and maybe not checked yet: then another one comes
        until(lambda: sum(other.refusals.values()) == came)
        return f"from user {os.geteuid()} of this host:process {os.getpid()}: " in caplog.text

    with caplog.at_level(logging.INFO, LOG.name):
        until(named)


def test_a_peer_with_another_secret_is_a_stranger_at_a_unix_socket_too(make: Make, keys: Keys) -> None:
    one, other = make(), make()
    one.connect("other", other.address)
    talk(one, other)
    theirs = make_keys()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    push = context.socket(zmq.PUSH)
    try:
        push.linger = 0
        push.curve_serverkey = keys.public.encode()
        push.curve_publickey = theirs.public.encode()
        push.curve_secretkey = theirs.secret.encode()
        for path in paths(other, keys):
            push.connect(f"ipc://{path}")
        for _ in range(10):
            push.send_multipart([b"a message", b"from a stranger"], zmq.NOBLOCK)
        until(lambda: other.refusals["stranger"] >= 2)
    finally:
        push.close(0)
        context.term()
    talk(one, other)
    assert all(other.receive(channel) is None for channel in BOTH)
    assert {kind for kind, count in other.refusals.items() if count} == {"stranger"}
