"""The leading Nimbus is killed, frozen or cut off: the other one leads, and late writes of the old one have no effect."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.faults.proxy import Proxy
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


@contextmanager
def two_nimbuses(tmp_path: Path, server: ZooKeeperServer) -> Iterator[tuple[ClusterRun, list[Proxy]]]:
    """A run with two Nimbuses, each of which reaches ZooKeeper through a proxy of its own."""
    host, _, port = server.servers.partition(":")
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy((host, int(port)))) for _ in range(2)]
        ways = [f"{proxy.address[0]}:{proxy.address[1]}" for proxy in proxies]
        run = stack.enter_context(
            ledger_cluster(tmp_path, [*ways, *[server.servers] * 2], direct=server.servers, nimbuses=2)
        )
        yield run, proxies


def another_leads(run: ClusterRun, old: int) -> None:
    run.wait_for(lambda: run.daemons.leader() == 1 - old, "the lead of the other Nimbus", 25.0)


@pytest.mark.parametrize("how", ["killed", "frozen", "cut off"])
def test_the_rival_leads_and_no_tuple_fails(how: str, tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with two_nimbuses(tmp_path, zookeeper) as (run, proxies):
        before = {started.pid for started in run.daemons.processes().values()}
        old = run.daemons.leader()
        assert old is not None
        daemon = run.daemons.nimbuses[old]
        if how == "killed":
            daemon.kill()
        elif how == "frozen":
            daemon.freeze()
        else:
            proxies[old].cut()
        another_leads(run, old)
        run.rest_and_go_on()
        run.flows()
        if how == "killed":
            daemon.start()
        elif how == "frozen":
            daemon.thaw()
        else:
            proxies[old].heal()
        run.flows()
        run.wait_for(lambda: run.daemons.leader() == 1 - old, "that the lead stays where it is", 20.0)
        run.rest_and_go_on()
        assert {started.pid for started in run.daemons.processes().values()} == before
        assert run.failed() == 0


def test_a_leader_that_is_cut_off_stops_before_its_rival_begins(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with two_nimbuses(tmp_path, zookeeper) as (run, proxies):
        old = run.daemons.leader()
        assert old is not None
        proxies[old].cut()
        another_leads(run, old)
        stopped = moment_of(run, old, "leads no more")
        began = moment_of(run, 1 - old, "leads (epoch")
        assert stopped < began, (stopped, began)
        proxies[old].heal()
        run.flows()


def moment_of(run: ClusterRun, nimbus: int, words: str) -> str:
    """The time at the beginning of the last line of a Nimbus's log that contains these words; waits for one."""

    def lines() -> list[str]:
        return [line for line in run.daemons.nimbuses[nimbus].text().splitlines() if words in line]

    run.wait_for(lines, f"that Nimbus {nimbus + 1} says {words!r}")
    return " ".join(lines()[-1].split()[:2])


def test_a_restarted_nimbus_finishes_a_kill_that_it_had_begun(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        workers = [started.pid for started in run.daemons.processes().values()]
        run.drain()
        run.daemons.client.delete(f"topologies/{run.name}", wait_secs=2)
        run.daemons.nimbuses[0].kill()
        run.daemons.nimbuses[0].start()
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader")
        run.wait_for(lambda: run.state() is None, "the end of the topology")
        run.wait_for(lambda: not run.daemons.living_workers(), "the end of its workers")
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_counters_outlive_a_restart_of_nimbus(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        run.drain()
        acked = run.total.acked
        assert run.status()["components"]["numbers"]["acked"] == acked
        assert run.daemons.nimbuses[0].stop() == 0
        run.daemons.nimbuses[0].start()
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader")
        assert run.status()["components"]["numbers"]["acked"] == acked


def test_workers_go_on_without_any_nimbus_and_restarted_ones_find_each_other(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        run.daemons.nimbuses[0].kill()
        began = time.monotonic()
        run.flows_for(8.0, longest_gap=2.0)
        assert time.monotonic() - began >= 8.0
        assert run.failed() == 0
        run.daemons.nimbuses[0].start()
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader")
        run.flows()
