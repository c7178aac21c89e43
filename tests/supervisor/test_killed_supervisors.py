"""A supervisor daemon that is killed repeatedly does not affect its workers: the next one takes them over, none is doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from nimbus.submission.submission import Submission
from squall.cluster.zookeeper import ZooKeeperStore
from squall.daemon.process_stat import all_processes
from supervisor.processes import MARK
from tests.soak import soak_of
from tests.supervisor.hosts import CAP, ROOT, a_topology
from tests.supervisor.nimbus_over_http import FakeNimbus
from tests.supervisor.programs import runs
from tests.supervisor.supervisor_daemons import end_workers_below, pids_below
from tests.zookeeper_servers import ZooKeeperServer
from topology_api.options import defaults

#: With --soak N, N times as many.
KILLS = 7


def leaders_below(state: Path) -> dict[str, list[int]]:
    """Every living worker process of a state directory, by its directory: found by its mark."""
    found: dict[str, list[int]] = {}
    for stat in all_processes():
        if stat.pid != stat.session or not stat.living:
            continue
        with suppress(OSError):
            for entry in Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0"):
                name, _, value = entry.decode(errors="replace").partition("=")
                if name == MARK and value.startswith(str(state)):
                    found.setdefault(Path(value).name, []).append(stat.pid)
    return found


def wait_for_end(pid: int) -> None:
    end = time.monotonic() + CAP
    while runs(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


class Killing:
    """A Nimbus over ZooKeeper, and a nursery of daemons on one state directory."""

    def __init__(self, tmp: Path, store: ZooKeeperStore, root: str) -> None:
        self.tmp = tmp
        self.state = tmp / "s1"
        self.nimbus = FakeNimbus(store)
        self.daemon: int | None = None
        command = [
            sys.executable,
            "-m",
            "tests.supervisor.daemon_nursery",
            store.servers,
            root,
            str(self.state),
        ]
        self.log = (tmp / "daemons.log").open("wb")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp)}
        self.nursery = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            text=True,
            cwd=ROOT,
        )

    def start(self) -> None:
        assert self.nursery.stdin is not None and self.nursery.stdout is not None
        self.nursery.stdin.write("\n")
        self.nursery.stdin.flush()
        self.daemon = int(self.nursery.stdout.readline())

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.daemon is not None
        os.kill(self.daemon, number)
        wait_for_end(self.daemon)
        self.daemon = None

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + CAP
        while not condition():
            log = (self.tmp / "daemons.log").read_text()[-3000:]
            assert time.monotonic() < end, f"it did not happen; {leaders_below(self.state)}; {log}"
            self.nimbus.do(lambda nimbus: nimbus.tick())
            time.sleep(0.03)

    def opened(self) -> bool:
        record = self.nimbus.registry.topologies.get("words")
        reports = {} if record is None else self.nimbus.registry.reports(record.id)
        return [name for name, report in sorted(reports.items()) if report.opened] == ["w1", "w2"]

    def end(self) -> None:
        if self.daemon is not None:
            self.kill()
        assert self.nursery.stdin is not None and self.nursery.stdout is not None
        self.nursery.stdin.close()
        self.nursery.wait(CAP)
        self.nursery.stdout.close()
        self.log.close()
        self.nimbus.close()
        end_workers_below(self.tmp)


@pytest.fixture
def killing(
    tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_store: ZooKeeperStore, zookeeper_root: str
) -> Iterator[Killing]:
    made = Killing(tmp_path, zookeeper_store, zookeeper_root)
    yield made
    made.end()


@pytest.mark.slow
def test_a_supervisor_killed_at_any_moment_leaves_one_worker_on_each_slot(
    killing: Killing, request: pytest.FixtureRequest
) -> None:
    random = Random(20)
    killing.start()
    killing.until(lambda: killing.nimbus.registry.all_supervisors())
    merged = {**defaults(), "topology.workers": 2}
    killing.nimbus.do(
        lambda nimbus: nimbus.submit(Submission(a_topology("words", 2), merged, {"lines": merged}))
    )
    killing.until(killing.opened)
    for number in range(round(KILLS * soak_of(request.config))):
        before = leaders_below(killing.state)
        killing.kill()
        if number % 2:  # so that it is killed while it starts one, too
            for pid in before.get(random.choice(["w1", "w2"]), ()):
                os.kill(pid, signal.SIGKILL)
                wait_for_end(pid)
        left = leaders_below(killing.state)
        killing.start()
        time.sleep(random.uniform(0.0, 0.6))  # the moment of the kill is random, with a fixed seed
        found = leaders_below(killing.state)
        assert all(len(pids) == 1 for pids in found.values()), f"two on a slot: {found}"
        assert all(found[name] == pids for name, pids in left.items()), f"{left} were not taken over: {found}"
    killing.until(killing.opened)
    # A process is recorded a moment after its start.
    killing.until(lambda: set(leaders_below(killing.state)) == set(pids_below(killing.state)) == {"w1", "w2"})
    assert {name: [pid] for name, pid in pids_below(killing.state).items()} == leaders_below(killing.state)
    killing.nimbus.do(lambda nimbus: nimbus.kill("words", wait_secs=0))
    killing.until(lambda: killing.nimbus.registry.topologies.get("words") is None)
    assert leaders_below(killing.state) == {}
    killing.until(lambda: not list((killing.state / "topologies").iterdir()))


@pytest.mark.slow
def test_a_supervisor_that_is_asked_to_end_leaves_its_workers_and_reports_it(
    tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_store: ZooKeeperStore, zookeeper_root: str
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"squall.zookeeper.root: {zookeeper_root}\n")
    command = [
        sys.executable, "-m", "squall_cli", "supervisor", "--zookeeper", zookeeper.servers, "--insecure-zookeeper",
        "--state", str(tmp_path / "state"), "--config", str(site), "--slots", "3", "--host", "here",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    nimbus = FakeNimbus(zookeeper_store)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    try:
        end = time.monotonic() + CAP
        while not nimbus.posts:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        (record,) = nimbus.registry.all_supervisors()
        assert (record.host, record.slots) == ("here", 3)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=CAP)
    finally:
        process.kill()
        process.wait()
        nimbus.close()
    assert process.returncode == 0
    lines = said.splitlines()
    assert f"INFO supervisor {record.id} of host here: 3 slots, logs at {record.url}" in said
    assert "its workers (0) continue for 20 s, and the next supervisor with --state" in lines[-1]
    assert not [line for line in lines if "Traceback" in line or "ERROR" in line], said
    others = [line for line in lines if "WARNING" in line and "runs as root" not in line]
    first, *warnings = others
    assert "--insecure-zookeeper: everyone who can reach ZooKeeper" in first
    assert len(warnings) == 2 and all(
        "of host 'here' can be reached only from this machine" in each for each in warnings
    ), said
