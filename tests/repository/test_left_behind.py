"""A test run that is killed leaves no process behind, in whatever session its tests had started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.leaks import state_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
CAP = 30.0

HOOKS = "from tests.left_behind import pytest_configure, pytest_unconfigure"
#: Starts a daemon with a child, each in a session of its own, says who they are, and waits for a line.
TEST = """
import os, subprocess, sys, time

CHILD = "import time; time.sleep(1000)"
DAEMON = f'''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(1000)
'''

def test_it():
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    with open("pids", "w") as pids:
        pids.write(f"{daemon.pid} {daemon.stdout.readline()}")
    os.rename("pids", "started")
    assert sys.stdin.readline() == "end\\n"
"""


@contextmanager
def a_run(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A test run in this folder; and the daemon that its test has started, and this daemon's child."""
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", "test_it.py"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    pids: list[int] = []
    with subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.PIPE) as run:
        try:
            end = time.monotonic() + CAP
            while not (folder / "started").exists():
                assert time.monotonic() < end and run.poll() is None, "the test has started nothing"
                time.sleep(0.01)
            pids += map(int, (folder / "started").read_text().split())
            yield run, pids
        finally:
            run.kill()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    return state_of(pid) not in (None, "Z")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_test_run_that_is_killed_leaves_no_process_behind(tmp_path: Path, how: signal.Signals) -> None:
    with a_run(tmp_path) as (run, pids):
        run.send_signal(how)
        assert run.wait(CAP) == -how
        end = time.monotonic() + CAP
        while any(map(lives, pids)):
            assert time.monotonic() < end, "its processes live on"
            time.sleep(0.01)


def test_a_test_run_that_ends_by_itself_leaves_its_processes_to_its_fixtures(tmp_path: Path) -> None:
    with a_run(tmp_path) as (run, pids):
        run.communicate(b"end\n", timeout=CAP)  # its keeper has ended before it
        assert run.returncode == 0 and all(map(lives, pids))
