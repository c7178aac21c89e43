"""Notifications of ZooKeeper are lost or come twice: every change is still noticed, and acted on once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun
from tests.cluster_faults.proxied_cluster import proxied_cluster
from tests.faults.running import Tally
from tests.repository.promised_bounds import allowed
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Seconds within which a change without a notification must be noticed and acted on.
SEEN = allowed("change seen")
SPOUTS = 2


def changes_are_seen(run: ClusterRun, books: Path, rests: int) -> None:
    """Another topology is submitted, and this one is deactivated (for the n-th time); then this one is activated, and the other
    one killed.
    """
    before = {started.pid for started in run.daemons.processes().values()}
    books.mkdir()
    run.obey("submit", str(run.file), "--", f"books={books}", f"name={books.name}")
    run.obey("deactivate", run.name)
    run.wait_for(lambda: run.tally.of("P") == rests * SPOUTS, "that its spouts rest", SEEN)
    other = Tally(books)
    run.wait_for(lambda: other.of("A"), "the first ack of another topology")
    run.obey("activate", run.name)
    run.obey("kill", books.name, "-w", "0")
    run.wait_for(
        lambda: {process.pid for process in run.daemons.living_workers()} == before,
        "the end of the other topology's workers",
        SEEN,
    )
    run.flows(cap=SEEN)
    assert run.failed() == 0


def test_changes_are_seen_when_notifications_are_lost_or_doubled(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with proxied_cluster(tmp_path, zookeeper, nimbuses=2, slots=4) as (run, ways):
        for proxy in ways.all:
            proxy.notices, proxy.noticed = 0, 0
        changes_are_seen(run, tmp_path / "while-lost", rests=1)
        assert all(proxy.noticed for proxy in ways.all), "no notification was lost"
        old = run.daemons.leader()
        assert old is not None
        run.daemons.nimbuses[old].kill()
        run.wait_for(lambda: run.daemons.leader() == 1 - old, "the lead of the other Nimbus", SEEN)
        for proxy in ways.all:
            proxy.notices = 2
        run.daemons.nimbuses[old].start()
        changes_are_seen(run, tmp_path / "while-doubled", rests=2)
