"""The wall clock of every daemon steps by an hour, forward and back: nothing ends early, and nothing waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import GAP, ledger_cluster
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Put into a folder of PYTHONPATH: each process of the cluster then has a wall clock that differs from this machine's.
CLOCK = """
import os, time
_file, _real = os.environ.get("STEPPED_CLOCK"), time.time

def _offset():
    try:
        with open(_file) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0

if _file:
    time.time = lambda: _real() + _offset()
    time.time_ns = lambda: int((_real() + _offset()) * 1e9)
"""


def test_steps_of_the_wall_clock_change_nothing(
    tmp_path: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("0")
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("STEPPED_CLOCK", str(offset))
    monkeypatch.setattr(
        "tests.cluster_faults.daemon_processes.ROOT", f"{shim}:{Path(__file__).resolve().parents[2]}"
    )
    with ledger_cluster(tmp_path, zookeeper.servers, nimbuses=2) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        for step in (3600, -3600, 0):
            offset.write_text(str(step))
            run.flows_for(3.0, longest_gap=GAP)
            assert run.state() == "ACTIVE"
        # A drain during which the clock steps ends on time.
        offset.write_text("0")
        assert {started.pid for started in run.daemons.processes().values()} == before
        run.drain()
        run.daemons.client.delete(f"topologies/{run.name}", wait_secs=5)
        offset.write_text("-3600")
        old = run.daemons.leader()
        assert old is not None
        run.daemons.nimbuses[old].kill()
        run.wait_for(lambda: run.daemons.leader() == 1 - old, "the other Nimbus")
        run.wait_for(lambda: run.is_gone(run.name), "the end of the topology")
        assert not run.total.failed
