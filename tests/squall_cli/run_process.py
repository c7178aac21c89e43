"""Starts `squall run` in a process of its own and waits for its output; a test never waits for luck."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGIES = Path(__file__).resolve().parent / "run_topologies.py"
#: Far more seconds than any step here takes; a command that hangs is killed, and its test fails.
CAP = 60.0
#: Seconds after which a process is killed that runs while a test takes its steps: just before the time limit of a test.
LIFE_SECS = 110.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "squall_cli", "run", *arguments]


def environment(**extra: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SQUALL_") and name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def squall_run(*arguments: str, cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def topology(name: str) -> str:
    """The command line of one of the topologies for these tests."""
    return f"{TOPOLOGIES}:{name}"


class Running:
    """A run in progress; stdout and stderr in one, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str) -> None:
        """Read until a line contains the text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}:\n{self.text}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Read the rest; return the exit status."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        return self.process.wait()


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    """Start it, and make sure that it ends."""
    with running_squall("run", *arguments) as process:
        yield process


@contextmanager
def running_squall(*arguments: str, **extra: str) -> Iterator[Running]:
    """Start any command, with these variables in its environment, and make sure that it ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "squall_cli", *arguments],
        env=environment(**extra),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    guard = threading.Timer(LIFE_SECS, process.kill)
    guard.start()
    try:
        yield Running(process)
    finally:
        guard.cancel()
        process.kill()
        process.communicate()
