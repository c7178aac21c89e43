"""A cluster ends, in good order or by the death of its process: no worker, port or file stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.faults import leaks
from tests.faults.ledger_topology import SlowRelay, ledger_topology
from tests.faults.running import CAP, QUICK, Tally, cluster_without_leaks

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
LEASE = 3.0
PARENT = """
import sys, time
from local_cluster import LocalCluster, process_host
from tests.faults.ledger_topology import ledger_topology
from tests.faults.running import QUICK

if __name__ == "__main__":
    process_host.LEASE_SECS = {lease}
    with LocalCluster(processes=True, supervisors=2, slots=2) as cluster:
        cluster.submit(ledger_topology(sys.argv[1], conf=dict(QUICK)))
        time.sleep(600)
"""


def flows(books: Path, least: int = 50) -> None:
    tally = Tally(books)
    deadline = time.monotonic() + CAP
    while tally.of("A") < least:
        assert time.monotonic() < deadline, "no tuples flow"
        time.sleep(0.02)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    folder = tmp_path / "books"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("least", [0, 1, 200])
def test_leaving_a_cluster_under_load_leaves_nothing(tmp_path: Path, books: Path, least: int) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, rate=None, conf=dict(QUICK)))
        flows(books, least)


def test_leaving_a_cluster_whose_bolts_are_slow_leaves_nothing(tmp_path: Path, books: Path) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, rate=None, relay=SlowRelay(0.5), conf=dict(QUICK)))
        flows(books, 1)


def test_leaving_a_cluster_with_a_frozen_worker_leaves_nothing(tmp_path: Path, books: Path) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, conf={**QUICK, "topology.worker.timeout.secs": 600}))
        flows(books)
        first, *_ = cluster.workers("ledger")
        os.kill(first.pid, signal.SIGSTOP)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_of_a_cluster_whose_process_dies_end_by_themselves(
    tmp_path: Path, books: Path, number: int
) -> None:
    mark, folder = uuid.uuid4().hex, tmp_path / "cluster"
    folder.mkdir()
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(lease=LEASE))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), leaks.MARK: mark, "TMPDIR": str(folder)}
    parent = subprocess.Popen([sys.executable, str(script), str(books)], env=environment)
    try:
        flows(books)
        parent.send_signal(number)
        parent.wait(CAP)
        deadline = time.monotonic() + 5 * LEASE
        while remains := leaks.processes(mark, str(folder)):
            assert time.monotonic() < deadline, "\n".join(map(str, remains))
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
        for process in leaks.processes(mark, str(folder)):
            os.kill(process.pid, signal.SIGKILL)
