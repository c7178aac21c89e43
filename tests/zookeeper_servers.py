"""ZooKeeper servers for tests: real processes on free ports of the loopback, which can be killed, frozen and wiped.

`zookeeper` is a server for the whole run of pytest; `zookeeper_root` a path in it for this test alone. A test that harms its
server starts one of its own with `ZooKeeperServer` or `Ensemble`, and ends it. Without Java or ZooKeeper such tests are
skipped, and fail with CI=true.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest
from msgspec import structs

from squall.cluster.zookeeper import ZooKeeperStore
from squall.cluster.zookeeper.certificates import make_certificates
from squall.cluster.zookeeper.server import NoServer, ServerPlan, ask, find_jars, find_java
from squall.security.zookeeper_tls import ClientFiles
from tests.killable import Killable

#: How long a step of a second or two may take on a machine under load.
PATIENCE_SECS = 60.0
#: Short enough that sessions end within a test: ZooKeeper grants 2 to 20 ticks.
TICK_MILLIS = 250

T = TypeVar("T")
_roots = itertools.count(1)


def java_and_jars() -> tuple[str, list[Path]]:
    """The command that starts a server, or the test is skipped (fails in CI)."""
    try:
        return find_java(), find_jars(None)
    except NoServer as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def free_ports(number: int) -> list[int]:
    """Ports of the loopback that are free now, all different. They are below those that the kernel gives out for port 0: such a
    port could be taken before it is used, and a client that connects to it without a listener may reach itself.
    """
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < number:
            trial = socket.socket()
            try:
                trial.bind(("127.0.0.1", random.randrange(15_000, 32_000)))
                sockets.append(trial)
            except OSError:
                trial.close()
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def eventually(what: Callable[[], T], secs: float = PATIENCE_SECS, every: float = 0.02) -> T:
    """The first true value of `what()`; fails if there is none for this long. `every`: seconds between two looks; more than the
    default if a look costs a server milliseconds of a processor.
    """
    end = time.monotonic() + secs
    while not (value := what()):
        assert time.monotonic() < end, f"not within {secs:g} seconds"
        time.sleep(every)
    return value


def states_from_now(store: ZooKeeperStore) -> list[str]:
    """A list that grows with the states of the connection: "connected", "suspended" and "lost"."""
    states: list[str] = []
    assert store._client is not None
    store._client.add_listener(lambda now: states.append(now.lower()))
    return states


class ZooKeeperServer(Killable):
    """One server. `servers` is its HOST:PORT, the same after every start."""

    def __init__(
        self, folder: Path, *, plan: ServerPlan | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._java, self._jars = java_and_jars()
        self.plan = plan or ServerPlan(
            folder, "127.0.0.1", free_ports(1)[0], tick_millis=TICK_MILLIS, settings=dict(settings or {})
        )
        self.servers = f"127.0.0.1:{self.plan.port}"
        super().__init__(self.plan.folder / "server.log")

    def start(self, wait: bool = True) -> ZooKeeperServer:
        """Start it and wait until it serves."""
        self.plan.write()
        self.launch(self.plan.command(self._java, self._jars, memory="128m"))
        if wait:
            eventually(lambda: self.mode() is not None)
        return self

    def wipe(self) -> None:
        """Kill it, and have it come back empty."""
        self.kill()
        shutil.rmtree(self.plan.folder / "data")
        self.start()

    def tell(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; "" while it does not answer."""
        return ask("127.0.0.1", self.plan.port, word)

    def mode(self) -> str | None:
        """ "standalone", "leader" or "follower"; None while it does not serve."""
        return self.plan.mode()

    def figures(self) -> dict[str, str]:
        """Its statistics (`mntr`)."""
        pairs = (line.partition("\t") for line in self.tell("mntr").splitlines())
        return {name: value for name, _, value in pairs}

    def __enter__(self) -> ZooKeeperServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Ensemble:
    """Several servers that keep one tree, numbered from 0. `servers` names all of them."""

    def __init__(self, folder: Path, number: int = 3) -> None:
        ports = free_ports(3 * number)
        plan = ServerPlan(
            folder,
            "127.0.0.1",
            0,
            ensemble=[
                f"127.0.0.1:{quorum}:{election}"
                for quorum, election in zip(ports[number::2], ports[number + 1 :: 2])
            ],
            tick_millis=TICK_MILLIS,
        )
        self.members = [
            ZooKeeperServer(
                folder, plan=structs.replace(plan, folder=folder / f"z{n + 1}", port=ports[n], number=n + 1)
            )
            for n in range(number)
        ]
        self.servers = ",".join(member.servers for member in self.members)

    def start(self, number: int | None = None) -> Ensemble:
        """Start one server, or all of them, and wait until it serves."""
        chosen = self.members if number is None else [self.members[number]]
        for member in chosen:
            member.start(wait=False)
        for member in chosen:
            eventually(lambda member=member: member.mode() is not None)  # type: ignore[misc]
        return self

    def leader(self) -> int:
        """The number of the leading server."""

        def found() -> list[int]:
            return [n for n, each in enumerate(self.members) if each.running and each.mode() == "leader"]

        return eventually(found)[0]

    def kill(self, number: int) -> None:
        """End one server at once."""
        self.members[number].kill()

    def stop(self) -> None:
        """End all servers."""
        for member in self.members:
            member.kill()

    def __enter__(self) -> Ensemble:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def tls_plan(folder: Path) -> ServerPlan:
    """A server that speaks TLS only, with the certificates that `squall zookeeper --tls` makes; `client_files` are for it."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the openssl command is needed for tests of TLS")
        pytest.skip("no openssl command")
    folder.mkdir(parents=True, exist_ok=True)
    make_certificates(folder / "tls", ())
    return ServerPlan(folder, "127.0.0.1", free_ports(1)[0], tick_millis=TICK_MILLIS, tls=folder / "tls")


def client_files(server: ZooKeeperServer) -> ClientFiles:
    """The files of a daemon for this server."""
    assert server.plan.tls is not None
    return ClientFiles.within(server.plan.tls)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server for all tests that do it no harm."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def tls_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """The same with TLS, to clients with a certificate only; `client_files` has the files for it."""
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    with ZooKeeperServer(folder, plan=tls_plan(folder)) as server:
        yield server


@pytest.fixture
def zookeeper_root() -> str:
    """A root for this test alone."""
    return f"/test-{next(_roots)}"


@pytest.fixture
def zookeeper_store(zookeeper: ZooKeeperServer, zookeeper_root: str) -> Iterator[ZooKeeperStore]:
    """An empty store in that server, connected."""
    store = ZooKeeperStore(zookeeper.servers, root=zookeeper_root, session_secs=4)
    store.start(PATIENCE_SECS)
    yield store
    store.close()
