"""However the process that holds a cluster with worker processes ends, the workers end too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_cluster.process_engine import LEASE_SECS
from squall.daemon.process_stat import stat_of
from tests.local_cluster.process_topologies import wait_until

ROOT = Path(__file__).resolve().parents[2]
CAP = 60.0
#: Submits a topology, prints its process ids, and runs the lines of the test.
PROGRAM = """
import os, sys, time
from local_cluster import LocalCluster
from tests.local_cluster.process_topologies import Keeps, Numbers, line, wait_until

cluster = LocalCluster(processes=True, supervisors=2, slots=2)
cluster.submit(line("words", Numbers(None, 0.01), Keeps()))
wait_until(lambda: cluster.status("words").components["bolt1"].executed)
print(*(view.pid for view in cluster.workers("words")), flush=True)
"""


@contextmanager
def program(tmp_path: Path, ending: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program with this ending as a process, and make sure that it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + ending],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def pids_of(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def gone(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is None or not stat.living


def test_a_script_that_forgets_to_shut_down_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    with program(tmp_path, "") as process:
        pids = pids_of(process)
        assert len(pids) == 2
        assert process.wait(CAP) == 0
        assert all(gone(pid) for pid in pids)
        assert list(tmp_path.iterdir()) == []


def test_an_exception_in_the_script_ends_the_workers_too(tmp_path: Path) -> None:
    ending = "sys.stderr = open(os.devnull, 'w')\nraise ValueError('the script is wrong')\n"
    with program(tmp_path, ending) as process:
        pids = pids_of(process)
        assert process.wait(CAP) == 1
        assert all(gone(pid) for pid in pids)
        assert list(tmp_path.iterdir()) == []


FORKS = """
child = os.fork()
if child == 0:
    cluster.shutdown()
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
seen = cluster.status("words").components["bolt1"].executed
wait_until(lambda: cluster.status("words").components["bolt1"].executed > seen)
print(*(view.pid for view in cluster.workers("words")), flush=True)
"""


def test_a_forked_child_of_the_script_does_not_end_the_cluster(tmp_path: Path) -> None:
    with program(tmp_path, FORKS) as process:
        before = pids_of(process)
        assert pids_of(process) == before
        assert process.wait(CAP) == 0
        assert all(gone(pid) for pid in before)


@pytest.mark.slow
@pytest.mark.timeout(LEASE_SECS * 5 + CAP)
def test_workers_of_a_killed_script_end_with_their_lease(tmp_path: Path) -> None:
    with program(tmp_path, "time.sleep(1000)") as process:
        pids = pids_of(process)
        process.send_signal(signal.SIGKILL)
        process.wait(CAP)
        wait_until(lambda: all(gone(pid) for pid in pids), LEASE_SECS * 5)
        [state] = tmp_path.iterdir()
        ends = sorted(path.read_text() for path in state.glob("*/topologies/*/workers/*/end.json"))
        assert len(ends) == 2
        assert all('"status":71' in text for text in ends)
