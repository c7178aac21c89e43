"""A cluster of worker processes that runs the ledger's topology, for the tests that make faults.

`with ledger_run(tmp_path, ...) as run:` submits it and waits until tuples flow; after the body it lets the topology drain,
checks the ledger, kills the topology, shuts the cluster down, and looks for leaks. Every wait is for an event, with a generous
cap. Must not know: the faults.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from local_cluster import LocalCluster, TopologyStatus, process_engine
from local_cluster.process_engine import WorkerView
from squall.worker_files import OUTPUT, Orders, read_orders
from supervisor.orders import orders_for
from tests.faults import leaks
from tests.faults.ledger import Account, account, read
from tests.faults.ledger_topology import STOP, ledger_topology
from tests.faults.links import Links
from topology_api import NoSuchTopology

#: Upper limit in seconds for everything that has no limit of its own.
CAP = 60.0
#: Seconds between two checks.
PACE = 0.05
#: Liveness in seconds instead of half minutes, so that tests need not wait.
QUICK: Mapping[str, int] = {
    "topology.worker.timeout.secs": 3,
    "topology.message.timeout.secs": 10,
    "topology.max.spout.pending": 500,
}


class Tally:
    """Counts the lines of a growing ledger, reading only the new ones."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offsets: dict[Path, int] = {}
        self.counts: Counter[str] = Counter()

    def of(self, kind: str) -> int:
        """The number of entries of a kind so far."""
        for path in self.directory.glob("s*-*-*-*.log"):
            with path.open("rb") as file:
                file.seek(self.offsets.get(path, 0))
                data, _, _ = file.read().rpartition(b"\n")
            if data:
                self.offsets[path] = self.offsets.get(path, 0) + len(data) + 1
                self.counts.update(line[:1].decode() for line in data.split(b"\n"))
        return self.counts[kind]


@dataclass
class Run:
    """A running topology and its ledger."""

    cluster: LocalCluster
    books: Path
    name: str
    tally: Tally
    links: Links | None = None
    #: The result of the ledger, once the run is over.
    total: Account = field(default_factory=Account)
    #: Processes that were suspended until their tasks had moved elsewhere, and when they were resumed.
    thawed: dict[int, int] = field(default_factory=dict)

    def workers(self, name: str | None = None) -> list[WorkerView]:
        """The workers of the topology that have a running process."""
        return sorted(self.cluster.workers(name or self.name), key=lambda one: one.worker)

    def worker(self, name: str) -> WorkerView:
        """One running worker."""
        return next(one for one in self.workers() if one.worker == name)

    def hosts_of(self, component: str) -> list[WorkerView]:
        """The workers that have tasks of a component."""
        return [one for one in self.workers() if component in components_of(one)]

    def pids(self) -> dict[str, int]:
        return {one.worker: one.pid for one in self.workers()}

    def status(self) -> TopologyStatus:
        return self.cluster.status(self.name)

    def text(self) -> str:
        """The whole status as text, for searching words in it."""
        return repr(self.status())

    def wait_for(self, question: Callable[[], Any], what: str, cap: float = CAP) -> float:
        """Wait until a condition holds; return how long it took in seconds."""
        began = time.monotonic()
        while not question():
            if time.monotonic() - began > cap:
                pytest.fail(f"{what}: not within {cap:g} s\n{self.report()}")
            time.sleep(PACE)
        return time.monotonic() - began

    def flows(self, more: int = 50, cap: float = CAP) -> float:
        """Wait until this many more tuples are acked; return how long it took in seconds."""
        least = self.tally.of("A") + more
        return self.wait_for(lambda: self.tally.of("A") >= least, f"{more} more acked tuples", cap)

    def gone(self, pid: int, cap: float = CAP) -> float:
        """Wait until a process has ended and was reaped."""
        return self.wait_for(lambda: leaks.state_of(pid) is None, f"the end of process {pid}", cap)

    def replaced(self, worker: str, pid: int, cap: float = CAP) -> int:
        """Wait until a worker has another process; return its pid."""

        def others() -> list[int]:
            return [one.pid for one in self.workers() if one.worker == worker and one.pid != pid]

        self.wait_for(others, f"another process of worker {worker}", cap)
        return others()[0]

    def moved(self, pids: dict[str, int], cap: float = CAP) -> None:
        """Wait until the topology has a new process."""
        self.wait_for(lambda: set(self.pids().values()) - set(pids.values()), "a new worker process", cap)

    def last_for(self, seconds: float, every: float, step: Callable[[int], object]) -> None:
        """Take a step every `pace` seconds for `seconds` (this is the load of a test, not a wait for luck)."""
        began = time.monotonic()
        number = 0
        while (due := began + number * every) < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            step(number)
            number += 1

    def drain(self, cap: float = CAP) -> Account:
        """End the source, wait until everything is acked or failed and the topology is completed; return the ledger."""
        Path(self.books, STOP).touch()
        try:
            self.cluster.wait(self.name, timeout=cap)
        except TimeoutError as error:
            pytest.fail(f"{error}\n{self.report()}")
        return self.add_up()

    def add_up(self) -> Account:
        """The ledger of a run that is over; it must be right."""
        self.total = account(read(self.books), self.thawed)
        assert not self.total.problems, self.report()
        return self.total

    def report(self) -> str:
        """All that is known, for the message of a failed test."""
        lines = [f"the ledger so far: {account(read(self.books))}"]
        try:
            lines.append(f"status: {self.text()}")
            for one in self.workers():
                lines.append(f"worker {one.worker}: process {one.pid}, incarnation {one.incarnation}")
                for name in ("worker.log", OUTPUT):
                    path = Path(one.directory, name)
                    if path.exists():
                        lines += [f"  {name}: {line}" for line in path.read_text().splitlines()[-15:]]
        except NoSuchTopology as error:
            lines.append(str(error))
        return "\n".join(lines)


