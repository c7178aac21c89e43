"""The kernel's data on a process: whether it lives, when it began, and its session and group.

On Linux this module reads `/proc/<pid>/stat`; on other systems no process is found.
Must not know: workers, signals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec


class Stat(msgspec.Struct, frozen=True):
    """A process's state at the time of reading."""

    pid: int
    state: str
    group: int
    session: int
    #: When the process began, in clock ticks since boot.
    started: int

    @property
    def living(self) -> bool:
        """Whether the process still runs (a zombie does not)."""
        return self.state not in "ZXx"


def stat_of(pid: int) -> Stat | None:
    """Return the kernel's data on a process; None if no process has that pid, or the process is hidden from the caller. Raises
    `OSError` if the answer is unknown, for example because no descriptor is free."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the name of the program, in brackets, and may hold anything.
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return Stat(pid, fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))


def runs(pid: int, started: int) -> bool:
    """Return whether the process that began at the time `started` still runs: the kernel may have given its pid to a different
    process."""
    return (stat := stat_of(pid)) is not None and stat.started == started and stat.living


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler of its own for a signal, so that the signal does not end it."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def all_processes() -> Iterator[Stat]:
    """Yield every process; none if the system does not list them."""
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and (stat := stat_of(int(name))) is not None:
                yield stat
