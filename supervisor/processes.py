"""Worker processes: started in their own session, found again, signalled, and ended with all their children.

A process is identified by its pid and its start time (field 22 of `/proc/<pid>/stat`, in clock ticks since boot): the kernel
reuses a pid, but never with the same start time. A process whose start time differs is never signalled. A dead worker stays a
zombie until all processes of its session are killed. Until then the kernel cannot reuse the worker's pid, which is also the
number of the session. A worker's children belong to its session and end with it; a child that creates its own session is left
alone.

Linux only: this module reads `/proc`. Must not know: topologies, the orders of workers, why a process ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from squall.daemon.process_stat import Stat, all_processes, runs, stat_of
from squall.guarded_files import open_to_append
from squall.packages.distributions import HOME
from squall.worker_files import LETTERS, OUTPUT, PORTS

#: Environment variable of a worker and all its children; the value is the worker's directory.
MARK: Final = "WORKER_OF_SQUALL"
#: How many times to read the environment of a process if the environment is empty. While a process starts another program, the
#: process has no environment; on a quiet machine this lasts less than half a millisecond.
_EXEC_READS: Final = 10
#: Seconds within which a process that does nothing ends.
_CHECK_PATIENCE: Final = 5.0
#: Seconds between two of these reads.
_EXEC_PAUSE: Final = 0.002


def session_members(session: int) -> list[Stat]:
    """Return the processes of a session that still run."""
    return [stat for stat in all_processes() if stat.session == session and stat.living]


def worker_command(directory: Path) -> list[str]:
    """Return the command that runs a worker in a directory."""
    if not sys.executable:
        raise RuntimeError("this Python does not know its own executable, so it cannot start workers with it")
    # Without -P the current folder comes first on the module path, and it may contain a `worker.py` or a `json.py`.
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe_path, "-m", "worker", str(directory)]


def own_folders() -> list[str]:
    """Return the folders of Squall and its dependencies, without the current folder and the script's folder."""
    by_chance = {os.path.abspath(""), os.path.dirname(os.path.abspath(sys.argv[0]))} - {HOME}
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    chosen = {os.path.abspath(folder) for folder in python_path if folder}
    found = [os.path.abspath(folder) for folder in sys.path]
    kept = [folder for folder in found if folder not in by_chance or folder in chosen]
    return list(dict.fromkeys(kept if HOME in kept else [HOME, *kept]))


def worker_environment(
    directory: Path,
    python_path: Sequence[str],
    inherited: Mapping[str, str],
    work: Path | None = None,
    ports: str | None = None,
    letters: Path | None = None,
) -> dict[str, str]:
    """Return the environment variables of a worker: the supervisor's, plus the module path, the mark, the worker's own working
    directory (if the worker has one), the ports on which the worker may listen (None: all), and the folder of dead letters."""
    folders = [os.path.abspath(folder) for folder in python_path if os.pathsep not in folder]
    own = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)), MARK: str(directory)}
    if ports is not None:
        own[PORTS] = ports
    if letters is not None:
        own[LETTERS] = str(letters)
    if work is not None:
        own["PWD"] = str(work)
    return {**{name: value for name, value in inherited.items() if name not in (PORTS, LETTERS)}, **own}


