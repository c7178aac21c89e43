"""A daemon that is out of ZooKeeper's reach for longer than its session lives comes back as if nothing had been."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ledger_cluster
from tests.faults.proxy import Proxy
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds: the session lives for 4.
CUT = 7.0


@pytest.mark.parametrize("which", ["nimbus", "supervisor"])
def test_a_session_that_expires_disturbs_no_tuple(
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
