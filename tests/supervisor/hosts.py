"""A Nimbus over a store in memory, supervisors with fake workers, and waits for their effects."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nimbus.leader.master import Nimbus
from nimbus.security.keyring import KeyRing
from nimbus.submission.submission import Submission
from squall.clock import RealClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.security.sealing import KeyPair
from squall.values import Incarnation
from supervisor import exits
from supervisor.agent import Supervisor, WorkerTerms
from supervisor.directories import Directories
from supervisor.plan import Timeouts
from supervisor.worker_processes import WorkerCommand, WorkerProcesses
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_worker.py")
#: Options of every topology; fake workers have no links.
LINK_KEYS = {"public": "P" * 40, "secret": "S" * 40}
#: An expected event comes within milliseconds, or never.
CAP = 30.0


def fake_command(directory: Path) -> list[str]:
    return [sys.executable, str(FAKE), str(directory)]


def a_topology(name: str, tasks: int) -> Topology:
    """One spout of some tasks, whose pickle cannot be loaded."""
    spout = ComponentSpec("lines", "spout", tasks, {}, {"default": StreamSpec(("line",))})
    return Topology(name, {}, (spout,), {"lines": b"this is no pickle"})


@dataclass
class Link:
    """Reports to a Nimbus, and records the reports."""

    nimbus: Nimbus
    reports: list[WorkerReport] = field(default_factory=list)
    counted: dict[tuple[str, str, Incarnation], bytes] = field(default_factory=dict)
    beats: list[str] = field(default_factory=list)

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        self.reports.append(report)
        return self.nimbus.report(name, worker, report)

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        self.counted[topology_id, worker, incarnation] = counters

    def heard(self, supervisor_id: str) -> None:
        self.beats.append(supervisor_id)

    def notes(self) -> list[str]:
        """The notes about workers, each text once."""
        return list(dict.fromkeys(report.note for report in self.reports if report.note is not None))


class Hosts:
    """A cluster of some supervisors on this machine."""

    def __init__(
        self, state: Path, supervisors: int = 1, slots: int = 2, limits: Timeouts | None = None
    ) -> None:
        self.state = state
        self.slots = slots
        self.limits = limits or Timeouts(stop=10.0)
        self.store = InMemoryStore()
        self.clock = RealClock()
        ring = KeyRing(Registry(self.store), KeyPair.make(), "n1", LINK_KEYS.copy)
        self.nimbus = Nimbus(self.store, self.clock, keyring=ring)
        self.registry = Registry(self.store)
        self.link = Link(self.nimbus)
        #: The key pair of each supervisor, which stays with its directory.
        self.pairs: dict[str, KeyPair] = {}
        #: Every supervisor ever started, so that none of its workers is left behind.
        self.ever: list[Supervisor] = []
        self.supervisors = [self.make(f"s{number}") for number in range(1, supervisors + 1)]

    def make(
        self,
        name: str,
        store: Store | None = None,
        *,
        bind: str = "127.0.0.1",
        command: Callable[[Path], Sequence[str]] = fake_command,
        kernel_kills: Callable[[], int | None] = exits.kernel_kills,
        admit: Callable[[], object] = lambda: None,
        closed: Callable[[], Mapping[str, int]] = dict,
    ) -> Supervisor:
        """Another supervisor, or a new process of one. `store`: the store as it sees it."""
        pair = self.pairs.setdefault(name, KeyPair.make())
        registry = Registry(store or self.store)
        processes = WorkerProcesses(
            self.state / name,
            registry,
            name,
            key_pair=pair,
            start=WorkerCommand([str(ROOT)], command=command),
            kernel_kills=kernel_kills,
        )
        record = SupervisorRecord(name, name, self.slots, beats=True, public_key=pair.public)
        terms = WorkerTerms(bind, timeouts=self.limits)
        supervisor = Supervisor(
            record, registry, self.link, processes, self.clock, terms, admit=admit, closed=closed
        )
        supervisor.register()
        self.ever.append(supervisor)
        return supervisor

    def directories(self, supervisor: int = 0) -> Directories:
        """The workers of a supervisor."""
        return Directories(self.state / self.supervisors[supervisor].id)

    def submit(
        self,
        name: str = "words",
        workers: int = 2,
        tasks: int = 4,
        fake: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> TopologyRecord:
        own = {"topology.workers": workers, "topology.worker.timeout.secs": timeout, "fake": dict(fake or {})}
        merged = {**defaults(), **own}
        return self.nimbus.submit(Submission(a_topology(name, tasks), merged, {"lines": merged}))

    def turn(self) -> None:
        """One round of everything, after a wait if nothing is due."""
        now = self.clock.now()
        self.nimbus.tick(now)
        due = min(supervisor.next_time(now) for supervisor in self.supervisors)
        if due > now:
            time.sleep(min(due - now, 0.05))
        for supervisor in self.supervisors:
            supervisor.sync(self.clock.now())

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Run rounds until a condition holds."""
        end = time.monotonic() + CAP
        while not condition():
            assert time.monotonic() < end, f"{what or 'it'} did not happen; reports: {self.link.reports[-5:]}"
            self.turn()

    def report(self, worker: str, name: str = "words") -> WorkerReport | None:
        record = self.registry.topologies.get(name)
        return None if record is None else self.registry.report(record.id, worker)

    def opened(self, worker: str, name: str = "words") -> bool:
        report = self.report(worker, name)
        return report is not None and report.opened

    def state_of(self, name: str = "words") -> str | None:
        record = self.registry.topologies.get(name)
        return None if record is None else record.state

    def pids(self) -> dict[str, int]:
        """The running processes, by worker."""
        return {
            view.worker: view.pid
            for supervisor in self.supervisors
            for view in supervisor.workers()
            if view.pid is not None
        }

    def end(self) -> None:
        """End all remaining processes, whatever the test did."""
        for supervisor in self.ever:
            assert supervisor.kill_all()
        self.nimbus.close()
