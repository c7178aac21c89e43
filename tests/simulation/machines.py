"""Machines and the processes on them, as far as a supervisor sees them.

A machine has a disk, which outlives everything, and a table of processes. `tests.simulation.process_table` is the supervisor's
view of them. A started process is a `VirtualProcess`, an actor of the simulated time that reads its orders, writes its
heartbeat and obeys its lease, by the real files of `squall.worker_files`. Its other behaviour is its `Program`: that of
`tests.simulation.idle` pretends to run tasks; `tests.simulation.tuples` runs real ones.
Must not know: the store, Nimbus.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NoReturn, Protocol

from squall import worker_files
from squall.values import Incarnation
from squall.worker_files import (
    EXIT_BAD_ORDERS,
    EXIT_LEASE,
    EXIT_STOPPED,
    EXIT_SUPERSEDED,
    End,
    Orders,
    WorkerHeartbeat,
)
from tests.simulation.timeline import Actor, Timeline
from worker.process.lease import Lease
from worker.process.startup import own_place

#: Seconds between two heartbeats of a process without news: longer than the real second.
BEAT_SECS: Final = 2.5
#: Upper limit of the size of orders.
MOST_ORDERS: Final = 1024 * 1024


class Ended(BaseException):
    """A virtual process has ended itself."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


@dataclass
class Flags:
    """A program's report about itself; see `squall.worker_files.WorkerHeartbeat`."""

    asked: str
    version: int
    opened: bool = False
    ended: bool = False
    drained: bool = False
    stopped: bool = False
    crash: str | None = None
    finished: tuple[int, ...] = ()
    address: tuple[str, str] | None = None


class Program(Protocol):
    """The program of a virtual process. It raises `Ended` to end."""

    @property
    def address(self) -> tuple[str, str]:
        """Its address for peers."""

    def take_orders(self, orders: Orders) -> None:
        """These orders apply from now on."""

    def look(self) -> None:
        """It has been woken."""

    def flags(self) -> Flags:
        """Its present state."""

    def next_time(self) -> float | None:
        """When it must be woken by itself, in simulated time."""

    def die(self) -> None:
        """Its process has died."""


@dataclass
class Habits:
    """How long the processes of a run take for things, in seconds, and how they behave."""

    boot: tuple[float, float] = (0.1, 1.0)
    open: tuple[float, float] = (0.05, 1.0)
    drain: tuple[float, float] = (0.05, 3.0)
    stop: tuple[float, float] = (0.01, 1.0)
    kill: tuple[float, float] = (0.001, 0.2)
    #: The chance of a failed start: the process ends before its first heartbeat.
    stillborn: float = 0.0


@dataclass
class Machine:
    """A computer: its name, its disk, its processes by their pid."""

    name: str
    disk: Path
    processes: dict[int, VirtualProcess] = field(default_factory=dict)
    #: Whether writes to its disk fail.
    full: bool = False
    #: The fate of the supervisor at its next start of a process: it dies before, or after the process exists.
    dies_starting: str | None = None
    supervisor: Actor | None = None
    #: Called when a process has reported news, or has ended.
    news: Callable[[], None] = lambda: None

    def living(self) -> list[VirtualProcess]:
        """The existing processes."""
        return [process for process in self.processes.values() if process.alive]

    def lose_power(self) -> None:
        """All processes here have died."""
        for process in self.living():
            process.die()
        self.processes.clear()


