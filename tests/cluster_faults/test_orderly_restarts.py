"""Restarting every daemon in turn, moving work off a host, replacing a version: no tuple fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_faults.cluster_run import ClusterRun, ledger_cluster
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[ClusterRun]:
    """A cluster for all tests of this file; its ledger tells in the end that no tuple failed in any of them."""
    with ledger_cluster(tmp_path_factory.mktemp("orderly"), zookeeper.servers, nimbuses=2, rate=200) as run:
        yield run
        run.drain()
        assert not run.total.failed and not run.total.orphaned, run.report()


def test_a_rolling_restart_of_all_daemons_fails_no_tuple(run: ClusterRun) -> None:
    before = run.pids()
    for daemon in (*run.daemons.supervisors, *run.daemons.nimbuses):
        assert daemon.stop() == 0, daemon.text()[-2000:]
        run.flows(20)
        daemon.start()
        run.is_whole()
        run.flows(20)
    assert run.pids() == before
    assert run.failed() == 0


def test_draining_a_host_moves_its_tasks_and_fails_no_tuple(run: ClusterRun) -> None:
    host = run.daemons.get("supervisors")["supervisors"]
    busy = next(one["id"] for one in host if one["workers"])
    run.obey("drain", busy, "--wait")
    found = {one["id"]: one for one in run.daemons.get("supervisors")["supervisors"]}
    assert found[busy]["drained"] and not found[busy]["workers"]
    run.flows()
    assert run.failed() == 0
    run.obey("drain", busy, "--undo")


def test_a_new_version_takes_over_and_fails_no_tuple(run: ClusterRun) -> None:
    old = run.status()["id"]
    run.obey("submit", str(run.file), "--replace", "--wait", "--", f"books={run.books}", "bolts=4")
    assert run.status()["id"] != old
    assert run.status()["components"]["sink"]["tasks"] == 4
    run.flows()
    assert run.failed() == 0


COUNTING = """
from pathlib import Path
from topology_api import Bolt, Spout, TopologyBuilder

FOLDER = Path(BOOKS)

class Numbers(Spout):
    "A source that cannot rewind: what it has given is gone."
    outputs = "number"
    def next_tuple(self):
        last = FOLDER / "last"
        number = int(last.read_text()) + 1 if last.exists() else 1
        last.write_text(str(number))
        self.emit([number], message_id=number)
        return 0.05
    def fail(self, message_id, failure):
        with open(FOLDER / "failed", "a") as file:
            file.write(failure.reason + "\\n")

class Keep(Bolt):
    def prepare(self, context):
        PREPARE
    def execute(self, tup):
        pass

class Write(Keep):
    def execute(self, tup):
        EXECUTE
        with open(FOLDER / "written", "a") as file:
            file.write(f"{tup['number']}\\n")

def topology():
    builder = TopologyBuilder("counting")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("keep", Keep(), parallelism=4).shuffle_grouping("numbers")
    builder.set_bolt("write", Write()).shuffle_grouping("numbers")
    return builder.build()
"""


def test_a_version_with_a_typo_is_rolled_back_and_gives_no_tuple_up(tmp_path: Path, run: ClusterRun) -> None:
    """... and what was pending in it is processed by the version that returns."""

    def version(name: str, prepare: str = "pass", execute: str = "pass") -> str:
        file = tmp_path / f"{name}.py"
        code = COUNTING.replace("BOOKS", repr(str(tmp_path)))
        file.write_text(code.replace("PREPARE", prepare).replace("EXECUTE", execute))
        return str(file)

    run.obey("submit", version("first"), "--wait")
    first = run.status_of("counting")["id"]
    typos = {
        "execute": version("second", execute="prin(tup)"),
        "prepare": version("third", prepare="context.index == 1 and prin(context)"),
    }
    for where, file in typos.items():
        done = run.daemons.squall("submit", file, "--replace", "--wait")
        assert done.returncode == 1, (where, done.stdout)
        assert "prin" in done.stderr, (where, done.stderr)
        assert where == "prepare" or f"were handed to {first}" in done.stderr, done.stderr
        run.wait_for(lambda: run.status_of("counting")["id"] == first, "that the first version is back")
    assert set((tmp_path / "failed").read_text().splitlines()) == {"handed over"}
    given = range(1, int((tmp_path / "last").read_text()) + 1)

    def lost() -> set[int]:
        return set(given).difference(map(int, (tmp_path / "written").read_text().split()))

    run.wait_for(lambda: not lost(), "that each number is written")
    run.wait_for(lambda: run.status_of("counting")["dead_letters"] == 0, "that no letter is left")
    run.obey("kill", "counting", "-w", "0")


def test_a_version_that_does_not_come_up_is_rolled_back(tmp_path: Path, run: ClusterRun) -> None:
    broken = tmp_path / "broken_version.py"
    broken.write_text(
        "from topology_api import Bolt, Spout, TopologyBuilder\n"
        "class Numbers(Spout):\n"
        "    outputs = 'n'\n"
        "    def open(self, context):\n"
        "        raise RuntimeError('no such table')\n"
        "    def next_tuple(self):\n"
        "        pass\n"
        "def topology():\n"
        "    builder = TopologyBuilder('ledger')\n"
        "    builder.set_spout('numbers', Numbers())\n"
        "    return builder.build()\n"
    )
    done = run.daemons.squall("submit", str(broken), "--replace", "--wait")
    assert done.returncode == 1, done.stdout
    assert "no such table" in done.stderr, done.stderr
    run.wait_for(lambda: run.state() == "ACTIVE", "that the old version is there again")
    run.flows()
    assert run.failed() == 0
