"""The interface of the place where a supervisor's workers run: in processes of this host, or in memory.

`supervisor.worker_processes` starts processes that exchange files with their supervisor; `local_cluster.virtual_host` runs
workers inside this process, on real or simulated time. The supervisor treats both alike. No method waits for a worker.
Must not know: the plan, the store, how workers run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from squall.cluster.records import TopologyRecord
from squall.values import Incarnation
from squall.worker_files import Orders, WorkerHeartbeat
from supervisor.artifacts import Provision, State
from supervisor.exits import Exit
from supervisor.plan import Key


class Container(Protocol):
    """One worker's place on a host (the name is Storm's): its process, and the files that process and supervisor exchange.

    Methods that write raise `OSError` when writing fails; in that case nothing has changed.
    """

    @property
    def directory(self) -> Path:
        """The worker's own directory."""

    @property
    def pid(self) -> int | None:
        """The pid of the process that was launched or recovered last; None: none was launched or recovered since `reset`."""

    def prepare(self, lease: int) -> None:
        """Prepare the directory of a new process, with keys and a first lease. Raises `SquallError` if that fails."""

    def launch(self, provision: Provision, incarnation: Incarnation, slot: int) -> None:
        """Start a process. Its orders must have been written before."""

    def reset(self) -> None:
        """Forget the process after its end."""

    def write_orders(self, orders: Orders) -> None:
        """Replace the worker's orders."""

    def write_lease(self, number: int) -> None:
        """Renew the worker's lease. `number` rises with each renewal."""

    def read_heartbeat(self) -> WorkerHeartbeat | None:
        """Return the last heartbeat; None if there is none, or if it was read before. Raises `SquallError` if the heartbeat is
        malformed."""

    def read_counters(self) -> bytes | None:
        """Return the worker's counters; None if there are none. Raises `SquallError` if they cannot be read."""

    def wake(self) -> None:
        """Signal that there are new orders."""

    def show_stacks(self) -> None:
        """Make the process write the stacks of its threads into its output, even if a call holds Python's own lock."""

    def shown_stacks(self) -> str:
        """Return what the process has written since the last call of `show_stacks`."""

    def terminate(self) -> None:
        """Ask the process to drain and end, without orders."""

    def kill(self) -> None:
        """Kill the process with all its children."""

    def ended(self) -> bool:
        """Return whether the process itself has ended."""

    def gone(self) -> bool:
        """Return whether the process and all its children have ended."""

    def exit(self, killed_because: str | None) -> Exit:
        """Describe how the process ended."""


class Recovered(msgspec.Struct, frozen=True):
    """A worker that an earlier supervisor had."""

    container: Container
    orders: Orders
    slot: int
    #: "found": its process runs; "dead": it has ended, but this was not reported; "none": no process was started.
    life: str
    #: The number of the worker's last lease.
    lease: int


class ProcessHost(Protocol):
    """The containers of one supervisor."""

    def mark(self) -> str:
        """Return a mark that distinguishes this supervisor's state from every copy of this state."""

    def recover(self) -> Iterable[Recovered]:
        """Return the workers of an earlier supervisor over the same state."""

    def container(self, key: Key) -> Container:
        """Return the container of a worker. The worker may be new."""

    def clear(self, key: Key) -> None:
        """Remove the files of a worker that has left its topology."""

    def provision(self, record: TopologyRecord, now: float, since: float = 0.0) -> State:
        """Return whether workers of a topology can start; begin to fetch or build missing artifacts. The files must
        have been checked for damage at the time `since` or later; damaged files are fetched again."""

    def retain(self, used: Mapping[str, TopologyRecord], hosted: Iterable[str]) -> None:
        """Remove the files of all topologies that are neither in `used` (records by id) nor in `hosted` (ids of topologies with
        workers here)."""

    def check_starts(self) -> None:
        """Do what each start of a worker does: write files, start a process. Raises `OSError` if this host cannot."""

    def tick(self, now: float) -> None:
        """Do periodic work. Called about once a second."""

    def sweep(self) -> None:
        """Remove files that killed workers left outside of their directories."""
