"""A supervisor of virtual workers: what a supervisor daemon does with processes, inside one process.

It reads Nimbus's assignments from the store, makes a `worker.Worker` for each placement of its own, has it do what the
topology's state says (the table `WHAT_A_STATE_ASKS`), and reports back. It does not know whether time is real.
Must not know: the user's calls on the cluster, terminals.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nimbus.master import Nimbus
from squall.clock import Clock
from squall.cluster.blobs import get_bundle
from squall.cluster.records import Assignment, Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.transport.exchange import GONE
from squall.transport.loopback import Loopback
from squall.transport.streams import Streams
from squall.worker_files import WHAT_A_STATE_ASKS
from topology_api import Topology
from worker.peers import waiting_in
from worker.plan import WorkerPlan
from worker.snapshot import worker_counters
from worker.worker import Worker

MakeWorker = Callable[[WorkerPlan, Loopback], Worker]


@dataclass
class Hosted:
    """One topology, as far as its workers run here."""

    record: TopologyRecord
    topology: Topology
    loopback: Loopback
    assignment: Assignment
    workers: dict[str, Worker] = field(default_factory=dict)
    #: The version of the assignment that placed a worker, and how often the worker was made anew since; the latest by name.
    incarnations: dict[Worker, tuple[int, int]] = field(default_factory=dict)
    latest: dict[str, tuple[int, int]] = field(default_factory=dict)
    reported: dict[str, WorkerReport] = field(default_factory=dict)
    finished: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WorkerSettings:
    """What all virtual workers of a cluster share."""

    clock: Clock
    directory: Callable[[], str]
    seed: int
    encoded: bool
    observers: tuple[object, ...]
    calls_an_instant: int | None
    make: MakeWorker


class VirtualHost:
    """All supervisors of a local cluster, and the virtual workers in their slots."""

    def __init__(
        self, registry: Registry, nimbus: Nimbus, settings: WorkerSettings, supervisors: int, slots: int
    ) -> None:
        self.registry = registry
        self.nimbus = nimbus
        self.settings = settings
        self.hosted: dict[str, Hosted] = {}
        self.supervisors = {f"local-{number}" for number in range(1, supervisors + 1)}
        for name in sorted(self.supervisors):
            registry.save_supervisor(SupervisorRecord(name, name, slots))

    def workers(self) -> list[Worker]:
        """All workers that are running."""
        return [worker for hosted in self.hosted.values() for worker in hosted.workers.values()]

    # From the store to the workers.

    def sync(self) -> None:
        """Make the workers what the store says; report what they say."""
        for _ in itertools.repeat(None, 8):  # a report may lead to a new state at once
            records = {record.name: record for record in self.registry.topologies()}
            for name, record in records.items():
                self.follow(name, record)
                self.report_never_started(name, record)
            if not self.report():
                break
        for name in [name for name in self.hosted if name not in records]:
            if not self.hosted[name].workers:
                del self.hosted[name]

    def sync_if_reported(self) -> None:
        """The store is as it was: nothing to follow, unless the workers have something new to report."""
        if self.report():
            self.sync()

    def follow(self, name: str, record: TopologyRecord) -> None:
        """One topology: start and stop its workers, and have them do what its state asks."""
        assignment = self.registry.assignment(record.id)
        hosted = self.hosted.get(name)
        if hosted is None or hosted.record.id != record.id:
            if assignment is None:
                return
            hosted = self.hosted[name] = self.host(record, assignment)
            self.place(hosted)
        else:
            if hosted.record.state != record.state:
                hosted.reported.clear()  # what was said for another state is said again
            hosted.record = record
            if assignment is None:
                self.stop_workers(hosted)
            elif assignment.version != hosted.assignment.version:
                self.replace_workers(hosted, assignment)
        asked = WHAT_A_STATE_ASKS[record.state]
        for worker in list(hosted.workers.values()):
            self.ask(hosted, worker, asked)

    def report_never_started(self, name: str, record: TopologyRecord) -> None:
        """Workers that were assigned and withdrawn again since the last look, by two orders in a row, never ran here: say that
        they are gone, or the topology would wait for them for ever."""
        hosted = self.hosted.get(name)
        running = hosted.workers if hosted is not None and hosted.record.id == record.id else {}
        leaving = self.registry.leaving(record.id)
        for place in () if leaving is None else leaving.placements:
            if place.supervisor in self.supervisors and place.worker not in running:
                gone = WorkerReport(place.worker, place.incarnation, False, False, False, True, None)
                self.nimbus.report(name, place.worker, gone)

    def replace_workers(self, hosted: Hosted, assignment: Assignment) -> None:
        """A new version of the assignment: workers that are not in it stop, those that stay are told, new ones are made."""
        staying = {(place.worker, place.incarnation) for place in assignment.placements}
        gone: list[Worker] = []
        for worker in list(hosted.workers.values()):
            hosted.finished |= exhausted(worker)  # a worker that stays may lose a spout
            place = self.placement(hosted, worker.name)
            if place is None or (place.worker, place.incarnation) not in staying:
                gone.append(worker)
                self.stop_worker(hosted, worker)
        hosted.finished = still_finished(hosted)
        hosted.assignment = assignment
        hosted.reported.clear()
        for worker in hosted.workers.values():
            for other in gone:
                worker.peers.superseded(other.name)
        self.place(hosted)
        left = [sent for worker in gone for sent in waiting_in(worker)]
        if left and hosted.workers:  # any of them knows where the trackers are
            next(iter(hosted.workers.values())).peers.lost(left, GONE)

    def host(self, record: TopologyRecord, assignment: Assignment) -> Hosted:
        """Fetch the topology's bundle and prepare to host it."""
        topology = get_bundle(self.registry.store, record.id)
        component_of = {task: component for task, component, _ in record.tasks}
        streams = Streams.of(topology, component_of)
        loopback = Loopback(streams, self.settings.encoded, str(record.conf["topology.transport.codec"]))
        return Hosted(record, topology, loopback, assignment)

    def place(self, hosted: Hosted) -> None:
        """Make the workers of an assignment, and tell those that are there."""
        record = hosted.record
        counts = Counter(component for _, component, _ in record.tasks)
        topology = hosted.topology.with_parallelism(counts)
        # Frames that are still on their way may name a task that is no more.
        streams = hosted.loopback.streams
        streams.component_of = {**streams.component_of, **{task: name for task, name, _ in record.tasks}}
        worker_of = {task: place.worker for place in hosted.assignment.placements for task in place.tasks}
        for place in hosted.assignment.placements:
            if place.supervisor not in self.supervisors:
                continue
            there = hosted.workers.get(place.worker)
            if there is not None:
                incarnation = hosted.incarnations[there]
            else:
                version, restarts = hosted.latest.get(place.worker, (0, 0))
                incarnation = place.incarnation[0], restarts + 1 if version == place.incarnation[0] else 0
            plan = WorkerPlan(
                worker=place.worker,
                topology=topology,
                tasks=record.tasks,
                worker_of=worker_of,
                conf=record.conf,
                component_confs=record.component_confs,
                directory=f"{self.settings.directory()}/{record.id}",
                seed=self.settings.seed,
                observers=self.settings.observers,
                finished=hosted.finished,
                calls_an_instant=self.settings.calls_an_instant,
                incarnation=incarnation,
                topology_id=record.id,
            )
            if there is not None:
                there.replan(plan)
                continue
            worker = self.settings.make(plan, hosted.loopback)
            hosted.incarnations[worker] = hosted.latest[place.worker] = incarnation
            hosted.workers[place.worker] = worker
            hosted.loopback.join(place.worker, worker.deliver)

    def ask(self, hosted: Hosted, worker: Worker, asked: str) -> None:
        """Have a worker do what its topology's state asks."""
        if asked == "run":
            if not worker.started:
                worker.start()
            worker.activate()
        elif asked == "pause":
            if worker.started:
                worker.deactivate()
        elif asked == "drain":
            worker.drain()
        elif asked == "stop":
            self.stop_worker(hosted, worker)

    def stop_workers(self, hosted: Hosted) -> None:
        """Stop all workers of a topology."""
        for worker in list(hosted.workers.values()):
            self.stop_worker(hosted, worker)

    def stop_worker(self, hosted: Hosted, worker: Worker, tell: bool = True) -> None:
        """Stop a worker, keep its counters, and (`tell`) say so."""
        worker.stop()
        for _, component, index in worker.plan.own_tasks:
            shutil.rmtree(worker.plan.scratch(component, index), ignore_errors=True)
        hosted.finished |= exhausted(worker)
        self.count(hosted, worker)
        incarnation = hosted.incarnations.pop(worker)
        hosted.workers.pop(worker.name, None)
        hosted.loopback.leave(worker.name)
        last = hosted.reported.pop(worker.name, None)
        place = self.placement(hosted, worker.name)
        if place is not None and tell:
            report = last or WorkerReport(worker.name, incarnation, False, False, False, False, None)
            self.nimbus.report(hosted.record.name, worker.name, replace(report, stopped=True))

    # From the workers to Nimbus.

    def count(self, hosted: Hosted, worker: Worker) -> None:
        """Tell what a worker has counted."""
        incarnation = hosted.incarnations.get(worker)
        if incarnation is not None:  # it has not been stopped meanwhile
            counters = worker_counters(worker)
            self.nimbus.counters.count(hosted.record.id, worker.name, incarnation, counters)

    def count_all(self, name: str) -> None:
        """Tell what all workers of a topology have counted; from any thread."""
        hosted = self.hosted.get(name)
        if hosted is not None:
            for worker in list(hosted.workers.values()):
                self.count(hosted, worker)

    def report(self) -> bool:
        """Tell Nimbus what changed; whether anything did."""
        changed = False
        for hosted in list(self.hosted.values()):
            for worker in list(hosted.workers.values()):
                place = self.placement(hosted, worker.name)
                if place is None:
                    continue
                report = WorkerReport(
                    worker=worker.name,
                    incarnation=hosted.incarnations[worker],
                    opened=worker.opened,
                    ended=worker.ended,
                    drained=worker.drained or (worker.draining and not worker.started),
                    stopped=False,
                    crash=worker.crash.render() if worker.crash else None,
                    version=hosted.assignment.version,
                    finished=tuple(sorted(exhausted(worker))),
                )
                if hosted.reported.get(worker.name) != report:
                    changed = True
                    hosted.reported[worker.name] = report
                    self.nimbus.report(hosted.record.name, worker.name, report)
        return changed

    def placement(self, hosted: Hosted, worker: str) -> Placement | None:
        """Where the current assignment has a worker."""
        return next((place for place in hosted.assignment.placements if place.worker == worker), None)

    def stop(self) -> None:
        """Stop everything at once."""
        for hosted in self.hosted.values():
            self.stop_workers(hosted)


def exhausted(worker: Worker) -> set[int]:
    """The spouts of a worker that have nothing more to do, ever."""
    return {spout.id for spout in worker.spouts if spout.exhausted}


def still_finished(hosted: Hosted) -> frozenset[int]:
    """The finished spouts, but for those of components whose number of tasks has changed since the assignment that is hosted:
    of these the record alone says which are not to be opened again."""
    record = hosted.record
    anew = {component for component, last in record.renumbered.items() if last >= hosted.assignment.version}
    others = {task for task, component, _ in record.tasks if component not in anew}
    return hosted.finished & others | set(record.finished)
