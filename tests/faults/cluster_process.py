"""A local cluster in a process of its own, which tests kill or freeze: `python -m tests.faults.cluster_process BOOKS LEASE`.

It runs the ledger's topology until that is completed. `Parent` starts it and knows all its descendants.
Must not know: the faults.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster, process_engine
from tests.faults import leaks
from tests.faults.ledger_topology import ledger_topology
from tests.faults.running import CAP, PACE, QUICK, Tally

ROOT = Path(__file__).resolve().parents[2]


def main(books: str, lease: str) -> None:
    """Run the topology to its end."""
    process_engine.LEASE_SECS = float(lease)
    site = {"nimbus.supervisor.timeout.secs": max(30.0, float(lease) + 10.0)}
    with LocalCluster(processes=True, supervisors=2, slots=2, settings=(site, {})) as cluster:
        cluster.submit(ledger_topology(books, conf=dict(QUICK)))
        cluster.wait("ledger")


@dataclass
class Parent:
    """The process of a cluster, seen from outside."""

    process: subprocess.Popen[bytes]
    mark: str
    folder: Path
    tally: Tally

    def workers(self) -> list[int]:
        """The pids of all its living descendants."""
        found = leaks.processes(self.mark, str(self.folder))
        return [one.pid for one in found if one.pid != self.process.pid]

    def wait_for(self, question: Callable[[], Any], what: str, cap: float = CAP) -> None:
        deadline = time.monotonic() + cap
        while not question():
            remains = "\n".join(map(str, leaks.processes(self.mark, str(self.folder))))
            assert time.monotonic() < deadline, f"{what}: not within {cap:g} s; there are:\n{remains}"
            time.sleep(PACE)

    def flows(self, more: int = 50) -> None:
        """Wait until this many more tuples are acked."""
        least = self.tally.of("A") + more
        self.wait_for(lambda: self.tally.of("A") >= least, f"{more} more acked tuples")


@contextmanager
def parent_of_cluster(tmp_path: Path, books: Path, lease: float) -> Iterator[Parent]:
    """Start it, wait until tuples flow, and make sure that nothing of it remains afterwards."""
    mark, folder = uuid.uuid4().hex, tmp_path / "cluster"
    folder.mkdir()
    environment: Mapping[str, str] = {
        **os.environ, "PYTHONPATH": str(ROOT), leaks.MARK: mark, "TMPDIR": str(folder)
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.faults.cluster_process", str(books), str(lease)]
    parent = Parent(subprocess.Popen(command, env=environment, cwd=ROOT), mark, folder, Tally(books))
    try:
        parent.flows()
        yield parent
    finally:
        parent.process.kill()
        parent.process.wait()
        for one in leaks.processes(mark, str(folder)):
            os.kill(one.pid, 9)


if __name__ == "__main__":
    main(*sys.argv[1:])
