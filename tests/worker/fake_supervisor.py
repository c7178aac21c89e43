"""A supervisor for tests of worker processes: it writes a worker's directory, starts `python -m worker` and reads its reports.

Must not know: single tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from msgspec.structs import replace

from squall.cluster.blobs import put_bundle, write_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Placement
from squall.settings import Overrides, merged
from squall.transport.carriers.sockets import make_keys
from squall.values import Incarnation, TaskRow
from squall.worker_files import (
    KEYS,
    LEASE,
    LOG,
    ORDERS,
    OUTPUT,
    End,
    Orders,
    WorkerHeartbeat,
    read_end,
    read_heartbeat,
    write,
)
from topology_api import Topology

#: One pair for all workers of a test, as in one topology.
PAIR = make_keys()

ROOT = Path(__file__).resolve().parents[2]
#: How long a test waits for a prompt event: far longer than it takes on a busy machine.
CAP = 40.0


def tasks_of(topology: Topology) -> tuple[TaskRow, ...]:
    """Tasks numbered from 1, in the order of the components."""
    rows = [(spec.id, index) for spec in topology.components for index in range(spec.parallelism)]
    return tuple(TaskRow(number, component, index) for number, (component, index) in enumerate(rows, 1))


def orders_for(
    topology: Topology,
    bundle: Path,
    conf: Mapping[str, object] | None = None,
    placed: Mapping[str, Sequence[int]] | None = None,
    worker: str = "w1",
) -> Orders:
    """Orders to run a topology: all of it in one worker, or as `placed` says."""
    whole, components = merged(topology, {}, {}, Overrides(topology=dict(conf or {})))
    tasks = tasks_of(topology)
    placed = placed or {worker: [task for task, _, _ in tasks]}
    return Orders(
        number=1,
        topology_id=f"{topology.name}-1",
        topology=topology.name,
        worker=worker,
        incarnation=Incarnation(1, 0),
        supervisor="test",
        asked="run",
        version=1,
        placements=tuple(
            Placement(name, "test", slot, Incarnation(1, 0), tuple(own))
            for slot, (name, own) in enumerate(placed.items())
        ),
        addresses={},
        tasks=tasks,
        finished=(),
        conf=whole,
        component_confs=components,
        bundle=str(bundle),
    )


def ship(topology: Topology, folder: Path) -> Path:
    """Put a topology's bundle into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    store = InMemoryStore()
    put_bundle(store, "t", topology)
    write_bundle(store, "t", folder)
    return folder


class FakeSupervisor:
    """One worker process and its directory. The lease is renewed until `away` is set."""

    def __init__(self, directory: Path, orders: Orders, with_orders: bool = True) -> None:
        self.directory = directory
        self.orders = orders
        directory.mkdir(parents=True, exist_ok=True)
        self.away = Event()
        self.over = Event()
        if with_orders:
            self.write_orders(orders)
        self.renew_lease(0)
        with open(directory / OUTPUT, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "worker", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        self.pid = self.process.pid
        self.thread = Thread(target=self.renew, daemon=True)
        self.thread.start()

    def __enter__(self) -> FakeSupervisor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.thread.join()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(CAP)

    # Files that a supervisor writes.

    def write_orders(self, orders: Orders) -> None:
        """Put orders into the directory."""
        self.orders = orders
        if not (self.directory / KEYS).exists():
            write(self.directory, KEYS, PAIR, 0o600)
        write(self.directory, ORDERS, orders)

    def order(self, asked: str | None = None, **changes: Any) -> None:
        """Write new orders, and signal the worker."""
        if asked is not None:
            changes["asked"] = asked
        self.write_orders(replace(self.orders, number=self.orders.number + 1, **changes))
        self.process.send_signal(signal.SIGUSR1)

    def renew_lease(self, number: int) -> None:
        write(self.directory, LEASE, {"number": number})

    def renew(self) -> None:
        """The thread that renews the lease."""
        number = 0
        while not self.over.wait(0.1):
            if not self.away.is_set():
                number += 1
                self.renew_lease(number)

    # Files that the worker writes.

    def heartbeat(self) -> WorkerHeartbeat | None:
        """The last heartbeat of this process."""
        heartbeat = read_heartbeat(self.directory)
        return heartbeat if heartbeat is not None and heartbeat.pid == self.pid else None

    def end(self) -> End | None:
        """The final report of this process."""
        end = read_end(self.directory)
        return end if end is not None and end.pid == self.pid else None

    def log(self) -> str:
        """The whole log, oldest part first."""
        files = sorted(self.directory.glob(f"{LOG}*"), reverse=True)
        return "".join(file.read_text(errors="replace") for file in files)

    def output(self) -> str:
        return (self.directory / OUTPUT).read_text(errors="replace")

    def wait_heartbeat(self, what: Callable[[WorkerHeartbeat], object]) -> WorkerHeartbeat:
        """The first heartbeat that meets a condition."""

        def seen() -> WorkerHeartbeat | None:
            heartbeat = self.heartbeat()
            return heartbeat if heartbeat is not None and what(heartbeat) else None

        found: WorkerHeartbeat = self.wait(seen, "a heartbeat")
        return found

    def wait_opened(self) -> WorkerHeartbeat:
        return self.wait_heartbeat(lambda heartbeat: heartbeat.opened)

    def wait(self, seen: Callable[[], Any], what: str) -> Any:
        """The result of `seen`, once it has one, while the process lives."""
        deadline = time.monotonic() + CAP
        while True:
            found = seen()
            if found:
                return found
            status = self.process.poll()
            if status is not None and not seen():
                raise AssertionError(
                    f"the worker ended with {status} before {what} was seen; {self.end()}\n{self.log()}\n{self.output()}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"waited {CAP} s for {what}; {self.heartbeat()}\n{self.log()}\n{self.output()}"
                )
            time.sleep(0.01)

    def wait_end(self) -> int:
        """The exit status; -9 and the like for signals."""
        try:
            return self.process.wait(CAP)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the worker has not ended in {CAP} s; {self.heartbeat()}\n{self.log()}\n{self.output()}"
            ) from None
