"""A daemon is disconnected from ZooKeeper for longer than its session lives: it recovers without disturbing tuples."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from squall.cluster import paths
from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.cluster_faults.proxied_cluster import proxied_cluster
from tests.cluster_faults.zookeeper_proxy import Change, ZooKeeperProxy
from tests.faults.proxy import Proxy
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds: the session lives for 4.
CUT = 7.0


@pytest.mark.parametrize("which", ["nimbus", "supervisor"])
def test_a_session_that_expires_makes_no_tuple_fail(
    which: str, tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    host, _, port = zookeeper.servers.partition(":")
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy((host, int(port)))) for _ in range(3)]
        ways = [f"{proxy.address[0]}:{proxy.address[1]}" for proxy in proxies]
        run = stack.enter_context(ledger_cluster(tmp_path, ways, direct=zookeeper.servers))
        before = {started.pid for started in run.daemons.processes().values()}
        cut = proxies[:1] if which == "nimbus" else proxies[1:]
        for proxy in cut:
            proxy.cut()
        run.flows_for(CUT, longest_gap=2.0)
        for proxy in cut:
            proxy.heal()
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader", 20.0)
        run.wait_for(lambda: len(run.daemons.supervisors_there()) == 2, "both supervisors", 20.0)
        run.rest_and_go_on()
        run.flows()
        assert {started.pid for started in run.daemons.processes().values()} == before
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
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with proxied_cluster(tmp_path, zookeeper) as (run, ways):
        before = {started.pid for started in run.daemons.processes().values()}
        (nimbus,) = ways.nimbuses
        ends_twice(run, nimbus, paths.NIMBUSES)
        ends_twice(run, nimbus, paths.LEADER)
        for supervisor in ways.supervisors:
            ends_twice(run, supervisor, paths.PRESENCE)
        daemons = (*run.daemons.nimbuses, *run.daemons.supervisors)
        run.wait_for(
            lambda: min(daemon.text().count(": lost\n") for daemon in daemons) >= 2, "the end of two sessions"
        )
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader", 20.0)
        run.wait_for(lambda: len(run.daemons.supervisors_there()) == 2, "both supervisors", 20.0)
        run.rest_and_go_on()
        run.flows()
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0
