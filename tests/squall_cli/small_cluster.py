"""A Nimbus and a supervisor of a special kind in this process, over a store in memory; the command runs in other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nimbus.daemon import NimbusDaemon, NimbusSettings
from squall.cluster.memory import InMemoryStore
from supervisor.daemon import SupervisorDaemon, SupervisorSettings
from tests.squall_cli.run_process import environment

CAP = 90.0


@dataclass(frozen=True)
class SmallCluster:
    """Its URL and its token."""

    url: str
    home: Path

    def squall(self, *arguments: str, cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "squall_cli", *arguments],
            cwd=cwd,
            env=environment(SQUALL_NIMBUS=self.url, HOME=str(self.home), XDG_STATE_HOME=str(self.home)),
            capture_output=True,
            text=True,
            timeout=CAP,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def small_cluster(
    folder: Path, conf: Mapping[str, object] | None = None, hurried: bool = False
) -> Iterator[SmallCluster]:
    """A cluster with its files in a folder; its workers end with it. `hurried`: they are killed at once."""
    home = folder / "home"
    home.mkdir()
    environ = {"HOME": str(home), "XDG_STATE_HOME": str(home)}
    store = InMemoryStore()
    nimbus = NimbusDaemon(store, NimbusSettings(folder / "nimbus", conf=conf or {}, environ=environ))
    nimbus.start()
    try:
        supervisor = SupervisorDaemon(store.session(), SupervisorSettings(folder / "supervisor", slots=2))
        supervisor.start()
        try:
            yield SmallCluster(nimbus.url, home)
        finally:
            if hurried:
                supervisor.hurry()
            supervisor.stop(end_workers=True)
    finally:
        nimbus.stop()
