"""The engine of a local cluster: Nimbus, the supervisors and all virtual workers, run in turn by whoever drives it.

`round` does what can be done now, `next_time` says when there will be more. A driver with a thread (`driver.py`) makes it
run in real time, a driver that moves a manual clock makes it a simulation; the engine cannot tell.
Must not know: threads, real time, the user's calls.
"""

from __future__ import annotations

from collections.abc import Callable

from local_cluster.stamps import new_stamp
from local_cluster.virtual_host import MakeWorker, VirtualHost, WorkerSettings
from nimbus.counting import Statuses
from nimbus.master import Nimbus
from squall.clock import Clock
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from worker.worker import Worker

#: Rounds of busy workers between two looks at the control plane.
ROUNDS_BETWEEN_SYNCS = 64


class Engine:
    """One local cluster without time of its own."""

    def __init__(
        self,
        clock: Clock,
        make_worker: MakeWorker,
        directory: Callable[[], str],
        supervisors: int,
        slots: int,
        seed: int,
        encoded: bool,
        observers: tuple[object, ...],
        calls_an_instant: int | None,
    ) -> None:
        self.clock = clock
        self.store = InMemoryStore()
        self.registry = Registry(self.store)
        self.nimbus = Nimbus(self.store, clock, stamp=new_stamp)
        self.statuses = Statuses(self.store, self.nimbus.counters, clock.now)
        settings = WorkerSettings(clock, directory, seed, encoded, observers, calls_an_instant, make_worker)
        self.host = VirtualHost(self.registry, self.nimbus, settings, supervisors, slots)
        self.changed = True
        self.store.watch("/", self.note_change)
        self.rounds = 0
        self.last_look = clock.now()

    def note_change(self, path: str) -> None:
        """Something was written to the store."""
        self.changed = True

    def round(self) -> bool:
        """One step of every worker; the control plane when something changed or the workers rest. Whether anything was done."""
        busy = False
        workers = self.host.workers()
        patience = min((worker.timers.report_every for worker in workers), default=float("inf"))
        for worker in workers:
            self.report_after_stall(workers, patience)
            busy |= worker.step()
        now = self.clock.now()
        self.rounds += 1
        due = self.nimbus.due
        crashed = any(worker.crash for worker in workers)
        if (
            not busy
            or self.changed
            or crashed
            or self.rounds >= ROUNDS_BETWEEN_SYNCS
            or (due is not None and now >= due)
        ):
            self.rounds = 0
            busy |= self.sync()
        return busy

    def sync(self) -> bool:
        """Let Nimbus do what is due and the host follow; whether that changed anything."""
        changed, self.changed = self.changed, False
        due = self.nimbus.due
        if changed or (due is not None and self.clock.now() >= due):
            self.nimbus.tick()
            self.host.sync()
        else:  # an idle topology looks here a hundred times a second: only its workers can have news
            self.host.sync_if_reported()
        return self.changed

    def report_after_stall(self, workers: list[Worker], patience: float) -> None:
        """A user's call has held up everything for `patience` seconds or more, perhaps in the step of the worker before: all
        workers first say what merely waited, before any of them lets a tree expire."""
        now = self.clock.now()
        last, self.last_look = self.last_look, now
        if now - last >= patience:
            for worker in workers:
                worker.report_held(now)

    def count(self, name: str) -> None:
        """Let Nimbus know what the workers of a topology have counted so far; from any thread."""
        self.host.count_all(name)

    def stop(self) -> None:
        """Stop all workers at once."""
        self.host.stop()

    def next_time(self) -> float | None:
        """When a round is due though nothing comes in."""
        times = [worker.next_time() for worker in self.host.workers()]
        times.append(self.nimbus.due)
        return min((time for time in times if time is not None), default=None)
