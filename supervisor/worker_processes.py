"""The process host of a real supervisor: worker processes, and the directories in which workers and supervisor exchange files.

After a restart, a supervisor finds the processes of its predecessor by `process.json`, or by the mark in their environment.
Must not know: the plan, the content of orders, Nimbus.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import environ
from pathlib import Path
from typing import Final

import msgspec

from squall import spare_files, worker_files
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry
from squall.cluster.store import StoreError
from squall.daemon.process_stat import catches
from squall.security.sealing import KeyPair
from squall.transport.carriers import same_host
from squall.values import Incarnation, Keys
from squall.worker_files import BadFile, Orders, WorkerHeartbeat
from supervisor import directories, exits, processes
from supervisor.artifacts import Artifacts, Provision, State
from supervisor.deaths import hand_on_suspects, record_death
from supervisor.directories import Directories, Started
from supervisor.exits import Exit
from supervisor.log_files import tail
from supervisor.plan import Key
from supervisor.process_host import Recovered
from supervisor.processes import WorkerProcess, kill_left_over
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds to wait for a killed process before its directory is used again.
_KILL_PATIENCE: Final = 2.0
#: How many bytes of a process's last output may explain its end.
_TAIL_BYTES: Final = 4096
#: How many bytes of its stacks are read.
_STACKS_BYTES: Final = 64 * 1024


class WorkerCommand(msgspec.Struct, frozen=True):
    """How worker processes are started."""

    #: Where workers find modules; None: on the supervisor's `sys.path` at the time of a worker's start.
    python_path: Sequence[str] | None = None
    #: The ports that workers may listen on, such as "6700-6799"; None: all.
    ports: str | None = None
    #: Returns the command for a worker's directory: a Python and its arguments.
    command: Callable[[Path], Sequence[str]] = processes.worker_command
    #: The umask of workers; -1: that of this process.
    umask: int = -1


class WorkerProcesses:
    """Implements `supervisor.process_host.ProcessHost` over one state directory."""

    def __init__(
        self,
        state: Path,
        registry: Registry,
        id: str,
        *,
        key_pair: KeyPair | None = None,
        start: WorkerCommand | None = None,
        kernel_kills: Callable[[], int | None] = exits.kernel_kills,
        artifacts: Artifacts | None = None,
        directories: Directories | None = None,
    ) -> None:
        """`state`: the supervisor's own directory; `directories`: its layout, needed if workers get their own working
        directories.
        `key_pair`: decrypts the link keys that Nimbus sealed for the supervisor `id`; None: links need no keys."""
        self.directories = directories or Directories(state)
        self.start = start or WorkerCommand()
        self.kernel_kills = exits.KernelKills(kernel_kills)
        self._registry, self._id, self._key_pair = registry, id, key_pair
        self._artifacts = artifacts or Artifacts(state, registry.store)

    def mark(self) -> str:
        """See `ProcessHost`."""
        return self.directories.mark()

    def container(self, key: Key) -> WorkerContainer:
        """See `ProcessHost`."""
        return WorkerContainer(self, key, self.directories.worker(*key))

    def clear(self, key: Key) -> None:
        """See `ProcessHost`."""
        self.directories.clear_worker(*key)

    def provision(self, record: TopologyRecord, now: float, since: float = 0.0) -> State:
        """See `ProcessHost`."""
        return self._artifacts.state(record, now, since)

    def retain(self, used: Mapping[str, TopologyRecord], hosted: Iterable[str]) -> None:
        """See `ProcessHost`."""
        ids = set(hosted)
        self.directories.remove_topologies({*used, *ids})
        self._artifacts.keep(used.values(), ids)

    def check_starts(self) -> None:
        """See `ProcessHost`."""
        self.directories.check_writable()
        processes.check_start()

    def tick(self, now: float) -> None:
        """See `ProcessHost`."""
        self.kernel_kills.forget_old(now)
        self.directories.tick(now)

    def sweep(self) -> None:
        """See `ProcessHost`."""
        same_host.sweep()

    def keys(self, topology_id: str, directory: Path) -> Keys | None:
        """Return the link keys of a topology; None in a cluster without keys. `directory`: the worker's; while the store is
        away, the keys of an earlier process in that directory are used."""
        if self._key_pair is None:
            return None
        try:
            sealed = self._registry.sealed_keys(topology_id, self._id)
        except StoreError:
            before = worker_files.read_keys(directory)  # a topology's keys stay the same
            if before is None:
                raise
            return before
        if sealed is None:
            raise SquallError("Nimbus has not sealed the topology's link keys for this supervisor yet")
        try:
            return Keys(**self._key_pair.open_texts(sealed, topology_id))
        except TypeError:
            raise SquallError("the text that Nimbus sealed for this supervisor contains no keys") from None

    def recover(self) -> Iterator[Recovered]:
        """See `ProcessHost`."""
        spare_files.sweep_spares()
        for directory in self.directories.workers():
            found = self._recover(directory)
            if found is None:
                continue
            if self.directories.worker(found.orders.topology_id, found.orders.worker) == directory:
                yield found
            else:  # written by user code
                _log.warning("%s has the orders of a different worker; ending its worker process", directory)
                _end_unknown(directory, directories.read_started(directory))

    def _recover(self, directory: Path) -> Recovered | None:
        started = directories.read_started(directory)
        try:
            orders = worker_files.read_orders(directory)
        except BadFile as error:
            _log.warning("%s; ending the worker process of this directory", error)
            orders = None
        if orders is None:
            _end_unknown(directory, started)
            return None
        container = WorkerContainer(self, (orders.topology_id, orders.worker), directory)
        slot = _slot_of(orders) if started is None else started.slot
        life = "none" if started is None else container.recover(started, orders.incarnation, slot)
        return Recovered(container, orders, slot, life, _lease_in(directory))


class WorkerContainer:
    """Implements `supervisor.process_host.Container`: a process and its worker directory."""

    def __init__(self, host: WorkerProcesses, key: Key, directory: Path) -> None:
        self.directory = directory
        self._host = host
        self._key = key
        self._process: WorkerProcess | None = None
        # Inode and modification time of the last heartbeat file that was read.
        self._read: tuple[int, int] | None = None
        self._output_begin = self._shown_begin = 0

    @property
    def pid(self) -> int | None:
        """See `Container`."""
        return None if self._process is None else self._process.pid

    # Life of the process

    def prepare(self, lease: int) -> None:
        """See `Container`."""
        self._host.directories.make_worker(*self._key)
        keys = self._host.keys(self._key[0], self.directory)
        if keys is not None:
            worker_files.write(self.directory, worker_files.KEYS, keys, 0o600)
        self.write_lease(lease)
        try:
            hand_on_suspects(self._host.directories.topology(self._key[0]), self.directory, time.time())
        except OSError as error:  # a tuple that ends its worker does so once more
            _log.warning("%s: what ended earlier processes cannot be handed on: %s", self.directory, error)

    def launch(self, provision: Provision, incarnation: Incarnation, slot: int) -> None:
        """See `Container`."""
        self._read = None
        start = self._host.start
        # An environment's Python already finds Squall's modules, after the environment's packages. With PYTHONPATH, Squall's
        # modules would come first.
        python_path = sys.path if start.python_path is None else start.python_path
        folders = (*provision.folders, *(python_path if provision.python is None else ()))
        command = list(start.command(self.directory))
        if provision.python is not None:
            command[0] = provision.python
        work = self._host.directories.work(self.directory)
        letters = self._host.directories.letters
        environment = processes.worker_environment(
            self.directory, folders, environ, work, start.ports, letters
        )
        self._output_begin = exits.output_size(self.directory)
        # Record the start beforehand: if this supervisor dies in between, the next one looks for the process.
        directories.write_started(self.directory, Started(0, 0, incarnation, slot))
        self._process = WorkerProcess.start(command, self.directory, environment, work, start.umask)
        self._write_started(self._process, incarnation, slot)

    def _write_started(self, process: WorkerProcess, incarnation: Incarnation, slot: int) -> None:
        """Record which process runs, for the next supervisor."""
        started = Started(process.pid, process.started, incarnation, slot)
        try:
            directories.write_started(self.directory, started)
        except OSError as error:  # the process continues; the next supervisor finds it by its mark
            _log.warning("%s: its process cannot be recorded: %s", self.directory, error)

    def recover(self, started: Started, incarnation: Incarnation, slot: int) -> str:
        """Find the process that an earlier supervisor started here; return `Recovered.life`."""
        process = self._process = _process_of(self.directory, started)
        if process is not None:
            # Found by its mark: record it, so that its end is reported even if this supervisor dies first.
            if not started.pid:
                self._write_started(process, incarnation, slot)
            return "found"
        if not started.pid:
            return "none"
        kill_left_over(started.pid, self.directory)
        self._process = WorkerProcess(started.pid, started.started, child=False)
        return "dead"

    def reset(self) -> None:
        """See `Container`."""
        self._process = self._read = None

    def wake(self) -> None:
        """See `Container`."""
        if self._process is not None:
            self._process.signal(signal.SIGUSR1)

    def show_stacks(self) -> None:
        """See `Container`."""
        self._shown_begin = exits.output_size(self.directory)
        # The signal would end a worker of a release that has no handler for it.
        if self._process is not None and catches(self._process.pid, worker_files.SHOW_STACKS):
            self._process.signal(worker_files.SHOW_STACKS)

    def shown_stacks(self) -> str:
        """See `Container`."""
        return tail(self.directory / worker_files.OUTPUT, self._shown_begin, _STACKS_BYTES)

    def terminate(self) -> None:
        """See `Container`."""
        if self._process is not None:
            self._process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `Container`."""
        if self._process is not None:
            self._process.kill()

    def ended(self) -> bool:
        """See `Container`."""
        return self._process is None or self._process.ended()

    def gone(self) -> bool:
        """See `Container`."""
        return self._process is None or self._process.gone()

    def exit(self, killed_because: str | None) -> Exit:
        """See `Container`. Also removes the sockets that the process left outside of its directory, and records for the next
        process in which calls it died."""
        same_host.sweep()
        assert self._process is not None
        exit = Exit(
            status=self._process.status,
            killed_because=killed_because,
            end=exits.read_end(self.directory, self._process.pid),
            tail=tail(self.directory / worker_files.OUTPUT, self._output_begin, _TAIL_BYTES),
        )
        exit = self._host.kernel_kills.explain(exit)
        try:
            topology = self._host.directories.topology(self._key[0])
            record_death(self.directory, exit, self._process.pid, topology, time.time())
        except OSError as error:  # then no tuple is charged for this death
            _log.warning("%s: the calls of a dead worker cannot be recorded: %s", self.directory, error)
        return exit

    # Files

    def write_orders(self, orders: Orders) -> None:
        """See `Container`."""
        worker_files.write(self.directory, worker_files.ORDERS, orders, 0o600)

    def write_lease(self, number: int) -> None:
        """See `Container`."""
        worker_files.write(self.directory, worker_files.LEASE, {"number": number}, 0o600)

    def read_heartbeat(self) -> WorkerHeartbeat | None:
        """See `Container`."""
        try:
            stat = os.lstat(worker_files.path_of(self.directory, worker_files.HEARTBEAT))
        except OSError:
            return None
        found = (stat.st_ino, stat.st_mtime_ns)
        if found == self._read:
            return None
        try:
            heartbeat = worker_files.read_heartbeat(self.directory)
        except BadFile:
            self._read = found
            raise
        # Not after an OSError: then this process can open no file at the moment, and reads this heartbeat later.
        self._read = found
        return heartbeat

    def read_counters(self) -> bytes | None:
        """See `Container`."""
        return worker_files.read_bytes(self.directory, worker_files.COUNTERS)


def _lease_in(directory: Path) -> int:
    """Return the number of the last lease in a worker's directory; 0 without a lease."""
    try:
        body = worker_files.read(directory, worker_files.LEASE)
        return int(body["number"]) if body is not None else 0
    except (BadFile, KeyError, TypeError, ValueError, OverflowError):
        return 0


def _process_of(directory: Path, started: Started) -> WorkerProcess | None:
    """Return the living process that was started, or may have been started, in a directory."""
    if not started.pid:
        return WorkerProcess.find(directory)
    return WorkerProcess.adopt(started.pid, started.started)


def _slot_of(orders: Orders) -> int:
    return next((place.slot for place in orders.placements if place.worker == orders.worker), 0)


def _end_unknown(directory: Path, started: Started | None) -> None:
    """End the process of a directory without readable orders, before another process is started there."""
    process = None if started is None else _process_of(directory, started)
    if process is None:
        return
    process.kill()
    end = time.monotonic() + _KILL_PATIENCE
    while not process.gone() and time.monotonic() < end:
        time.sleep(0.002)  # the kernel needs a moment
    same_host.sweep()
