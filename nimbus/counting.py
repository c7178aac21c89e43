"""What topologies have done, from what their workers count; and the status that a user is shown.

`Counters` keeps the latest counters of each worker and the sums of workers that are gone, so that a total never falls when
a worker is replaced. `Statuses` puts them beside the records. Both may be asked from any thread.
Must not know: how counters come here, who asks.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.counters import BadCounters, ComponentCounters, WorkerCounters
from squall.cluster.records import Placement, TopologyRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.error_reports import KEPT, ErrorReport
from squall.status import ComponentStatus, TopologyStatus
from squall.telemetry import Histogram
from topology_api.errors import NoSuchTopology

_log = logging.getLogger(__name__)

#: Topologies that are gone and still remembered.
PAST = 4
#: Why a spout that has no tasks at this moment does not emit, by the topology's state; in all other states: inactive.
WITHOUT_TASKS = {"ACTIVE": "not open yet", "COMPLETED": "finished"}

Incarnation = tuple[int, int]
#: The components of a topology in the order of declaration: (id, kind).
Components = tuple[tuple[str, str], ...]


@dataclass
class Counted:
    """What was heard of one topology."""

    #: The latest counters of each worker.
    workers: dict[str, tuple[Incarnation, WorkerCounters]] = field(default_factory=dict)
    #: Sums of the incarnations that are gone, and their latest errors; whose they are: worker -> its latest that is in them.
    base: dict[str, ComponentCounters] = field(default_factory=dict)
    reports: dict[str, deque[ErrorReport]] = field(default_factory=dict)
    folded: dict[str, Incarnation] = field(default_factory=dict)

    def count(self, worker: str, incarnation: Incarnation, counters: WorkerCounters) -> None:
        """Take the counters of a worker, unless later ones are here already."""
        if incarnation <= self.folded.get(worker, (-1, -1)):
            return
        last = self.workers.get(worker)
        if last is not None:
            if incarnation < last[0] or (incarnation == last[0] and counters.number < last[1].number):
                return
            if incarnation > last[0]:
                self.fold(worker)
        self.workers[worker] = incarnation, counters

    def fold(self, worker: str) -> None:
        """An incarnation is gone, and another will count on: keep what it has done, forget how it was."""
        incarnation, counters = self.workers.pop(worker)
        self.folded[worker] = incarnation
        for component, done in counters.components.items():
            self.base.setdefault(component, ComponentCounters()).add(done)
        for report in counters.reports:
            self.reports.setdefault(report.component, deque(maxlen=KEPT)).append(report)

    def totals(self, component: str, living: Collection[tuple[str, Incarnation]]) -> ComponentCounters:
        """All that a component has done; how it is at this moment, as far as `living` say so.

        When none lives, how it was at the end: trees of a worker that was killed never had a verdict.
        """
        totals = ComponentCounters()
        if component in self.base:
            totals.add(self.base[component])
        for worker, (incarnation, counters) in self.workers.items():
            here = counters.components.get(component)
            if here is None:
                continue
            totals.add(here)
            if not living or (worker, incarnation) in living:
                totals.add_present(here)
        if not living:
            totals.idle.clear()
        return totals

    def latest_reports(self) -> tuple[ErrorReport, ...]:
        """The latest errors of all workers, the oldest first."""
        found = [report for reports in self.reports.values() for report in reports]
        found += [report for _, counters in self.workers.values() for report in counters.reports]
        return tuple(sorted(found, key=lambda report: report.time))


class Counters:
    """The counters of all topologies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topologies: dict[str, Counted] = {}
        #: Of the latest topologies that are gone, by name: how to make their final status.
        self._past: dict[str, Callable[[float], TopologyStatus]] = {}

    def count(
        self, topology_id: str, worker: str, incarnation: Incarnation, counters: WorkerCounters
    ) -> None:
        """Take the counters of a worker."""
        with self._lock:
            self._topologies.setdefault(topology_id, Counted()).count(worker, incarnation, counters)

    def count_bytes(self, topology_id: str, worker: str, incarnation: Incarnation, data: bytes) -> None:
        """Take the counters that a worker process wrote; of bytes that are none a warning is left."""
        try:
            self.count(topology_id, worker, incarnation, WorkerCounters.from_bytes(data))
        except BadCounters as error:
            _log.warning("%s: the counters of worker %s cannot be read: %s", topology_id, worker, error)

    def replaced(self, topology_id: str, worker: str, version: int) -> None:
        """A worker of this assignment is gone, and the topology goes on without it."""
        with self._lock:
            counted = self._topologies.get(topology_id)
            last = None if counted is None else counted.workers.get(worker)
            if counted is not None and last is not None and last[0][0] == version:
                counted.fold(worker)

    def status(
        self,
        record: TopologyRecord,
        components: Components,
        living: Mapping[str, Incarnation],
        now: float,
    ) -> TopologyStatus:
        """The status of a topology, of whose workers these are alive."""
        with self._lock:
            counted = self._topologies.get(record.id, Counted())
            return topology_status(record, components, counted, living, now)

    def of_workers(self, topology_id: str) -> list[tuple[str, Incarnation, WorkerCounters]]:
        """The latest word of each worker that is counted by itself, by name."""
        with self._lock:
            counted = self._topologies.get(topology_id, Counted())
            return [(worker, *counted.workers[worker]) for worker in sorted(counted.workers)]

    def close(self, record: TopologyRecord, components: Components) -> None:
        """A topology is gone: keep its final counters for a while."""
        with self._lock:
            counted = self._topologies.pop(record.id, Counted())
            self._past.pop(record.name, None)
            self._past[record.name] = lambda now: topology_status(record, components, counted, {}, now)
            if len(self._past) > PAST:
                del self._past[next(iter(self._past))]

    def last(self, name: str, now: float) -> TopologyStatus | None:
        """The final status of the latest topology of that name that is gone, while it is remembered."""
        with self._lock:
            final = self._past.get(name)
            return None if final is None else final(now)


