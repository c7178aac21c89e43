"""The load of a cluster on ZooKeeper: writes, bytes and reads with 1, 100 and 1,000 supervisors and 50 topologies.

Nimbus's core and the supervisors' view of the store are the real ones; there are no worker processes: their reports are
simulated as their supervisors would send them. Requests are counted at the interface of the store: a write is a transaction,
and a read is one that the cache of `ZooKeeperStore` cannot answer (the same `ReadCache`, in simulated time), or part of a check
whether a session lives. Pings that keep sessions alive are not writes and are not counted. Four phases: all topologies are
submitted and open; an idle time (three times the lifetime of a cache entry); one supervisor falls silent, until its workers run
elsewhere; and one topology is killed, until it is gone.

With --check the same is done once over a real ZooKeeper (which needs Java and the jars), with fewer supervisors: its own count
of transactions is printed beside ours. It is higher: empty nodes are removed, and sessions begin and end.

    python -m benchmarks zookeeper_load [--supervisors 1,100,1000] [--topologies 50] [--check]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.child import machine
from nimbus.leader.master import Nimbus
from nimbus.submission.submission import Submission
from squall.clock import Clock, ManualClock, RealClock
from squall.cluster import paths
from squall.cluster.leadership import GuardedStore, Leadership
from squall.cluster.memory import InMemoryStore
from squall.cluster.read_cache import ReadCache
from squall.cluster.records import SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Cancel, Guard, Store, Watch
from squall.cluster.zookeeper import ZooKeeperStore
from squall.cluster.zookeeper.server import ServerPlan, ask, find_jars, find_java, mode
from squall.cluster.zookeeper.store import MEMORY_SECS
from squall.settings import merged
from supervisor.plan import Key
from supervisor.store_view import StoreView
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology

SESSION_SECS = 10.0
SILENCE_SECS = 5.0
"""How long a supervisor may be silent here; the default is longer, which changes only how long the loss takes."""
QUIET_SECS = 24
WORKERS, SPOUTS, BOLTS = 4, 8, 12
"""Of each topology."""
PICKLE = b"x" * 4_000
MOST_STEPS = 120


@dataclass
class Tally:
    """The requests to the store."""

    writes: int = 0
    written: int = 0
    """Bytes of paths and values."""
    reads: int = 0

    def since(self, before: Tally) -> Tally:
        """Return the requests since then."""
        return Tally(*(getattr(self, each.name) - getattr(before, each.name) for each in fields(self)))

    def copy(self) -> Tally:
        """Return a copy."""
        return Tally(self.writes, self.written, self.reads)


class CountedStore:
    """A store that counts requests to it; over one without a cache it has that of `ZooKeeperStore`."""

    def __init__(self, store: Store, clock: Clock, tally: Tally) -> None:
        self.store = store
        self.session_secs = SESSION_SECS
        self._tally = tally
        self._cache = ReadCache(clock, MEMORY_SECS)
        if isinstance(store, InMemoryStore):
            self._cache.open()
            store.watch("/", self._cache.changed)

    def get(self, path: str) -> tuple[bytes, int] | None:
        found: tuple[bytes, int] | None = self._read(ReadCache.VALUE, path, self.store.get)
        return found

    def children(self, path: str) -> list[str]:
        names: list[str] = self._read(ReadCache.CHILDREN, path, self.store.children)
        return names

    def owns(self, path: str) -> bool:
        self._tally.reads += 2  # it syncs, then it reads
        return self.store.owns(path)

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        self._count(path, data)
        return self.store.put(path, data, expected, guard)

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        self._count(path, data)
        return self.store.create(path, data, ephemeral, guard)

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        self._count(path, b"")
        self.store.delete(path, expected, guard)

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        return self.store.watch(prefix, callback)

    def _count(self, path: str, data: bytes) -> None:
        self._tally.writes += 1
        self._tally.written += len(path) + len(data)

    def _read(self, kind: str, path: str, ask: Callable[[str], Any]) -> Any:
        known = self._cache.find(kind, path)
        if known is not None:
            return known.answer
        asked = self._cache.begin(kind, path)
        answer = ask(path)
        self._tally.reads += 1
        self._cache.keep(asked, answer)
        return answer


class VirtualSupervisor:
    """A supervisor without workers: it reads its assignments, and reports that they are carried out."""

    def __init__(self, store: Store, number: int, slots: int) -> None:
        record = SupervisorRecord(
            f"supervisor-{number:04}-0123456789abcdef", f"host-{number:04}", slots, beats=True
        )
        self.id = record.id
        self.store = store
        self.store_view = StoreView(
            Registry(store), record, admit=lambda: store.get(paths.CLUSTER), wake=lambda: None
        )
        self.store_view.register()
        self._running: dict[Key, tuple[str, WorkerReport]] = {}

    def turn(self, nimbus: Nimbus, now: float) -> None:
        """One second of its life."""
        nimbus.heard(self.id)
        self.store_view.refresh(now, {})
        places = self.store_view.places
        for key in [key for key in self._running if key not in places]:
            name, report = self._running.pop(key)
            nimbus.report(name, report.worker, replace(report, stopped=True))
        for key, place in places.items():
            view = self.store_view.views[key[0]]
            address = (f"tcp://{self.id}:40000", f"tcp://{self.id}:40001")
            report = WorkerReport(
                place.worker,
                place.incarnation,
                True,
                False,
                False,
                False,
                None,
                address,
                version=view.version,
            )
            if self._running.get(key) != (view.record.name, report):
                self._running[key] = (view.record.name, report)
                nimbus.report(view.record.name, place.worker, report)


class Cluster:
    """A leading Nimbus, and supervisors, each with a session of its own."""

    def __init__(self, clock: Clock, session: Callable[[], Store], supervisors: int, topologies: int) -> None:
        self.clock = clock
        self.nimbus_tally, self.tally = Tally(), Tally()
        self.store = CountedStore(session(), clock, self.nimbus_tally)
        self.leadership = Leadership(self.store, "nimbus-1", clock)
        guard = self.leadership.round(clock.now())
        assert guard is not None
        guarded = GuardedStore(self.store, guard, lambda: self.leadership.leading(clock.now()))
        self.nimbus = Nimbus(guarded, clock, supervisor_timeout_secs=SILENCE_SECS)
        self.sessions = [session() for _ in range(supervisors)]
        slots = max(2, -(-2 * topologies * WORKERS // supervisors))
        self.supervisors = [
            VirtualSupervisor(CountedStore(each, clock, self.tally), number, slots)
            for number, each in enumerate(self.sessions)
        ]

    def second(self) -> None:
        """Run each of them once, and let a second pass."""
        now = self.clock.now()
        for supervisor in self.supervisors:
            supervisor.turn(self.nimbus, now)
        self.leadership.round(now)
        self.nimbus.tick(now)
        if isinstance(self.clock, ManualClock):
            self.clock.move_to(now + 1.0)
        else:
            time.sleep(max(0.0, now + 1.0 - self.clock.now()))

    def until(self, reached: Callable[[], bool]) -> int:
        """Seconds until a condition holds."""
        for seconds in range(MOST_STEPS):
            if reached():
                return seconds
            self.second()
        raise AssertionError(f"not reached within {MOST_STEPS} seconds")

    def submit(self, number: int) -> None:
        """Submit a topology; its pickles are bytes that are never read."""
        topology = a_topology(f"topology-{number:03}")
        conf, component_confs = merged(topology)
        self.nimbus.submit(Submission(topology, {**conf, "topology.workers": WORKERS}, component_confs))

    def all_open(self) -> bool:
        """Return whether every worker has a place on a live supervisor and has reported that it is open."""
        there = {supervisor.id for supervisor in self.supervisors}
        registry = Registry(self.store.store)
        for record in registry.all_topologies():
            assignment = registry.assignments.get(record.id)
            if record.state != "ACTIVE" or assignment is None or registry.leaving.get(record.id) is not None:
                return False
            for place in assignment.placements:
                report = registry.report(record.id, place.worker)
                if place.supervisor not in there or report is None or report.incarnation != place.incarnation:
                    return False
        return True

    def total(self) -> Tally:
        """Return the requests of Nimbus and the supervisors together."""
        return Tally(
            *(getattr(self.nimbus_tally, f.name) + getattr(self.tally, f.name) for f in fields(Tally))
        )


@dataclass
class Phase:
    """The requests of one phase, and its seconds."""

    name: str
    seconds: int
    nimbus: Tally
    supervisors: Tally


def phases(cluster: Cluster, topologies: int, lose: Callable[[Cluster], None], quiet: int) -> Iterator[Phase]:
    """The four phases, one after another."""

    def measured(name: str, act: Callable[[], int]) -> Phase:
        nimbus, supervisors = cluster.nimbus_tally.copy(), cluster.tally.copy()
        seconds = act()
        return Phase(name, seconds, cluster.nimbus_tally.since(nimbus), cluster.tally.since(supervisors))

    def submit_all() -> int:
        for number in range(topologies):
            cluster.submit(number)
        return cluster.until(cluster.all_open)

    def rest() -> int:
        for _ in range(quiet):
            cluster.second()
        return quiet

    def lose_one() -> int:
        lose(cluster)
        return cluster.until(cluster.all_open)

    def kill_one() -> int:
        cluster.nimbus.kill("topology-000", 0)
        return cluster.until(lambda: cluster.store.store.get(paths.topology("topology-000")) is None)

    yield measured("all submitted", submit_all)
    for _ in range(int(MEMORY_SECS) + 1):
        cluster.second()  # entries just cached are read again, as in the long run
    yield measured("nothing happens", rest)
    if len(cluster.supervisors) > 1:
        yield measured("a supervisor is lost", lose_one)
    yield measured("one killed", kill_one)


def a_topology(name: str) -> Topology:
    """Return a spout and a bolt."""
    spout = ComponentSpec("lines", "spout", SPOUTS, {}, {"default": StreamSpec(("line",))})
    subscription = Subscription("lines", "default", GroupingSpec("shuffle"))
    bolt = ComponentSpec("count", "bolt", BOLTS, {}, {}, (subscription,))
    return Topology(name, {}, (spout, bolt), {"lines": PICKLE, "count": PICKLE})


def lose_in_memory(cluster: Cluster) -> None:
    """The first supervisor dies, and its session ends."""
    cluster.supervisors.pop(0)
    session = cluster.sessions.pop(0)
    assert isinstance(session, InMemoryStore)
    session.close()


def count(supervisors: int, topologies: int) -> None:
    """Print the requests of a cluster of that size."""
    tree = InMemoryStore()
    cluster = Cluster(ManualClock(1_000.0), tree.session, supervisors, topologies)
    print(
        f"\n{supervisors:,} supervisors, {topologies} topologies of {WORKERS} workers and {SPOUTS + BOLTS} tasks"
    )
    print(
        f"{'':22}{'seconds':>8}{'writes':>9}{'KB':>9}{'reads':>10}   a second: writes    reads  (reads a supervisor)"
    )
    for phase in phases(cluster, topologies, lose_in_memory, QUIET_SECS):
        both = phase.nimbus, phase.supervisors
        writes, reads = sum(each.writes for each in both), sum(each.reads for each in both)
        written = sum(each.written for each in both) / 1_000
        secs = max(1, phase.seconds)
        each_one = phase.supervisors.reads / secs / supervisors
        print(
            f"{phase.name:22}{phase.seconds:8}{writes:9,}{written:9,.0f}{reads:10,}"
            f"{writes / secs:19,.1f}{reads / secs:9,.0f}  ({each_one:,.1f})"
        )


def check(supervisors: int, topologies: int) -> None:
    """Run the same load over a real ZooKeeper, and show our count of writes beside its number of transactions."""
    with tempfile.TemporaryDirectory() as folder, server_in(Path(folder)) as plan:
        stores: list[ZooKeeperStore] = []

        def session() -> Store:
            stores.append(ZooKeeperStore(plan.address, session_secs=SESSION_SECS))
            stores[-1].start(60.0)
            return stores[-1]

        def lose(cluster: Cluster) -> None:
            cluster.supervisors.pop(0)
            lost = cluster.sessions.pop(0)
            assert isinstance(lost, ZooKeeperStore)
            lost.close()

        cluster = Cluster(RealClock(), session, supervisors, topologies)
        print(f"\n{supervisors} supervisors, {topologies} topologies, over a real ZooKeeper")
        print(f"{'':22}{'seconds':>8}{'our writes':>12}{'its transactions':>18}{'its packets':>13}")
        before = counted_by(plan)
        for phase in phases(cluster, topologies, lose, 20):
            now = counted_by(plan)
            writes = phase.nimbus.writes + phase.supervisors.writes
            transactions, packets = (one - other for one, other in zip(now, before))
            print(f"{phase.name:22}{phase.seconds:8}{writes:12,}{transactions:18,}{packets:13,}")
            before = now
        for store in stores:
            store.close()


def counted_by(plan: ServerPlan) -> tuple[int, int]:
    """Return the number of a server's latest transaction, and how many packets it has received."""
    zxid = next(line for line in ask(plan.host, plan.port, "srvr").splitlines() if line.startswith("Zxid: "))
    figures = dict(
        line.split("\t", 1) for line in ask(plan.host, plan.port, "mntr").splitlines() if "\t" in line
    )
    return int(zxid.partition("0x")[2], 16), int(float(figures["zk_packets_received"]))


@contextmanager
def server_in(folder: Path) -> Iterator[ServerPlan]:
    """A ZooKeeper server of its own, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plan = ServerPlan(folder, "127.0.0.1", port)
    plan.write()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(plan.command(find_java(), find_jars(None)), stdout=log, stderr=log)
    try:
        while mode(plan.host, plan.port) is None:
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield plan
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--supervisors", default="1,100,1000")
    parser.add_argument("--topologies", type=int, default=50)
    parser.add_argument("--check", action="store_true", help="set beside what a real ZooKeeper counts")
    arguments = parser.parse_args()
    print(machine())
    if arguments.check:
        check(10, 8)
        return
    for number in arguments.supervisors.split(","):
        count(int(number), arguments.topologies)
