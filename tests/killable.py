"""A process that a test ends, kills or freezes, by its pid and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

#: How long a process may take to end in good order, and a killed one, on a machine under load.
_STOP_SECS = 10.0
_KILL_SECS = 60.0


def freeze(pid: int) -> None:
    """Suspend a process, and wait until each of its threads is: on a busy machine a thread runs on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + _KILL_SECS
    while any(_state(thread) not in "TtZX" for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < end, f"process {pid} is not suspended"
        time.sleep(0.002)


def _state(thread: Path) -> str:
    """The state letter of a thread; "X" if it has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class Killable:
    """One process at a time, which may be started again. Its output goes to a file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, command: Sequence[str]) -> None:
        """Start it, out of reach of the signals that the terminal sends to the tests."""
        assert self._process is None, "it runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend it in the middle of whatever it does; its connections stay."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """Resume it."""
        self._send(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Its output."""
        return self._log.read_text(errors="replace")

    def _send(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_KILL_SECS)