class Statuses:
    """The records of a store and the counters, put together for whoever asks."""

    def __init__(self, store: Store, counters: Counters, now: Callable[[], float]) -> None:
        self._store = store
        self._registry = Registry(store)
        self._counters = counters
        self._now = now
        self._components: dict[str, Components] = {}

    def status(self, name: str) -> TopologyStatus:
        """State and counters of a topology; NoSuchTopology for an unknown name."""
        record = self._registry.topology(name)
        if record is None:
            raise NoSuchTopology(name)
        try:
            components = self.components(record.id)
        except BadBlob:
            if self._registry.topology(name) is record:
                raise
            raise NoSuchTopology(name) from None  # it went meanwhile
        return self._counters.status(record, components, self.living(record), self._now())

    def last_status(self, name: str) -> TopologyStatus:
        """As `status`, and of a topology that is gone the final one, while it is among the latest of them."""
        try:
            return self.status(name)
        except NoSuchTopology:
            final = self._counters.last(name, self._now())
            if final is None:
                raise
            return final

    def components(self, topology_id: str) -> Components:
        """The components of a topology that was shipped."""
        if topology_id not in self._components:
            found = components_of(get_description(self._store, topology_id))
            there = {record.id for record in self._registry.topologies()}
            self._components = {
                known: self._components[known] for known in self._components if known in there
            }
            self._components[topology_id] = found
        return self._components[topology_id]

    def living(self, record: TopologyRecord) -> dict[str, Incarnation]:
        """The workers of a topology that are to be there or on their way out, with their incarnations."""
        reports = self._registry.reports(record.id)
        supervisors = {supervisor.id for supervisor in self._registry.supervisors()}
        living = {}
        for place in self._placements(record.id):
            report = reports.get(place.worker)
            if report is not None and report.incarnation[0] != place.incarnation[0]:
                report = None
            if place.supervisor in supervisors and (report is None or not report.stopped):
                living[place.worker] = place.incarnation if report is None else report.incarnation
        return living

    def _placements(self, topology_id: str) -> Iterator[Placement]:
        for assignment in (self._registry.leaving(topology_id), self._registry.assignment(topology_id)):
            if assignment is not None:
                yield from assignment.placements


def components_of(description: Mapping[str, Any]) -> Components:
    """The components that a topology's typed description lists."""
    return tuple((component["id"], component["kind"]) for component in description["components"])


def topology_status(
    record: TopologyRecord,
    components: Components,
    counted: Counted,
    living: Mapping[str, Incarnation],
    now: float,
) -> TopologyStatus:
    """What a user is told of a topology."""
    tasks = Counter(component for _, component, _ in record.tasks)
    present = set(living.items())
    return TopologyStatus(
        name=record.name,
        state=record.state,
        components={
            component: component_status(
                kind, tasks[component], counted.totals(component, present), record.state
            )
            for component, kind in components
        },
        workers=len(living),
        errors=counted.latest_reports(),
        error=record.error,
        uptime=now - record.submitted,
        notes=record.notes,
    )


def component_status(kind: str, tasks: int, totals: ComponentCounters, state: str) -> ComponentStatus:
    """What a user is told of a component."""
    idle = ""
    if kind == "spout":
        idle = summary_of(totals.idle) if totals.idle else WITHOUT_TASKS.get(state, "inactive")
    metrics = {**totals.metrics, **totals.gauges}
    return ComponentStatus(
        kind=kind,
        tasks=tasks,
        emitted=totals.emitted,
        executed=totals.executed,
        acked=totals.acked,
        failed=totals.failed,
        replayed=totals.replayed,
        pending=totals.pending,
        errors=totals.errors,
        dropped=totals.dropped,
        p50=totals.latency.percentile(50),
        p99=totals.latency.percentile(99),
        idle=idle,
        metrics={name: shown_metric(value) for name, value in metrics.items()},
        failures=totals.failures,
        first_failure=totals.first_failure[1] if totals.first_failure else "",
    )


def shown_metric(value: object) -> object:
    """A metric of the user's as a status shows it: of a histogram count, p50 and p99."""
    if isinstance(value, Histogram):
        return {"count": value.count, "p50": value.percentile(50), "p99": value.percentile(99)}
    return value


def summary_of(idle: Mapping[str, int]) -> str:
    """The reason that most tasks have; "" when any of them emits."""
    if not idle or "" in idle:
        return ""
    return Counter(idle).most_common(1)[0][0]
