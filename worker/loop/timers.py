"""What a worker has to do at certain times: ticks, keep-alives, timeouts, batches.

Must not know: the loop, links, user code.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from worker.loop.plan import WorkerPlan
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.stateful_bolt import StatefulBoltTask
from worker.tracking.timing_wheel import TICKS_PER_TIMEOUT


class Timers:
    """The times of one worker, all in seconds of its clock."""

    def __init__(self, plan: WorkerPlan, now: float) -> None:
        timeout = shortest_timeout(plan)
        #: Seconds between keep-alives: a quarter of the shortest message timeout.
        self.report_every = timeout / 4 if timeout else float("inf")
        #: Seconds between checks for timeouts: half a tick of the timing wheel.
        self.expiry_every = timeout / TICKS_PER_TIMEOUT / 2 if timeout else float("inf")
        self.next_report = now + self.report_every
        self.next_expiry = now + self.expiry_every
        self.now = now
        self.ticks: list[tuple[float, int, float, BoltTask]] = []
        self.batch_bolts: list[BatchBoltTask] = []
        self.stateful_bolts: list[StatefulBoltTask] = []
        #: Bolt tasks that were down after their last run.
        self.probing: dict[int, BoltTask] = {}
        self.assign(plan)

    def assign(self, plan: WorkerPlan) -> None:
        """Take the names of the other workers from a plan."""
        self.other_workers = sorted(set(plan.worker_of.values()) - {plan.worker})

    def drop(self, bolt: BoltTask) -> None:
        """Drop the timers of a task that is gone."""
        self.ticks = [entry for entry in self.ticks if entry[3] is not bolt]
        heapq.heapify(self.ticks)
        self.batch_bolts = [other for other in self.batch_bolts if other is not bolt]
        self.stateful_bolts = [other for other in self.stateful_bolts if other is not bolt]
        self.probing.pop(bolt.id, None)

    def add_ticks(self, bolts: Iterable[BoltTask]) -> None:
        """Schedule the ticks of these tasks, from `self.now` on."""
        for bolt in bolts:
            if isinstance(bolt, BatchBoltTask):
                self.batch_bolts.append(bolt)
            if isinstance(bolt, StatefulBoltTask):
                self.stateful_bolts.append(bolt)
            if interval := tick_interval(bolt):
                heapq.heappush(self.ticks, (self.now + interval, bolt.id, interval, bolt))

    def due_ticks(self, now: float) -> list[BoltTask]:
        """Return the tasks whose tick is due. Missed ticks are skipped."""
        due = []
        while self.ticks and self.ticks[0][0] <= now:
            time, task, interval, bolt = heapq.heappop(self.ticks)
            missed = int((now - time) / interval)
            heapq.heappush(self.ticks, (time + (missed + 1) * interval, task, interval, bolt))
            due.append(bolt)
        return due

    @property
    def timed_bolts(self) -> list[BatchBoltTask | StatefulBoltTask]:
        """The tasks that have something to do at a certain time even if nothing arrives."""
        return [*self.batch_bolts, *self.stateful_bolts]

    def due_probes(self, now: float) -> list[BoltTask]:
        """Return the tasks that are down and may execute a tuple now."""
        return [bolt for bolt in self.probing.values() if bolt.awaits_probe() and bolt.may_execute(now)]

    def next_probe(self) -> float | None:
        """Return the time of the next probe."""
        probes = [bolt.probing for bolt in self.probing.values() if bolt.awaits_probe()]
        return min((probing.due for probing in probes if probing is not None), default=None)

    def next_tick(self) -> float | None:
        """Return the time at which the next tick is due."""
        while self.ticks and self.ticks[0][3].end_called:
            heapq.heappop(self.ticks)
        return self.ticks[0][0] if self.ticks else None


def shortest_timeout(plan: WorkerPlan) -> float | None:
    """Return the shortest message timeout of the topology's spouts in seconds; None if timeouts are off for all spouts."""
    confs = [plan.conf_of(spout.id) for spout in plan.topology.spouts]
    timed = [conf for conf in confs if conf["topology.enable.message.timeouts"]]
    return min((float(conf["topology.message.timeout.secs"]) for conf in timed), default=None)


def tick_interval(bolt: BoltTask) -> float | None:
    """Return the bolt's own `tick_interval` in seconds; if it has none, the configured interval."""
    own = bolt.instance.tick_interval
    value = bolt.context.conf["topology.tick.tuple.freq.secs"] if own is None else own
    return float(value) if value else None  # type: ignore[arg-type]
