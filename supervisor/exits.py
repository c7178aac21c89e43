"""Why a worker's process ended, as a typed cause.

Distinguishes: an ordered stop (status 0, with `end.json`); Squall's own statuses (explained by `end.json`); `sys.exit` and
`os._exit` in user code; signals with and without a core dump; the kernel's OOM killer; a kill by the supervisor itself; and a
crash of the interpreter, which leaves its last output in `output.log`.
Must not know: slots, restarts, the wording of messages.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from squall import worker_files
from squall.guarded_files import size_of
from squall.reports.events import Cause
from squall.worker_files import End

_FATAL: Final = "Fatal Python error"
_TAIL_LINES: Final = 8
_LINE_LENGTH: Final = 200
#: A rise of the kernel's counter may explain a death for at least this many seconds, and for at most twice as many (see
#: `KernelKills`).
_REMEMBERED: Final = 2.0


class Exit(msgspec.Struct, frozen=True):
    """All that is known about the end of a process."""

    #: The process's wait status; None: this supervisor is not its parent.
    status: int | None
    #: Why the supervisor killed the process, if it did.
    killed_because: str | None = None
    #: Whether the kernel's OOM killer killed a process at the time of this end; None: unknown.
    by_kernel: bool | None = None
    #: The content of `end.json`, if this process wrote the file.
    end: End | None = None
    #: The end of the process's stdout and stderr.
    tail: str = ""

    @property
    def innocent(self) -> bool:
        """Whether the process ended as ordered, or for a reason outside itself, so that the worker may be restarted at once."""
        innocent = worker_files.EXIT_STOPPED, worker_files.EXIT_LEASE
        return self.end is not None and self.end.status in innocent


def cause(exit: Exit) -> Cause:
    """Return why the process ended, with lines of its output if these may explain the end."""
    status, output = exit.status, _last_words(exit)
    if exit.killed_because is not None and (status is None or _signal(status) == signal.SIGKILL):
        return Cause("killed", exit.killed_because)
    if exit.end is not None:  # even if a signal arrived while the process was ending
        return Cause("reported", exit.end.reason, exit.end.status)
    if status is None:
        return Cause("unknown")
    number = _signal(status)
    if number is None:
        return Cause("status", status=os.waitstatus_to_exitcode(status), output=output)
    return Cause("signal", signal=number, core=os.WCOREDUMP(status), oom=exit.by_kernel, output=output)


def _signal(status: int) -> int | None:
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _last_words(exit: Exit) -> tuple[str, ...]:
    """Return the process's last output lines if these may explain its end. They do not if the process was stopped or killed, or
    wrote a reason itself."""
    killed = exit.status is not None and _signal(exit.status) in (signal.SIGKILL, signal.SIGTERM)
    at_fault = exit.status is not None and exit.status != 0 and exit.killed_because is None and not killed
    if exit.end is not None or not at_fault:
        return ()
    lines = [line[:_LINE_LENGTH] for line in exit.tail.splitlines() if line.strip()]
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)]
    return tuple(_of_the_fault(lines[fatal[-1] :]) if fatal else lines[-_TAIL_LINES:])


def _of_the_fault(lines: list[str]) -> list[str]:
    """Return faulthandler's headline and the thread at fault, without the other threads, which faulthandler lists first."""
    at_fault = [number for number, line in enumerate(lines) if line.startswith("Current thread")]
    return [lines[0], *lines[at_fault[0] :]][:_TAIL_LINES] if at_fault else lines[:_TAIL_LINES]


def output_size(directory: Path) -> int:
    """Return the size of the output file in bytes; 0 without an output file."""
    return size_of(directory / worker_files.OUTPUT)


def read_end(directory: Path, pid: int) -> End | None:
    """Return the process `pid`'s own record of its end, or None if it wrote no readable record."""
    try:
        end = worker_files.read_end(directory)
    except worker_files.BadFile:
        return None
    return end if end is not None and end.pid == pid else None


def kernel_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many processes of this process's control group (or of this host, if it has no group) the OOM killer has
    killed; None: unknown."""
    for path in _counters(proc, cgroups):
        try:
            rows = dict(line.split()[:2] for line in path.read_text().splitlines() if line.strip())
            return int(rows["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return None


def _counters(proc: Path, cgroups: Path) -> list[Path]:
    """Return the kernel's counter files. The narrowest control group comes first, since wider ones also count other
    processes."""
    paths = []
    try:
        rows = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        rows = []
    for _, controllers, group in (row for row in rows if len(row) == 3):
        inside = group.lstrip("/")
        if not controllers:  # control groups, version 2
            paths += [cgroups / inside / "memory.events", cgroups / "unified" / inside / "memory.events"]
        elif "memory" in controllers.split(","):
            paths += [cgroups / "memory" / inside / "memory.oom_control"]
            paths += [cgroups / "memory" / "memory.oom_control"]  # a container sees its own group as the root
    return [*paths, proc / "vmstat"]


class KernelKills:
    """Decides whether a SIGKILL came from the OOM killer: it did if the kernel's counter rose a moment ago.

    The counter rises shortly before the supervisor notices the death, and also counts deaths of other processes. So a rise by
    one is remembered for two to four seconds, and explains one death.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._explained = self._before = read()
        self._moment: float | None = None

    def forget_old(self, now: float) -> None:
        """Forget rises that explained no death. Call about once a second."""
        if self._moment is not None and now < self._moment + _REMEMBERED:
            return
        self._moment = now
        self._explained, self._before = self._before, self._read()

    def explain(self, exit: Exit) -> Exit:
        """Return the exit with `by_kernel` filled in, if that is known."""
        if exit.status is None or _signal(exit.status) != signal.SIGKILL or exit.killed_because:
            return exit
        count = self._read()
        if count is None or self._explained is None:
            return exit
        by_kernel = count > self._explained
        self._explained += by_kernel
        self._before = max(self._before or 0, self._explained)
        return msgspec.structs.replace(exit, by_kernel=by_kernel)