def components_of(worker: WorkerView) -> set[str]:
    """The components of which a worker has tasks."""
    orders = read_orders(worker.directory)
    assert orders is not None, f"no orders in {worker.directory}"
    return {component for task, component, _ in orders.tasks if task in worker.tasks}


@dataclass(frozen=True)
class Surroundings:
    """How a test's cluster differs from a user's: None or the usual value changes nothing."""

    supervisors: int = 2
    slots: int = 2
    #: Seconds that a worker runs without its supervisor, and that Nimbus waits for a silent supervisor.
    lease: float | None = None
    supervisor_timeout: float | None = None
    #: The proxies between the workers.
    links: Links | None = None

    @property
    def site(self) -> dict[str, object]:
        """The site's options."""
        timeout = self.supervisor_timeout
        return {} if timeout is None else {"nimbus.supervisor.timeout.secs": timeout}

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Create the next cluster with these."""
        if self.lease is not None:
            patch.setattr(process_engine, "LEASE_SECS", self.lease)
        if self.links is not None:
            patch.setattr("supervisor.agent.orders_for", rewriting(orders_for, self.links))


def rewriting(usual: Callable[..., Orders], links: Links) -> Callable[..., Orders]:
    """Orders in which each address of a peer is that of a proxy."""

    def made(*arguments: Any) -> Orders:
        orders = usual(*arguments)
        addresses = {
            peer: links.rewrite(orders.worker, peer, address) for peer, address in orders.addresses.items()
        }
        return replace(orders, addresses=addresses)

    return made


@contextmanager
def cluster_without_leaks(
    tmp_path: Path, surroundings: Surroundings = Surroundings()
) -> Iterator[LocalCluster]:
    """A cluster of processes with its files in a folder of their own; nothing of it may remain in the end."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    before = leaks.Traces(uuid.uuid4().hex, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(leaks.MARK, before.mark)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        surroundings.apply(patch)
        try:
            with LocalCluster(
                processes=True,
                supervisors=surroundings.supervisors,
                slots=surroundings.slots,
                settings=(surroundings.site, {}),
            ) as cluster:
                yield cluster
                running = leaks.processes(before.mark, str(folder))
                paths = {path for one in running for path in leaks.listening_paths(one.pid)}
            if surroundings.links is not None:
                surroundings.links.close()
            remains = [*leaks.left(before), *(f"socket: {path}" for path in paths if os.path.exists(path))]
        finally:
            if surroundings.links is not None:
                surroundings.links.close()
            for process in leaks.processes(before.mark, str(folder)):
                os.kill(process.pid, 9)
    assert not remains, "left behind:\n" + "\n".join(remains)


@contextmanager
def ledger_run(
    tmp_path: Path,
    surroundings: Surroundings = Surroundings(),
    *,
    conf: Mapping[str, object] | None = None,
    flowing: bool = True,
    **options: Any,
) -> Iterator[Run]:
    """The ledger's topology in a cluster of its own.

    Tuples flow when the body begins (unless `flowing` is False); afterwards it drains, its ledger must add up, and nothing may
    remain. `options` are those of `ledger_topology`.
    """
    books = tmp_path / "books"
    books.mkdir()
    topology = ledger_topology(books, conf={**QUICK, **(conf or {})}, **options)
    with cluster_without_leaks(tmp_path, surroundings) as cluster:
        run = Run(cluster, books, topology.name, Tally(books), surroundings.links)
        cluster.submit(topology)
        if flowing:
            run.flows()
        yield run
        if not run.total.emitted:
            run.drain()
        if run.name in cluster.topologies():
            end(run)


def end(run: Run) -> None:
    """Kill the topology: its processes, ports, sockets and files go, while the cluster lives."""
    workers = run.workers()
    paths = {path for one in workers for path in leaks.listening_paths(one.pid)}
    ports = {port for one in workers for port in leaks.listening_ports(one.pid)}
    directories = [one.directory for one in workers]
    run.cluster.kill(run.name, wait_secs=0)
    run.wait_for(lambda: run.name not in run.cluster.topologies(), "the end of the killed topology")
    for one in workers:
        run.gone(one.pid)
    run.wait_for(lambda: not any(path.exists() for path in directories), "the removal of the workers' files")
    assert not ports & leaks.all_listening_ports()
    run.wait_for(lambda: not any(map(os.path.exists, paths)), "the removal of the workers' Unix sockets")
