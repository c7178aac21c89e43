"""Small programs that tests start as workers, and queries about processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from squall.daemon.process_stat import stat_of
from supervisor.processes import WorkerProcess

CAP = 30.0


#: A program that dies dumps no core where the tests run.
NO_CORE = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"


def run(directory: Path, text: str) -> WorkerProcess:
    """A process that runs a Python text."""
    return WorkerProcess.start([sys.executable, "-c", NO_CORE + text], directory, dict(os.environ))


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; an expected event comes soon, or never."""
    end = time.monotonic() + CAP
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def runs(pid: int) -> bool:
    """Whether a process of that pid lives (a zombie does not)."""
    stat = stat_of(pid)
    return stat is not None and stat.living


def pid_in(path: Path) -> int:
    """The pid that a program writes into a file, once it is complete."""
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())
