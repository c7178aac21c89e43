"""Commands on two hosts and two Nimbuses, with real daemons and workers: drained, asked at the standby, led by another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon, NimbusSettings
from squall.cluster.memory import InMemoryStore
from supervisor.daemon import SupervisorDaemon, SupervisorSettings
from tests.squall_cli.run_process import CAP, environment

TOPOLOGY = '''
"""Numbers without end, fifty a second."""
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = Fields("number")
    def open(self, context):
        self.number = 0
    def next_tuple(self):
        self.number += 1
        self.emit((self.number,), message_id=self.number)
        return 0.02

class Take(Bolt):
    def execute(self, tup):
        pass

builder = TopologyBuilder("endless")
builder.set_spout("numbers", Numbers())
builder.set_bolt("take", Take(), parallelism=3).shuffle_grouping("numbers")
topology = builder.build()
'''


class Hosts:
    """Two Nimbuses, of which the first leads, and supervisors of host-1 and host-2."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        store = InMemoryStore()
        environ = {"HOME": str(self.home)}
        self.nimbuses = []
        for number in (1, 2):
            settings = NimbusSettings(folder / f"nimbus-{number}", environ=environ)
            nimbus = NimbusDaemon(store.session(), settings)
            stack.callback(nimbus.stop)
            nimbus.start()
            self.nimbuses.append(nimbus)
            wait_until(lambda: self.nimbuses[0].leading)
        wait_until(lambda: self.nimbuses[1].token is not None)
        for number in (1, 2):
            own = SupervisorSettings(folder / f"host-{number}", host=f"host-{number}", slots=3)
            supervisor = SupervisorDaemon(store.session(), own)
            stack.callback(supervisor.stop, end_workers=True)
            supervisor.start()
        (folder / "endless.py").write_text(TOPOLOGY)

    def run(self, *arguments: str, at: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command; `at`: the URLs of Nimbuses (default: both)."""
        urls = at or ",".join(nimbus.url for nimbus in self.nimbuses)
        return subprocess.run(
            [sys.executable, "-m", "squall_cli", *arguments],
            env=environment(HOME=str(self.home), SQUALL_NIMBUS=urls),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def hosts(self) -> list[str]:
        """The hosts of the topology's workers."""
        return sorted(
            each["host"] for each in self.ask("status", "endless")["workers"] if each["state"] == "RUNNING"
        )


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(folder, stack)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + CAP
    while not true():
        assert time.monotonic() < end
        time.sleep(0.25)  # most looks are a command


@pytest.mark.slow
def test_a_host_is_drained_without_a_failed_tuple_and_undrained(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as there:
        wait_until(lambda: len(there.ask("supervisors")["supervisors"]) == 2)
        assert there.run("submit", "endless.py", "--wait", "-o", "topology.workers=2").returncode == 0
        assert there.hosts() == ["host-1", "host-2"]
        drained = there.run("drain", "host-1", "--wait")
        assert (drained.returncode, drained.stdout) == (0, "host-1 is drained: no worker is left there.\n")
        wait_until(lambda: there.hosts() == ["host-2", "host-2"])
        rows = {line.split()[0]: line.split()[1] for line in there.run("supervisors").stdout.splitlines()[1:]}
        assert rows == {"host-1": "drained", "host-2": "ready"}
        assert there.ask("status", "endless")["components"]["numbers"]["failed"] == 0
        assert there.run("drain", "host-1", "--undo").returncode == 0
        assert there.run("rebalance", "endless", "--wait").returncode == 0
        assert there.hosts() == ["host-1", "host-2"]
        assert "host-2" in there.run("logs", "endless", "--json").stdout
        assert there.run("kill", "endless", "--wait").returncode == 0


@pytest.mark.slow
def test_a_standby_answers_like_the_leader_and_takes_over_during_a_wait(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as there:
        leader, standby = there.nimbuses
        assert there.run("submit", "endless.py", "--wait", at=standby.url).returncode == 0
        assert "endless" in there.run("list", at=standby.url).stdout
        assert there.run("deactivate", "endless", at=standby.url).stdout == "endless is INACTIVE.\n"
        assert there.run("activate", "endless", at=standby.url).returncode == 0
        versions = there.run("version").stdout
        assert (versions.count("\nnimbus on "), versions.count("\nsupervisor on ")) == (2, 2)
        leader.stop()
        killed = there.run("kill", "endless", "--wait")
        assert (killed.returncode, killed.stdout) == (0, "endless is gone.\n"), killed.stderr
        assert there.ask("list") == {"topologies": []}
