"""The process of the cluster is suspended, alone or with all its workers, as when a laptop sleeps: afterwards it goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.cluster_process import Parent, parent_of_cluster
from tests.faults.ledger import Account, account, read
from tests.faults.ledger_topology import STOP
from tests.faults.running import CAP

pytestmark = pytest.mark.faults

LEASE = 2.0


@pytest.fixture
def books(tmp_path: Path) -> Path:
    folder = tmp_path / "books"
    folder.mkdir()
    return folder


def to_its_end(parent: Parent, books: Path) -> Account:
    """Let the topology complete; the ledger must add up, and no file may remain."""
    Path(books, STOP).touch()
    assert parent.process.wait(CAP) == 0
    total = account(read(books))
    assert not total.problems, total
    assert not list(parent.folder.iterdir())
    assert not parent.workers()
    return total


def test_workers_of_a_frozen_cluster_end_and_are_started_again_when_it_goes_on(
    tmp_path: Path, books: Path
) -> None:
    with parent_of_cluster(tmp_path, books, LEASE) as parent:
        parent.process.send_signal(signal.SIGSTOP)
        parent.wait_for(lambda: not parent.workers(), "the end of the lease")
        parent.process.send_signal(signal.SIGCONT)
        parent.flows()
        assert to_its_end(parent, books).spout_lives >= 4


def test_a_cluster_frozen_for_less_than_the_lease_goes_on_with_its_workers(
    tmp_path: Path, books: Path
) -> None:
    with parent_of_cluster(tmp_path, books, 60.0) as parent:
        workers = parent.workers()
        parent.process.send_signal(signal.SIGSTOP)
        parent.flows(1000)  # only the cluster's process is suspended
        time.sleep(4.0)  # longer than a worker may miss heartbeats
        parent.process.send_signal(signal.SIGCONT)
        parent.flows()
        assert parent.workers() == workers
        assert to_its_end(parent, books).spout_lives == 2


@pytest.mark.parametrize("first", ["the cluster", pytest.param("its workers", marks=pytest.mark.soak)])
def test_a_cluster_that_was_suspended_with_all_its_workers_goes_on(
    tmp_path: Path, books: Path, first: str
) -> None:
    with parent_of_cluster(tmp_path, books, LEASE) as parent:
        pids = [parent.process.pid, *parent.workers()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * LEASE)  # the duration of the suspension
        for pid in pids if first == "the cluster" else reversed(pids):
            os.kill(pid, signal.SIGCONT)
        parent.flows()
        to_its_end(parent, books)
