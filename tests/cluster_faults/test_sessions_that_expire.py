"""A daemon is disconnected from ZooKeeper for longer than its session lives: it recovers without disturbing tuples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from squall.cluster import paths
from tests.cluster_faults.cluster_run import GAP, ClusterRun, ledger_cluster
from tests.cluster_faults.zookeeper_proxy import Change, ZooKeeperProxy
from tests.faults.proxy import Proxy
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds: the session lives for 4.
CUT = 7.0


@dataclass(frozen=True)
class Ways:
    """How the daemons reach ZooKeeper, Nimbus first: each through a proxy of its own that cuts connections, and before it
    one that understands the protocol."""

    cuts: list[Proxy]
    proxies: list[ZooKeeperProxy]


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[tuple[ClusterRun, Ways]]:
    """A cluster for all tests of this file, each of which leaves it whole."""
    host, _, port = zookeeper.servers.partition(":")
    with ExitStack() as stack:
        cuts = [stack.enter_context(Proxy((host, int(port)))) for _ in range(3)]
        proxies = [stack.enter_context(ZooKeeperProxy(f"{cut.address[0]}:{cut.address[1]}")) for cut in cuts]
        run = stack.enter_context(
            ledger_cluster(
                tmp_path_factory.mktemp("sessions"),
                [proxy.servers for proxy in proxies],
                direct=zookeeper.servers,
            )
        )
        yield run, Ways(cuts, proxies)


@pytest.mark.parametrize("which", ["nimbus", "supervisor"])
def test_a_session_that_expires_makes_no_tuple_fail(which: str, shared: tuple[ClusterRun, Ways]) -> None:
    run, ways = shared
    before = run.pids()
    cut = ways.cuts[:1] if which == "nimbus" else ways.cuts[1:]
    for proxy in cut:
        proxy.cut()
    run.flows_for(CUT, longest_gap=GAP)
    for proxy in cut:
        proxy.heal()
    run.is_whole()
    run.rest_and_go_on()
    run.flows()
    assert run.pids() == before
    assert run.failed() == 0


def ends_twice(run: ClusterRun, proxy: ZooKeeperProxy, path: str) -> None:
    """The session ends. The next session creates the records below `path` again but gets no answer, and ends too."""

    def last_words(change: Change) -> bool:
        if change.kind != "create" or path not in change.path:
            return False
        proxy.loses = nothing
        proxy.closed = True
        return True

    proxy.lost.clear()
    proxy.loses = last_words
    proxy.end_session()
    run.wait_for(lambda: proxy.lost, f"that {path} is made again")
    proxy.end_session()
    proxy.closed = False


def nothing(change: Change) -> bool:
    return False


def test_a_session_that_expires_during_a_retry_makes_no_tuple_fail(
    shared: tuple[ClusterRun, Ways],
) -> None:
    run, ways = shared
    before = run.pids()
    daemons = (*run.daemons.nimbuses, *run.daemons.supervisors)

    def lost() -> list[int]:
        return [daemon.text().count(": lost\n") for daemon in daemons]

    earlier = lost()
    nimbus, *supervisors = ways.proxies
    ends_twice(run, nimbus, paths.NIMBUSES)
    ends_twice(run, nimbus, paths.LEADER)
    for supervisor in supervisors:
        ends_twice(run, supervisor, paths.PRESENCE)
    run.wait_for(
        lambda: all(now >= then + 2 for now, then in zip(lost(), earlier)), "the end of two sessions"
    )
    run.is_whole()
    run.rest_and_go_on()
    run.flows()
    assert run.pids() == before
    assert run.failed() == 0
