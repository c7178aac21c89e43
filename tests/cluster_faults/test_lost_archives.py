"""All Nimbuses have lost the archives of the topologies: running workers go on, and another submission restores the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nimbus.files import housekeeping
from tests.cluster_faults.cluster_run import ledger_cluster
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

#: Put into a folder of PYTHONPATH: each Nimbus then waits only a moment for a lost file, instead of half a minute.
IMPATIENT = f"""
import sys

if "nimbus" in sys.orig_argv:
    import {housekeeping.__name__} as housekeeping

    housekeeping.PATIENCE_SECS = 2.0
"""


def test_without_archives_workers_go_on_kill_works_and_a_new_submission_repairs(
    tmp_path: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert housekeeping.PATIENCE_SECS == 30, "what the daemons are told has another name"
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(IMPATIENT)
    monkeypatch.setattr(
        "tests.cluster_faults.daemon_processes.ROOT", f"{shim}:{Path(__file__).resolve().parents[2]}"
    )
    with ledger_cluster(tmp_path, zookeeper.servers, nimbuses=2, supervisors=1, slots=4) as run:
        before = {started.pid for started in run.daemons.processes().values()}
        run.another("second", "--wait")
        states = [run.daemons.folder / nimbus.name for nimbus in run.daemons.nimbuses]
        (code,) = run.status()["files"].values()
        run.wait_for(
            lambda: all((state / "files" / code).exists() for state in states), "it at both Nimbuses"
        )
        for nimbus, state in zip(run.daemons.nimbuses, states):
            nimbus.kill()
            shutil.rmtree(state / "files")
        for nimbus in run.daemons.nimbuses:
            nimbus.start()
        run.wait_for(lambda: run.daemons.leader() is not None, "a leader")

        def said() -> str:
            status = run.status()
            return "nothing" if status is None else " ".join(status["notes"])

        run.wait_for(lambda: f"no Nimbus that answers has the file {code}" in said(), "a word about it")
        run.rest_and_go_on()
        run.obey("kill", "second", "-w", "0", "--wait")
        assert {started.pid for started in run.daemons.processes().values()} == before

        run.obey("submit", str(run.file), "--replace", "--wait", "--", f"books={run.books}")
        run.wait_for(lambda: said() == "", "that nothing is lost any more")
        run.wait_for(
            lambda: all((state / "files" / code).exists() for state in states), "it at both Nimbuses"
        )
        another = run.daemons.another_supervisor(zookeeper.servers)
        another.start()
        try:
            run.wait_for(lambda: len(run.daemons.supervisors_there()) == 2, "the other supervisor")
            (mine,) = (
                one for one in run.daemons.get("supervisors")["supervisors"] if one["host"] == "host-1"
            )
            run.obey("drain", mine["id"], "--wait")
            run.flows()
            run.drain()
            assert not run.total.failed, run.report()
            run.kill()
            run.obey("drain", mine["id"], "--undo")
        finally:
            another.end()
