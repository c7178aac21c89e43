"""Ends what a test run leaves behind when it is ended itself: ZooKeeper, daemons, workers, each in a session of its own.

All processes of a run inherit a variable with its name. A keeper in another session waits until the run has ended, in whatever
way; if the run did not say that it ended in good order, the keeper kills each process that has the variable, which it finds in
/proc. `tests/conftest.py` takes the hooks of pytest from here. Must not know: clusters.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the keeper has no site-packages
    import pytest

#: Without the prefix of the options, which tests leave out of the surroundings of what they start.
VARIABLE = "TESTS_OF_SQUALL"
#: How often the keeper looks again for processes that were just being started.
_ROUNDS, _PAUSE_SECS = 20, 0.1
_IN_ORDER = b"in order"
_keepers: list[Keeper] = []


def pytest_configure(config: pytest.Config) -> None:
    """Have a keeper for the run: one for all its processes."""
    if not hasattr(config, "workerinput"):
        _keepers.append(Keeper())


def pytest_unconfigure() -> None:
    """Do without it: the run has ended by itself, or by Ctrl-C, and its fixtures with it."""
    while _keepers:
        _keepers.pop().dismiss()


class Keeper:
    """The process that waits for the end of this one."""

    def __init__(self) -> None:
        os.environ[VARIABLE] = mark = uuid.uuid4().hex
        # Without site-packages it starts in a hundredth of a second. Its output must not hold a pipe of the run open.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """The run ends in good order: its fixtures have ended what they started."""
        self._process.communicate(_IN_ORDER)


def kill_all(mark: str) -> None:
    """Kill the processes of a run, again until there is none: one may have started another meanwhile."""
    for _ in range(_ROUNDS):
        pids = [pid for pid in _pids() if pid != os.getpid() and _is_marked(pid, mark)]
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(_PAUSE_SECS)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _is_marked(pid: int, mark: str) -> bool:
    try:
        return f"{VARIABLE}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


if __name__ == "__main__":
    if sys.stdin.buffer.read() != _IN_ORDER:
        kill_all(sys.argv[1])
