"""A cluster of real daemons on this machine, for tests: Nimbuses and supervisors as processes over a given ZooKeeper.

Each daemon can be asked to stop, killed, frozen, thawed and started again over the same state. All of it is in one folder, uses
loopback addresses and free ports, and ends with the cluster, workers included.
Must not know: what runs in the cluster, which faults are made.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from squall.http.client import Client, Unreachable
from squall.security.private_files import write_private
from squall.security.tokens import kept_token, read_token
from supervisor.directories import PROCESS, Started, read_started
from tests.faults import leaks
from tests.killable import freeze
from tests.zookeeper_servers import free_ports

ROOT = Path(__file__).resolve().parents[2]
#: Upper limit in seconds for everything that has no limit of its own.
CAP = 60.0
#: Seconds between two questions: each costs the Nimbus that answers some milliseconds of a processor.
PACE = 0.15
#: ZooKeeper's credentials, unless the site has others.
CREDENTIALS = ("squall", "secret-of-tests")
#: Liveness in seconds instead of half minutes, so that tests need not wait.
QUICK: Mapping[str, object] = {
    "squall.zookeeper.session.timeout.secs": 4,
    "nimbus.supervisor.timeout.secs": 12,
    "supervisor.worker.lease.secs": 9,
    "nimbus.replace.timeout.secs": 30,
}


class Daemon:
    """One daemon, started repeatedly with the same arguments."""

    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.log = folder / f"{name}.log"
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False

    @property
    def pid(self) -> int:
        """The process that runs now or ran last."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; its output is appended to its log."""
        assert not self.runs, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "squall_cli", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env=self._environment,
                start_new_session=True,
            )
        self._frozen = False

    def stop(self, seconds: float = CAP) -> int:
        """Ask it to stop, and wait; its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        assert self._process is not None and self.runs, f"{self.name} does not run:\n{self.text()[-2000:]}"
        freeze(self._process.pid)
        self._frozen = True

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self._frozen = False

    def signal(self, number: int) -> None:
        assert self._process is not None and self.runs, f"{self.name} does not run:\n{self.text()[-2000:]}"
        self._process.send_signal(number)

    def wait(self, seconds: float = CAP) -> int:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} does not end:\n{self.text()[-3000:]}")

    def end(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(CAP)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Daemons:
    """The daemons of one cluster."""

    def __init__(
        self,
        folder: Path,
        zookeeper: str | Sequence[str],
        *,
        nimbuses: int = 1,
        supervisors: int = 2,
        slots: int = 2,
        site: Mapping[str, object] = {},
        root: str | None = None,
    ) -> None:
        """`zookeeper`: ZooKeeper's address for all daemons, or one for each (Nimbuses first)."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.root = root or f"/test-{self.mark[:12]}"
        self.site_file = folder / "squall.yaml"
        write_private(folder / "credentials", ":".join(CREDENTIALS))
        closed = {"squall.zookeeper.credentials.file": str(folder / "credentials")}
        self.site = {**QUICK, "squall.zookeeper.root": self.root, **closed, **site}
        self.site_file.write_text(yaml.safe_dump(dict(self.site)))
        self.environment = self._environment()
        count = nimbuses + supervisors
        servers = [zookeeper] * count if isinstance(zookeeper, str) else list(zookeeper)
        self.urls = [f"http://127.0.0.1:{port}" for port in free_ports(nimbuses)]
        self.nimbuses = [
            self._daemon(
                f"nimbus-{number}",
                "nimbus",
                servers[number - 1],
                "--listen",
                url.removeprefix("http://"),
            )
            for number, url in enumerate(self.urls, 1)
        ]
        self._slots = slots
        self.supervisors: list[Daemon] = []
        for number in range(supervisors):
            self.supervisors.append(self.another_supervisor(servers[nimbuses + number]))
        # Longer than Nimbus takes to answer; each question to a frozen one costs this much.
        self.client = Client(self.urls, self._authorization, timeout=6.0)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SQUALL_")}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            leaks.MARK: self.mark,
        }

    def _daemon(self, name: str, command: str, servers: str, *arguments: str) -> Daemon:
        state = self.folder / name
        common = ["--zookeeper", servers, "--state", str(state), "--config", str(self.site_file)]
        return Daemon(name, [command, *common, *arguments], self.folder, self.environment)

    def another_supervisor(self, servers: str) -> Daemon:
        """Another supervisor; the caller starts and ends it."""
        number = len(self.supervisors) + 1
        options = ["--slots", str(self._slots), "--host", f"host-{number}"]
        return self._daemon(f"supervisor-{number}", "supervisor", servers, *options)

    def _authorization(self, url: str) -> str | None:
        named = self.site.get("squall.token.file")
        token = read_token(Path(str(named))) if named else kept_token(url, self.environment)
        return None if token is None else f"Bearer {token}"

    # Life cycle

    def start(self) -> None:
        """Start all, and wait until a Nimbus leads and all supervisors are registered."""
        for daemon in (*self.nimbuses, *self.supervisors):
            daemon.start()
        self.wait_for(lambda: len(self.supervisors_there()) == len(self.supervisors), "all supervisors")

    def __enter__(self) -> Daemons:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all daemons and all workers, whatever state they are in."""
        self.client.close()
        for daemon in (*self.nimbuses, *self.supervisors):
            daemon.end()
        for process in leaks.processes(self.mark, str(self.folder)):
            os.kill(process.pid, signal.SIGKILL)

    # State

    def get(self, path: str, **query: object) -> Any:
        """The answer of the cluster's API; None if no Nimbus gives one."""
        try:
            return self.client.get(path, **query)
        except Unreachable:
            return None

    def supervisors_there(self) -> list[str]:
        """The ids of the supervisors that Nimbus knows."""
        found = self.asked(lambda: self.client.get("supervisors"))
        return [] if found is None else [one["id"] for one in found["supervisors"] if one["connected"]]

    def nimbuses_there(self) -> int:
        """How many Nimbuses know each other. One that is just starting may refuse: its token is younger than the asker's."""
        found = self.asked(lambda: self.client.get("cluster"))
        return 0 if found is None else len(found["nimbuses"])

    def leader(self) -> int | None:
        """The position of the leading Nimbus; None if none leads or none answers."""
        found = self.asked(lambda: self.client.get("cluster"))
        if found is None or found["leader"] is None or found["leader"]["url"] not in self.urls:
            return None
        return self.urls.index(found["leader"]["url"])

    def asked(self, question: Callable[[], Any]) -> Any:
        """The answer to a question; None if it was refused or no Nimbus could be reached."""
        from topology_api import SquallError

        try:
            return question()
        except SquallError:
            return None

    def processes(self, supervisor: int | None = None) -> dict[Path, Started]:
        """The running worker processes that the supervisors have recorded: directory -> process."""
        which = self.supervisors if supervisor is None else [self.supervisors[supervisor]]
        found = {}
        for daemon in which:
            for path in (self.folder / daemon.name).glob(f"topologies/*/workers/*/{PROCESS}"):
                started = read_started(path.parent)
                if started is not None and leaks.state_of(started.pid) not in (None, "Z"):
                    found[path.parent] = started
        return found

    def living_workers(self) -> list[leaks.Process]:
        """All running worker processes, whether a supervisor knows them or not."""
        found = leaks.processes(self.mark, str(self.folder))
        return [process for process in found if " -m worker " in f"{process.command} "]

    # Commands and waits

    def squall(self, *arguments: str, cap: float = CAP) -> subprocess.CompletedProcess[str]:
        """Run a command of `squall` against this cluster."""
        return subprocess.run(
            [sys.executable, "-m", "squall_cli", *arguments],
            env={**self.environment, "SQUALL_NIMBUS": ",".join(self.urls)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=cap,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def wait_for(self, question: Callable[[], Any], what: str, cap: float = CAP) -> float:
        """Wait until a condition holds; return how long it took in seconds."""
        began = time.monotonic()
        while not question():
            if time.monotonic() - began > cap:
                pytest.fail(f"{what}: not within {cap:g} s\n{self.report()}")
            time.sleep(PACE)
        return time.monotonic() - began

    def report(self) -> str:
        """The last log lines of the daemons, for the message of a failed test."""
        parts = []
        for daemon in (*self.nimbuses, *self.supervisors):
            lines = daemon.text().splitlines()[-25:]
            parts += [
                f"{daemon.name} ({'runs' if daemon.runs else 'has ended'}):",
                *(f"  {line}" for line in lines),
            ]
        return "\n".join(parts)
