"""Records which code this process runs, with Linux's perf: a sample for each quarter of a millisecond of CPU, of all its
threads.

perf is attached to the process and waits; it counts from `begin` to `end`, so that starts and ends are left out. Kernel time of
the process is visible only to root, or where kernel.perf_event_paranoid is 1 or less. It must not know what is run, nor what
the files mean to us.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["KERNEL", "PERIOD", "Recorder", "Sample", "parse", "read", "trouble"]

PERIOD = 250_000
"""Nanoseconds of CPU between two samples."""
KERNEL = "[kernel]"
"""The file of what the kernel runs, its modules included."""
RECORD = ("perf", "record", "-q", "-e", "cpu-clock", "-c", str(PERIOD), "--no-buildid")
SCRIPT = ("perf", "script", "-F", "comm,period,ip,sym,dso")
# The name of a thread may contain spaces, that of a C++ function spaces and parentheses.
LINE = re.compile(rf"\s*(.+?)\s+{PERIOD}\s+([0-9a-f]+)\s+(.+?) \(([/\[].*|[^ ]*)\)$")


class Sample(NamedTuple):
    """Where a thread was. `file`: the path of the executable or library."""

    thread: str
    file: str
    function: str


def trouble() -> str:
    """Return why samples are impossible here, as a sentence; "" if they are possible."""
    if shutil.which("perf") is None:
        return "perf is missing (on Debian: apt-get install linux-perf, on Ubuntu: linux-tools-generic)"
    tried = subprocess.run(
        [*RECORD, "-o", "/dev/null", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    said = " ".join(tried.stderr.decode(errors="replace").split())
    return f"perf cannot sample here (see kernel.perf_event_paranoid): {said}" if tried.returncode else ""


class Recorder:
    """Samples its own process, from `begin` to `end`, into a file."""

    def __init__(self, out: Path) -> None:
        reads, self.commands = os.pipe()
        self.answers, says = os.pipe()
        control = ("--delay", "-1", f"--control=fd:{reads},{says}")
        command = [*RECORD, *control, "-p", str(os.getpid()), "-o", str(out)]
        self.process = subprocess.Popen(command, pass_fds=(reads, says))
        os.close(reads)
        os.close(says)
        self.tell("ping")  # perf is attached once it answers

    def begin(self) -> None:
        """Count from now on."""
        self.tell("enable")

    def end(self) -> None:
        """Stop counting; the file is complete."""
        self.tell("disable")
        self.tell("stop")
        status = self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        if status:
            raise RuntimeError(f"{self.process.args!r} ended with status {status}")

    def tell(self, command: str) -> None:
        """Send perf a command, and wait until it is done."""
        os.write(self.commands, f"{command}\n".encode())
        if not os.read(self.answers, 64):
            raise RuntimeError(f"{self.process.args!r} ended with status {self.process.wait()}")


def read(out: Path) -> Counter[Sample]:
    """Return how often a recorder saw each place."""
    done = subprocess.run(
        [*SCRIPT, "-i", str(out)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=600
    )
    return parse(done.stdout.decode(errors="replace").splitlines())


def parse(lines: Iterable[str]) -> Counter[Sample]:
    """Parse the output of `perf script`, a sample per line."""
    samples: Counter[Sample] = Counter()
    for line in filter(None, map(str.rstrip, lines)):
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"this is no sample: {line!r}")
        thread, address, function, file = found.groups()
        # The upper half of all addresses is the kernel's; the names of its files depend on the user's rights.
        samples[Sample(thread, KERNEL if int(address, 16) >> 63 else file, function)] += 1
    return samples