class VirtualProcess(Actor):
    """A worker process on a machine."""

    def __init__(self, line: Timeline, pid: int, machine: Machine, directory: Path, random: Random) -> None:
        super().__init__(line, f"{machine.name}/{directory.name}#{pid}", -random.uniform(1e3, 1e6))
        self.pid = pid
        self.machine = machine
        self.directory = directory
        self.random = random
        self.status: int | None = None
        self.orders: Orders | None = None
        self.program: Program | None = None
        self.lease: Lease | None = None
        #: (topology id, worker, incarnation) and slot, for checks of ownership.
        self.identity: tuple[str, str, Incarnation] | None = None
        self.slot = -1
        self.topology: str | None = None
        self.number = 0
        self._orders_file = str(directory / worker_files.ORDERS)
        #: The content at its last look.
        self._read: bytes | None = None
        self._heartbeat_file = str(directory / worker_files.HEARTBEAT)
        self._told: Flags | None = None
        self._beats = False
        self._dying = False
        self._wakes_at: float | None = None

    # Life cycle

    def boot(self, make: Callable[[VirtualProcess, Orders], Program]) -> None:
        """Read the files, and begin."""
        try:
            orders = worker_files.read_orders(self.directory)
        except worker_files.BadFile:
            orders = None
        if orders is None or own_place(orders) is None:
            return self._exit(EXIT_BAD_ORDERS, "no orders")
        self.orders = orders
        self.lease = Lease(str(self.directory), orders.lease_secs, self._lease_is_over, self.now)

        def begin() -> None:
            self.program = make(self, orders)
            self.program.take_orders(orders)

        self.guarded(begin)
        self.beat()

    def _lease_is_over(self, seconds: float) -> NoReturn:
        raise Ended(EXIT_LEASE, f"no new lease for {seconds:.1f} s")

    def guarded(self, do: Callable[[], object]) -> None:
        """Run a part of the program; each reading of the clock may show that the lease has expired."""
        if not self.alive or self._dying:
            return
        try:
            if self.lease is not None:
                self.lease.now()
            do()
            self._tell()
        except Ended as ended:
            self._exit(ended.status, ended.reason)

    def beat(self) -> None:
        """At each interval, with or without news."""
        if not self.alive or self._dying:
            return
        self.guarded(self._look)
        self.line.after(BEAT_SECS, self, self.beat)

    def wake(self) -> None:
        """The program has work to do."""
        self._wakes_at = None
        program = self.program
        if program is not None:
            self.guarded(program.look)

    def _look(self) -> None:
        assert self.lease is not None and self.program is not None
        self.lease.renew()
        self._take_orders()
        self.program.look()
        self._beats = True

    def _take_orders(self) -> None:
        assert self.orders is not None and self.program is not None
        found = _content(self._orders_file)
        if found == self._read:
            return
        self._read = found
        try:
            orders = worker_files.read_orders(self.directory)
        except worker_files.BadFile:
            return
        if orders is None or orders.number == self.orders.number:
            return
        mine = self.orders
        if (orders.topology_id, orders.worker, orders.incarnation) != (
            mine.topology_id,
            mine.worker,
            mine.incarnation,
        ):
            raise Ended(EXIT_SUPERSEDED, "the orders are for another process")
        if own_place(orders) is None and orders.asked != "stop":
            raise Ended(EXIT_SUPERSEDED, "no place")
        self.orders = orders
        self.program.take_orders(orders)

    def _tell(self) -> None:
        """Write the heartbeat if it is due, and make sure that the program is woken in time."""
        program = self.program
        if program is None or self.orders is None:
            return
        flags = program.flags()
        news = flags != self._told
        if news or self._beats:
            self._told, self._beats = flags, False
            self._write_heartbeat(flags)
        if news:
            self.machine.news()
        wakes_at = program.next_time()
        if wakes_at is not None and (self._wakes_at is None or wakes_at < self._wakes_at):
            self._wakes_at = wakes_at
            self.line.at(wakes_at, self, self.wake)

    def _write_heartbeat(self, flags: Flags) -> None:
        assert self.orders is not None
        if self.machine.full:
            return
        self.number += 1
        heartbeat = WorkerHeartbeat(
            pid=self.pid,
            started=self.pid,
            incarnation=self.orders.incarnation,
            number=self.number,
            orders=self.orders.number,
            asked=flags.asked,
            version=flags.version,
            opened=flags.opened,
            ended=flags.ended,
            drained=flags.drained,
            stopped=flags.stopped,
            crash=flags.crash,
            finished=flags.finished,
            address=flags.address,
        )
        with suppress(OSError):
            worker_files.write(self.directory, worker_files.HEARTBEAT, heartbeat)
            # Many heartbeats are written within one tick of the file system's clock here.
            os.utime(self._heartbeat_file, ns=(self.number, self.number))

    def _exit(self, status: int, reason: str) -> None:
        if not self.alive:
            return
        self._dying = True
        with suppress(OSError):
            if self.orders is not None:
                if status == EXIT_STOPPED and self.program is not None:
                    flags = self.program.flags()
                    flags.stopped = True
                    self._write_heartbeat(flags)
                end = End(self.pid, self.orders.incarnation, status, reason)
                worker_files.write(self.directory, worker_files.END, end)
        self.status = status << 8
        self.die()

    def die(self) -> None:
        """End."""
        if self.alive and self.program is not None:
            self.program.die()
        super().die()
        self.machine.news()

    # Operations of its supervisor

    def signalled(self) -> None:
        """SIGUSR1."""
        program = self.program
        if program is not None:
            self.guarded(self._take_orders)

    def kill(self, seconds: float) -> None:
        """SIGKILL; a process in the kernel takes a while to disappear, and does nothing any more meanwhile."""
        if not self.alive or self.status is not None:
            return
        self.status = signal.SIGKILL
        self._dying = True
        self.thaws_at = 0.0
        self.line.after(seconds, self, self.die)


def _content(path: str) -> bytes | None:
    """The content of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, MOST_ORDERS)
    finally:
        os.close(descriptor)
