"""Supervisor daemons in this process, over a store in memory, with a Nimbus that they reach by real HTTP, and fake workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from nimbus.submission.submission import Submission
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from supervisor.daemon import SupervisorDaemon, SupervisorSettings
from supervisor.directories import Directories, read_started
from supervisor.plan import Timeouts
from tests.flaky_store import FlakyStore
from tests.supervisor.hosts import CAP, a_topology, fake_command
from tests.supervisor.nimbus_over_http import FakeNimbus
from tests.supervisor.programs import runs
from topology_api.options import defaults


class Cluster:
    """One Nimbus, and any number of supervisor daemons."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.store = InMemoryStore()
        self.registry = Registry(self.store)
        self.nimbus = FakeNimbus(self.store)
        self.others: list[FakeNimbus] = []
        #: Each supervisor's view of the store, by its state directory.
        self.seen: dict[str, FlakyStore] = {}
        self.daemons: list[SupervisorDaemon] = []

    def settings(self, name: str = "s1", **changes: Any) -> SupervisorSettings:
        settings = SupervisorSettings(
            state=self.tmp / name, host=name, slots=2, limits=Timeouts(stop=5.0), command=fake_command
        )
        return structs.replace(settings, **changes)

    def start(self, name: str = "s1", **changes: Any) -> SupervisorDaemon:
        """Start a daemon, and wait until it is registered."""
        store = self.seen[name] = FlakyStore(self.store.session())
        daemon = SupervisorDaemon(store, self.settings(name, **changes))
        self.daemons.append(daemon)
        daemon.start()
        self.until(lambda: daemon.id in {record.id for record in self.registry.all_supervisors()})
        return daemon

    def stop(self, daemon: SupervisorDaemon, end_workers: bool = False) -> None:
        self.daemons.remove(daemon)
        daemon.stop(end_workers)

    def standby(self, id: str) -> FakeNimbus:
        self.others.append(FakeNimbus(self.store, id, leads=False))
        return self.others[-1]

    def submit(
        self,
        name: str = "words",
        workers: int = 2,
        fake: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        **conf: Any,
    ) -> TopologyRecord:
        merged = {**defaults(), "topology.workers": workers, "fake": dict(fake or {}), **conf}
        topology = a_topology(name, max(workers, 2))
        record: TopologyRecord = self.nimbus.do(
            lambda nimbus: nimbus.submit(
                Submission(topology, merged, {"lines": merged}, files=dict(files or {}))
            )
        )
        return record

    def kill(self, name: str = "words") -> None:
        self.nimbus.do(lambda nimbus: nimbus.kill(name, wait_secs=0))

    def tick(self) -> None:
        self.nimbus.do(lambda nimbus: nimbus.tick())

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Let time pass until a condition holds."""
        end = time.monotonic() + CAP
        while not condition():
            assert time.monotonic() < end, f"{what or 'it'} did not happen; notes: {self.nimbus.notes()}"
            self.tick()
            time.sleep(0.01)

    def report(self, worker: str, name: str = "words") -> WorkerReport | None:
        record = self.registry.topologies.get(name)
        return None if record is None else self.registry.report(record.id, worker)

    def opened(self, *workers: str, name: str = "words") -> bool:
        reports = [self.report(worker, name) for worker in workers]
        return all(report is not None and report.opened for report in reports)

    def pids(self, name: str = "s1") -> dict[str, int]:
        """The processes that a supervisor has recorded in its directory, by worker."""
        return pids_below(self.tmp / name)

    def end(self) -> None:
        for daemon in list(self.daemons):
            self.stop(daemon, end_workers=True)
        for nimbus in (self.nimbus, *self.others):
            nimbus.close()
        end_workers_below(self.tmp)


def pids_below(state: Path) -> dict[str, int]:
    """The running worker processes that are recorded in a state directory, by worker."""
    found = {}
    for directory in Directories(state).workers():
        started = read_started(directory)
        if started is not None and started.pid and runs(started.pid):
            found[directory.name] = started.pid
    return found


def end_workers_below(folder: Path) -> None:
    """End every worker that any supervisor left there."""
    for state in folder.iterdir() if folder.is_dir() else ():
        for pid in pids_below(state).values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


@contextmanager
def cluster_in(tmp: Path) -> Iterator[Cluster]:
    """A cluster that is ended, whatever happens."""
    cluster = Cluster(tmp)
    try:
        yield cluster
    finally:
        cluster.end()
