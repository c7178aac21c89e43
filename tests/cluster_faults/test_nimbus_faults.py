"""The leading Nimbus is killed, frozen or cut off: the other one leads, and late writes of the old one have no effect."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import GAP, ClusterRun, ledger_cluster
from tests.cluster_faults.daemon_processes import QUICK
from tests.faults.proxy import Proxy
from tests.repository.promised_bounds import allowed
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds without a Nimbus: longer than its session lives.
AWAY = 6.0
SESSION_SECS = float(str(QUICK["squall.zookeeper.session.timeout.secs"]))
#: What a Nimbus logs when it begins and ends to lead.
LEADS, STOPS = "leads (epoch", "leads no more"


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[tuple[ClusterRun, list[Proxy]]]:
    """A run with two Nimbuses, each of which reaches ZooKeeper through a proxy of its own. A test leaves both whole."""
    host, _, port = zookeeper.servers.partition(":")
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy((host, int(port)))) for _ in range(2)]
        ways = [f"{proxy.address[0]}:{proxy.address[1]}" for proxy in proxies]
        run = stack.enter_context(
            ledger_cluster(
                tmp_path_factory.mktemp("two"),
                [*ways, *[zookeeper.servers] * 2],
                direct=zookeeper.servers,
                nimbuses=2,
            )
        )
        yield run, proxies


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("killed", marks=pytest.mark.soak),
        "frozen",
        pytest.param("cut off", marks=pytest.mark.soak),
    ],
)
def test_the_rival_leads_and_no_tuple_fails(how: str, two: tuple[ClusterRun, list[Proxy]]) -> None:
    run, proxies = two
    run.is_whole()
    before = run.pids()
    old = run.daemons.leader()
    assert old is not None
    daemon = run.daemons.nimbuses[old]
    ends, begins = lines_with(run, old, STOPS), lines_with(run, 1 - old, LEADS)
    if how == "killed":
        daemon.kill()
    elif how == "frozen":
        daemon.freeze()
    else:
        proxies[old].cut()
    took = run.wait_for(lambda: run.daemons.leader() == 1 - old, "the lead of the other Nimbus")
    assert took <= SESSION_SECS + allowed("lead after a session")
    if how == "cut off":
        stopped = moment_of(run, old, STOPS, len(ends))
        began = moment_of(run, 1 - old, LEADS, len(begins))
        assert stopped < began, (stopped, began)
    run.rest_and_go_on()
    run.flows()
    if how == "killed":
        daemon.start()
    elif how == "frozen":
        daemon.thaw()
    else:
        proxies[old].heal()
    run.flows()
    run.is_whole(leader=1 - old)
    run.rest_and_go_on()
    assert run.pids() == before
    assert run.failed() == 0


def moment_of(run: ClusterRun, nimbus: int, words: str, earlier: int) -> str:
    """The time at the beginning of the last line of a Nimbus's log that contains these words; waits until there are more than
    `earlier` such lines."""
    run.wait_for(
        lambda: len(lines_with(run, nimbus, words)) > earlier, f"that Nimbus {nimbus + 1} says {words!r}"
    )
    return " ".join(lines_with(run, nimbus, words)[-1].split()[:2])


def lines_with(run: ClusterRun, nimbus: int, words: str) -> list[str]:
    """The lines of a Nimbus's log that contain these words."""
    return [line for line in run.daemons.nimbuses[nimbus].text().splitlines() if words in line]


def test_workers_go_on_without_any_nimbus_and_a_restarted_one_knows_counters_and_kills(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        (nimbus,) = run.daemons.nimbuses
        workers = run.pids()
        nimbus.kill()
        began = time.monotonic()
        run.flows_for(AWAY, longest_gap=GAP)
        assert time.monotonic() - began >= AWAY
        assert run.failed() == 0
        nimbus.start()
        run.is_whole()
        run.flows()
        assert run.pids() == workers

        acked = run.drain().acked
        assert run.status()["components"]["numbers"]["acked"] == acked
        assert nimbus.stop() == 0
        nimbus.start()
        run.is_whole()
        assert run.status()["components"]["numbers"]["acked"] == acked, "the counters of its predecessor"

        run.daemons.client.delete(f"topologies/{run.name}", wait_secs=2)
        nimbus.kill()
        nimbus.start()
        run.wait_for(
            lambda: run.is_gone(run.name), "the end of the topology that its predecessor was killing"
        )
        run.wait_for(lambda: not run.daemons.living_workers(), "the end of its workers")
        assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
