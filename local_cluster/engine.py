"""The engine of a local cluster in one process: a driver runs Nimbus, the supervisors and all virtual workers in turn.

`round` does all work that is due now; `next_time` returns the time at which more work will be due. One driver (`driver.py`)
runs the engine in a thread, in real time; the other driver moves a manual clock, and so simulates time. The engine cannot
distinguish the two.
Must not know: threads, real time, the user's calls.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from local_cluster.collector import PACE
from local_cluster.driver import RunningCall
from local_cluster.stamps import new_stamp
from local_cluster.virtual_host import VirtualHost, WorkerSettings
from nimbus.counters.counting import Statuses
from nimbus.leader.master import Nimbus
from squall.clock import Clock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import FORMAT, SupervisorRecord
from squall.cluster.registry import Registry
from supervisor.agent import LoopPace, Supervisor, WorkerTerms
from worker.loop.worker import Worker

#: How many rounds busy workers get between two turns of the control plane.
ROUNDS_BETWEEN_SYNCS = 64
#: The most calls of each supervisor's `sync` within one round; each call may make the next one necessary.
MOST_SYNCS = 8
#: Supervisors of a local cluster work only when they are called, and send no heartbeats: nothing becomes due only because time
#: passes.
_PACE = LoopPace(soon=0.0, at_rest=math.inf, heartbeat=math.inf, reread=math.inf, repeat=0.0)


class Engine:
    """A local cluster in one process. It has no thread of its own: its driver calls it, and advances the clock."""

    def __init__(
        self,
        clock: Clock,
        settings: WorkerSettings,
        supervisors: int,
        slots: int,
        control: AbstractContextManager[object],
    ) -> None:
        """`control`: entered for all work except the processing of tuples; commands enter it, too."""
        self.clock = clock
        self.control = control
        self.store = InMemoryStore()
        self.registry = Registry(self.store)
        self.nimbus = Nimbus(self.store, clock, stamp=new_stamp)
        self.statuses = Statuses(self.store, self.nimbus.counters, clock.now)
        self.host = VirtualHost(self.store, settings, self.nimbus.counters.count)
        self.supervisors = [
            Supervisor(
                SupervisorRecord(name, name, slots, reads=FORMAT),
                Registry(self.store),
                self.nimbus,
                self.host,
                clock,
                WorkerTerms(lease_secs=math.inf, pace=_PACE),
            )
            for name in sorted(f"local-{number}" for number in range(1, supervisors + 1))
        ]
        for supervisor in self.supervisors:
            supervisor.register()
        self.changed = True
        self.store.watch("/", self.note_change)
        self.rounds = 0
        self.last_look = clock.now()

    def note_change(self, path: str) -> None:
        """Note that something was written to the store."""
        self.changed = True

    def round(self) -> bool:
        """Step every worker, and also the control plane if something changed or all workers are idle. Return whether any of
        them did something."""
        busy = False
        PACE.adapt()
        workers = self.host.workers()
        patience = min((worker.timers.report_every for worker in workers), default=float("inf"))
        for worker in workers:
            self.report_after_stall(workers, patience)
            busy |= worker.step()
        if self.host.starting:
            self.host.end_starts(self.clock.now())
        self.rounds += 1
        crashed = any(worker.crash for worker in workers)
        if not busy or self.changed or crashed or self.rounds >= ROUNDS_BETWEEN_SYNCS or self.nimbus_is_due():
            self.rounds = 0
            busy |= self.sync()
        return busy

    def sync(self) -> bool:
        """Let Nimbus do its due work, then let the supervisors carry out the changes; return whether anything changed."""
        with self.control:
            return self.sync_in_control()

    def sync_in_control(self) -> bool:
        """As `sync`."""
        changed, self.changed = self.changed, False
        now = self.clock.now()
        if changed or self.nimbus_is_due():
            self.nimbus.tick()
        busy = self.changed
        for _ in range(MOST_SYNCS):
            self.changed = self.host.changed = False
            for supervisor in self.supervisors:
                supervisor.sync(now)
            if not (self.changed or self.host.changed):
                break
            busy = True
        self.host.settle()
        return busy

    def nimbus_is_due(self) -> bool:
        """Return whether Nimbus has work to do now, even if nothing changed."""
        due = self.nimbus.due  # read once: a command in another thread may clear it at any moment
        return due is not None and self.clock.now() >= due

    def report_after_stall(self, workers: list[Worker], patience: float) -> None:
        """Send keep-alives if a user's call, perhaps in another worker, blocked everything for `patience` seconds or more. So
        each worker keeps alive the trees that only waited, before any worker lets a tree expire."""
        now = self.clock.now()
        last, self.last_look = self.last_look, now
        if now - last >= patience:
            for worker in workers:
                worker.send_keep_alives(now)

    def count(self, name: str) -> None:
        """Pass the counters of a topology's workers to Nimbus. May be called from any thread."""
        self.host.count_all(name)

    def stop(self) -> None:
        """Stop all workers at once."""
        with self.control:
            self.host.stop()

    def running_call(self) -> RunningCall | None:
        """Return the component's call that is running in the engine's own thread. May be called from any thread."""
        for container in self.host.containers():
            worker = container.worker
            task = None if worker is None else worker.running
            if worker is not None and task is not None:
                first, last = (
                    ("open()", "close()") if task.spec.kind == "spout" else ("prepare()", "cleanup()")
                )
                what = first if not task.opened else last if task.closed else "a call"
                place = f"{task.spec.id}[{task.id}] of topology {worker.plan.topology.name!r}"
                return RunningCall(f"{what} of {place}", self.clock.now() - task.busy_since)
        return None

    def next_time(self) -> float | None:
        """Return the time at which a round is due even if nothing arrives."""
        times = [*(worker.next_time() for worker in self.host.workers()), self.nimbus.due]
        return min((time for time in times if time is not None), default=None)
