"""Why a worker's process ended, in words.

Told apart: an order (status 0, with `end.json`), our own statuses, which `end.json` explains, `sys.exit` and `os._exit` of
user code, signals by name, with a core or without, a kill by the kernel for want of memory, a kill by the supervisor
itself, and a dying interpreter, whose last words stand in `output.log`.
Must not know: workers' places, when one is started again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from squall import worker_files
from squall.worker_files import End

_FATAL: Final = "Fatal Python error"
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 8
_LINE_LENGTH: Final = 200
#: Seconds.
_REMEMBERED: Final = 2.0

_OUR_STATUSES: Final = {
    worker_files.EXIT_INTERNAL: "an error in Squall itself",
    worker_files.EXIT_LEASE: "its supervisor was away for longer than the lease",
    worker_files.EXIT_HUNG: "a call of user code hung",
    worker_files.EXIT_SUPERSEDED: "another worker has its place",
    worker_files.EXIT_BAD_ORDERS: "it could not read what it was to do",
    worker_files.EXIT_MEMORY: "it ran out of memory",
    worker_files.EXIT_FILES: "it could open no file any more",
    worker_files.EXIT_UNOPENED: "a component could not be opened or prepared",
}

_SIGNALS: Final = {
    signal.SIGSEGV: "a segmentation fault: C code touched memory that is not its own",
    signal.SIGBUS: "a bus error: memory or a mapped file that is not there",
    signal.SIGFPE: "an arithmetic error in C code",
    signal.SIGILL: "an illegal instruction: C code built for another processor, or damaged",
    signal.SIGABRT: "C code or the interpreter called abort()",
    signal.SIGXCPU: "its limit of processor time",
    signal.SIGXFSZ: "its limit of file size",
    signal.SIGSYS: "a system call that is forbidden here",
}


@dataclass(frozen=True)
class Exit:
    """All that is known of the end of a process."""

    status: int | None
    """Its wait status; None: another process waited for it, or nobody."""
    killed_because: str | None = None
    """Why the supervisor killed it, if it did."""
    by_kernel: bool | None = None
    """Whether the kernel killed a process for want of memory at that time; None: it does not say."""
    end: End | None = None
    """What the worker itself wrote, if it is of this process."""
    tail: str = ""
    """The end of what was written to its stdout and stderr."""

    @property
    def innocent(self) -> bool:
        """Whether it ended in good order, or for a reason outside of it: starting it again at once does no harm."""
        return self.end is not None and self.end.status in (
            worker_files.EXIT_STOPPED,
            worker_files.EXIT_LEASE,
        )


def cause(exit: Exit) -> str:
    """What happened to "the worker ...": `was killed by SIGKILL (OOM killer: no)`; lines of its output may follow."""
    return "\n".join([_what(exit), *_last_words(exit)])


def _what(exit: Exit) -> str:
    status = exit.status
    if exit.killed_because is not None and (status is None or _signal(status) == signal.SIGKILL):
        return f"was killed by its supervisor: {exit.killed_because}"
    if exit.end is not None:  # also where a signal came while it was ending
        return f"ended by itself with status {exit.end.status}: {exit.end.reason}"
    number = None if status is None else _signal(status)
    if status is not None and number is not None:
        return _by_signal(number, os.WCOREDUMP(status), exit.by_kernel)
    if status is None:
        return "is gone, and nobody can tell its exit status (it was not this supervisor that started it)"
    code = os.waitstatus_to_exitcode(status)
    known = _OUR_STATUSES.get(code)
    if known is not None:
        return f"ended with status {code} ({known}, if it is Squall's) and left no word of it"
    return f"ended with status {code} without a word: sys.exit() or os._exit() in user code, or an error at its start"


def _by_signal(number: int, core: bool, by_kernel: bool | None) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    dumped = ", core dumped" if core else ""
    if number == signal.SIGKILL:
        killer = {True: "yes", False: "no", None: "unknown"}[by_kernel]
        return f"was killed by SIGKILL (OOM killer: {killer})"
    if number in _SIGNALS:
        return f"died of {name} ({_SIGNALS[signal.Signals(number)]}{dumped})"
    return f"was killed by {name}{dumped}"


def _signal(status: int) -> int | None:
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _last_words(exit: Exit) -> list[str]:
    """The end of its output, where it may explain the end: not after an order, a kill, or a reason of its own."""
    killed = exit.status is not None and _signal(exit.status) in (signal.SIGKILL, signal.SIGTERM)
    at_fault = exit.status is not None and exit.status != 0 and exit.killed_because is None and not killed
    if exit.end is not None or not at_fault:
        return []
    lines = [line[:_LINE_LENGTH] for line in exit.tail.splitlines() if line.strip()]
    fatal = [number for number, line in enumerate(lines) if line.startswith(_FATAL)]
    shown = _of_the_fault(lines[fatal[-1] :]) if fatal else lines[-_TAIL_LINES:]
    return [f"  | {line}" for line in shown]


def _of_the_fault(lines: list[str]) -> list[str]:
    """What faulthandler says, and the thread that was at fault; other threads come before it."""
    at_fault = [number for number, line in enumerate(lines) if line.startswith("Current thread")]
    return [lines[0], *lines[at_fault[0] :]][:_TAIL_LINES] if at_fault else lines[:_TAIL_LINES]


def output_size(directory: Path) -> int:
    """How much was written to the output file so far."""
    try:
        return (directory / worker_files.OUTPUT).stat().st_size
    except OSError:
        return 0


def output_tail(directory: Path, since: int) -> str:
    """The end of what was written to the output file after `since` bytes of it."""
    try:
        with open(directory / worker_files.OUTPUT, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A file that is shorter than it was has been cut: all of it is new.
            begin = max(0 if size < since else since, size - _TAIL_BYTES)
            file.seek(begin)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def read_end(directory: Path, pid: int) -> End | None:
    """What a process wrote about its end; None: nothing that can be read, or another process did."""
    try:
        end = worker_files.read_end(directory)
    except worker_files.BadFile:
        return None
    return end if end is not None and end.pid == pid else None


def kernel_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How many processes of our control group (or, without one, of this machine) the kernel has killed for want of memory."""
    for path in _counters(proc, cgroups):
        try:
            rows = dict(line.split()[:2] for line in path.read_text().splitlines() if line.strip())
            return int(rows["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return None


def _counters(proc: Path, cgroups: Path) -> list[Path]:
    """Where the kernel counts such kills, the narrowest group first: its own count is right, the machine's may be of others."""
    found = []
    try:
        rows = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        rows = []
    for _, controllers, group in (row for row in rows if len(row) == 3):
        inside = group.lstrip("/")
        if not controllers:  # version 2
            found += [cgroups / inside / "memory.events", cgroups / "unified" / inside / "memory.events"]
        elif "memory" in controllers.split(","):
            found += [cgroups / "memory" / inside / "memory.oom_control"]
            found += [cgroups / "memory" / "memory.oom_control"]  # a container sees its own group as the root
    return [*found, proc / "vmstat"]


class KernelKills:
    """Tells whether a death by SIGKILL may be the kernel's: whether its counter rose a moment ago, for nobody else.

    Deaths are noticed a little after the counter has risen, and other processes die of it too: so a rise is remembered for
    two to four seconds, and each one explains one death.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._explained = self._before = read()
        self._moment: float | None = None

    def look(self, now: float) -> None:
        """Forget rises that nobody has died of, from time to time."""
        if self._moment is not None and now < self._moment + _REMEMBERED:
            return
        self._moment = now
        self._explained, self._before = self._before, self._read()

    def told_apart(self, exit: Callable[[bool | None], Exit]) -> Exit:
        """The exit, told whether the kernel killed it."""
        found = exit(None)
        if found.status is None or _signal(found.status) != signal.SIGKILL or found.killed_because:
            return found
        count = self._read()
        if count is None or self._explained is None:
            return found
        by_kernel = count > self._explained
        self._explained += by_kernel
        self._before = max(self._before or 0, self._explained)
        return replace(found, by_kernel=by_kernel)