class WorkerProcess:
    """A process that leads its own session. `status`: its wait status; None: the process still runs, or its status is
    unknown."""

    def __init__(self, pid: int, started: int, child: bool) -> None:
        self.pid = pid
        self.started = started
        self.status: int | None = None
        self._child = child  # a child of this process, not waited for yet
        self._gone = False

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        work: Path | None = None,
        umask: int = -1,
    ) -> WorkerProcess:
        """Start a program. Its stdout and stderr are appended to the directory's output file. `work`: the program's working
        directory; None: the supervisor's. `umask`: the program's; -1: the supervisor's. Raises `OSError` or `DamagedFile`."""
        output = open_to_append(directory / OUTPUT, 0o600)
        try:
            popen = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=work,
                start_new_session=True,
                umask=umask,
            )
        finally:
            os.close(output)
        try:
            stat = stat_of(popen.pid)
        except BaseException:  # without its start time, the process cannot be identified
            os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
            raise
        # From here on this class waits for the process: Popen would take the wait status, and end the zombie.
        popen.returncode = 0
        return cls(popen.pid, -1 if stat is None else stat.started, child=True)

    @classmethod
    def adopt(cls, pid: int, started: int) -> WorkerProcess | None:
        """Return the living process that an earlier supervisor started; None: the process is gone, or its pid was reused."""
        return cls(pid, started, child=False) if runs(pid, started) else None

    @classmethod
    def find(cls, directory: Path) -> WorkerProcess | None:
        """Find the living process of a directory by its mark; None: there is none."""
        for stat in marked(all_processes(), MARK, directory):
            if stat.pid == stat.session and stat.living:
                return cls(stat.pid, stat.started, child=False)
        return None

    def ended(self) -> bool:
        """Return whether the process itself has ended; other processes of its session may still run."""
        if not self._child:
            return not runs(self.pid, self.started)
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code has waited for the process
            self._child = False
            return self.ended()

    def gone(self) -> bool:
        """Return whether the process and its whole session are gone. If the process itself has ended, first kill the rest of
        its session."""
        if self._gone:
            return True
        if not self.ended():
            return False
        self._kill_others()
        if self._child:
            self._child = False
            with contextlib.suppress(ChildProcessError):
                self.status = os.waitpid(self.pid, 0)[1]
        self._gone = not self._others()
        return self._gone

    def signal(self, number: int) -> bool:
        """Signal the process; return False if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if runs(self.pid, self.started):
                os.kill(self.pid, number)
                return True
        return False

    def kill(self) -> None:
        """Kill the process and its whole session."""
        stat = stat_of(self.pid)
        if stat is not None and stat.started == self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._kill_others()

    def _others(self) -> list[Stat]:
        """Return the other processes of the session that still run.

        While a session has members, the kernel gives the session's number to no new process. So if another process has this
        pid, the session is empty.
        """
        leader = stat_of(self.pid)
        if leader is not None and leader.started != self.started:
            return []
        return [stat for stat in session_members(self.pid) if stat.pid != self.pid]

    def _kill_others(self) -> None:
        for stat in self._others():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stat.pid, signal.SIGKILL)


def check_start() -> None:
    """Start a process that does nothing, and wait for its end. Raises `OSError` if this host cannot start one."""
    command = [sys.executable, "-I", "-S", "-c", ""]
    streams = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=streams, stdout=streams, stderr=streams) as process:
        try:
            status = process.wait(_CHECK_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise OSError(errno.ETIMEDOUT, f"a process does not end within {_CHECK_PATIENCE:g} s") from None
    if status:
        raise OSError(errno.EIO, f"a process that does nothing ends with status {status}")


def kill_left_over(session: int, directory: Path) -> None:
    """Kill the processes with this directory's mark in a session whose leader is gone and was not a child of this
    supervisor."""
    leader = stat_of(session)
    if leader is None or not leader.living:  # a living process with this pid is left alone
        kill_marked(session_members(session), MARK, directory)


def kill_marked(processes: Iterable[Stat], name: str, directory: Path) -> bool:
    """Kill the processes whose environment has the variable `name` with this directory; return whether there were any."""
    found = list(marked(processes, name, directory))
    for stat in found:
        with contextlib.suppress(OSError):  # the process has ended by itself
            os.kill(stat.pid, signal.SIGKILL)
    return bool(found)


def marked(processes: Iterable[Stat], name: str, directory: Path) -> Iterator[Stat]:
    """Yield the processes whose environment has the variable `name` with this directory."""
    mark = f"{name}={directory}".encode()
    for stat in processes:
        with contextlib.suppress(OSError):
            if mark in _environment(stat).split(b"\0"):
                yield stat


def _environment(stat: Stat) -> bytes:
    """Return the environment of a process. While a process starts another program (`exec`), the kernel shows it without an
    environment, so an empty environment is read again. Zombies and the kernel's own threads (session 0) never have an
    environment."""
    path = Path(f"/proc/{stat.pid}/environ")
    for _ in range(_EXEC_READS):
        if (found := path.read_bytes()) or not stat.living or stat.session == 0:
            return found
        time.sleep(_EXEC_PAUSE)
    return b""
