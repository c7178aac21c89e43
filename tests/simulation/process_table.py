"""The supervisors' view of processes in simulated time, in place of `supervisor.processes.WorkerProcess`.

Must not know: what a process does, the store, Nimbus.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn
from unittest import mock

from squall.worker_files import Orders
from supervisor.worker_processes import WorkerProcesses
from tests.simulation.machines import Habits, Machine, Program, VirtualProcess
from tests.simulation.timeline import Killed, Timeline

#: Seconds between two looks of a Nimbus at its secrets without a notification; for a real one it is one second.
LOOK_SECS: Final = 3.0


class Processes:
    """The processes of all machines of a run, and the operations of supervisors on them."""

    def __init__(
        self,
        line: Timeline,
        random: Random,
        habits: Habits,
        make: Callable[[VirtualProcess, Orders], Program],
    ) -> None:
        self.line = line
        self.random = random
        self.habits = habits
        self.make = make
        self.machines: list[Machine] = []
        self.pids = 1000
        #: Called for each started process.
        self.on_start: Callable[[VirtualProcess], None] = lambda process: None

    def machine_of(self, directory: Path) -> Machine:
        """The machine with that directory on its disk."""
        return next(machine for machine in self.machines if machine.disk in directory.parents)

    def all(self) -> Iterator[VirtualProcess]:
        """Every existing process."""
        for machine in self.machines:
            yield from machine.living()

    # As `supervisor.processes.WorkerProcess`

    def start(
        self,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        work: Path | None = None,
        umask: int = -1,
    ) -> ProcessHandle:
        """Start a process."""
        machine = self.machine_of(directory)
        if machine.full:
            raise OSError(28, "No space left on device")
        dies, machine.dies_starting = machine.dies_starting, None
        if dies == "before":
            self._die(machine)
        self.pids += 1
        process = VirtualProcess(self.line, self.pids, machine, directory, Random(self.random.random()))
        machine.processes[process.pid] = process
        if self.random.random() < self.habits.stillborn:
            self.line.after(0.05, process, process.die)
        else:
            boot = self.random.uniform(*self.habits.boot)
            self.line.after(boot, process, lambda: process.boot(self.make))
        self.on_start(process)
        if dies == "after":
            self._die(machine)
        return ProcessHandle(self, process)

    def _die(self, machine: Machine) -> NoReturn:
        """The supervisor dies in the middle of starting a process."""
        assert machine.supervisor is not None
        machine.supervisor.die()
        raise Killed(machine.supervisor.name)

    @property
    def check_starts_of(self) -> Callable[[WorkerProcesses], None]:
        """In place of `WorkerProcesses.check_starts`."""

        def check(host: WorkerProcesses) -> None:
            if self.machine_of(host.directories.root).full:
                raise OSError(28, "No space left on device")

        return check

    def adopt(self, pid: int, started: int) -> ProcessHandle | None:
        """A process that was started by another supervisor."""
        for machine in self.machines:
            process = machine.processes.get(pid)
            if process is not None and process.alive and started == pid:
                return ProcessHandle(self, process)
        return None

    def find(self, directory: Path) -> ProcessHandle | None:
        """A process that was started in a directory by another supervisor."""
        for process in self.machine_of(directory).living():
            if process.directory == directory:
                return ProcessHandle(self, process)
        return None

    def __call__(self, pid: int, started: int, child: bool) -> Any:
        """An ended process."""
        return GoneHandle(pid)


class ProcessHandle:
    """A supervisor's handle of a process: `supervisor.processes.WorkerProcess`."""

    def __init__(self, processes: Processes, process: VirtualProcess) -> None:
        self.processes = processes
        self.process = process
        self.pid = self.started = process.pid

    @property
    def status(self) -> int | None:
        """See `WorkerProcess`."""
        return None if self.process.alive else (self.process.status or signal.SIGKILL)

    def ended(self) -> bool:
        """See `WorkerProcess`."""
        return not self.process.alive

    gone = ended

    def signal(self, number: int) -> bool:
        """See `WorkerProcess`."""
        process = self.process
        if not process.alive:
            return False
        process.line.after(0.001, process, process.signalled)
        return True

    def kill(self) -> None:
        """See `WorkerProcess`."""
        self.process.kill(self.processes.random.uniform(*self.processes.habits.kill))


class GoneHandle:
    """A process that was gone before its supervisor looked."""

    def __init__(self, pid: int) -> None:
        self.pid = self.started = pid
        self.status: int | None = None

    def ended(self) -> bool:
        """See `WorkerProcess`."""
        return True

    gone = ended

    def signal(self, number: int) -> bool:
        """See `WorkerProcess`."""
        return False

    def kill(self) -> None:
        """See `WorkerProcess`."""


@contextmanager
def in_place_of_real_ones(processes: Processes) -> Iterator[None]:
    """Supervisors start virtual processes in this block."""
    random = processes.random
    with (
        mock.patch("supervisor.worker_processes.WorkerProcess", processes),
        mock.patch.object(WorkerProcesses, "check_starts", processes.check_starts_of),
        mock.patch("supervisor.worker_processes.kill_left_over", lambda session, directory: None),
        mock.patch("supervisor.worker_processes._KILL_PATIENCE", 0.0),
        mock.patch("supervisor.agent.secrets.randbits", random.getrandbits),
        mock.patch("supervisor.environments.constraints", tuple),  # no topology brings requirements
        # A session caches unreported values for CACHE_SECS, so looks in between find the same as before.
        mock.patch("nimbus.security.secrets.LOOK_SECS", LOOK_SECS),
    ):
        yield
