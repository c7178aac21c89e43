"""A topology whose `open` does not return is gone soon after a kill: it cannot have tuples in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.process_topologies import NeverOpens, wait_until
from topology_api import NoSuchTopology, TopologyBuilder

#: Far less than its limit for draining.
CAP = 60.0
WAIT_SECS = 500.0


def is_gone(cluster: LocalCluster, name: str) -> bool:
    try:
        cluster.status(name)
    except NoSuchTopology:
        return True
    return False


@pytest.mark.slow
def test_a_kill_does_not_wait_for_the_drain_of_a_spout_that_never_opened(tmp_path: Path) -> None:
    builder = TopologyBuilder("hangs")
    builder.set_spout("lines", NeverOpens(tmp_path))
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build())
        wait_until((tmp_path / "opening").exists, CAP)
        cluster.kill("hangs", WAIT_SECS)
        wait_until(lambda: is_gone(cluster, "hangs"), CAP)
        assert cluster.last_status("hangs").state == "KILLED"
