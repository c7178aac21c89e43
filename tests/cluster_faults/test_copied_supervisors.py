"""A supervisor's state directory was copied to another host: of two supervisors with one id, the second one waits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ledger_cluster, store_of
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def test_the_second_supervisor_of_one_id_waits_and_disturbs_nothing(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with ledger_cluster(tmp_path, zookeeper.servers) as run:
        copy = run.daemons.another_supervisor(zookeeper.servers)
        state, copied = (run.daemons.folder / daemon.name for daemon in (run.daemons.supervisors[0], copy))
        copied.mkdir()
        for name in ("id", "key", "cluster"):
            shutil.copy2(state / name, copied / name)
        told: list[str] = []
        with store_of(run, zookeeper.servers) as store:
            store.watch("/", told.append)
            try:
                copy.start()
                run.wait_for(
                    lambda: "remove the files `id` and `key`" in copy.text(), "that it says what is wrong"
                )
                told.clear()
                run.flows_for(4.0, longest_gap=2.0)
                assert len(told) < 10, f"there are writes to ZooKeeper all the time: {told}"
            finally:
                copy.end()
        assert len(run.daemons.living_workers()) == 2 and run.failed() == 0
