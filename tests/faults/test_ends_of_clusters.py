"""A cluster ends, in good order or by the death of its process: no worker, port or file remains."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.cluster_process import parent_of_cluster
from tests.faults.ledger_topology import SlowRelay, ledger_topology
from tests.faults.running import CAP, QUICK, Tally, cluster_without_leaks

pytestmark = pytest.mark.faults

LEASE = 3.0


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


@pytest.mark.parametrize("least", [0, 200, pytest.param(1, marks=pytest.mark.soak)])
def test_leaving_a_cluster_under_load_leaves_nothing_behind(tmp_path: Path, books: Path, least: int) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, rate=None, conf=dict(QUICK)))
        flows(books, least)


def test_leaving_a_cluster_whose_bolts_are_slow_leaves_nothing_behind(tmp_path: Path, books: Path) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, rate=None, relay=SlowRelay(0.5), conf=dict(QUICK)))
        flows(books, 1)


def test_leaving_a_cluster_with_a_frozen_worker_leaves_nothing_behind(tmp_path: Path, books: Path) -> None:
    with cluster_without_leaks(tmp_path) as cluster:
        cluster.submit(ledger_topology(books, conf={**QUICK, "topology.worker.timeout.secs": 600}))
        flows(books)
        first, *_ = cluster.workers("ledger")
        os.kill(first.pid, signal.SIGSTOP)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_by_themselves_when_the_process_of_their_cluster_dies(
    tmp_path: Path, books: Path, number: int
) -> None:
    with parent_of_cluster(tmp_path, books, LEASE) as parent:
        assert parent.workers()
        parent.process.send_signal(number)
        parent.process.wait(CAP)
        parent.wait_for(lambda: not parent.workers(), "the end of the lease")
