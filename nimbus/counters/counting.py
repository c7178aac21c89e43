"""The counters of topologies, collected from their workers, and the status that users see.

`Counters` keeps the latest counters of each worker and the sums of workers that are gone, so that a total never falls when
a worker is replaced. `Statuses` combines the counters with the records. Any thread may call both classes.
Must not know: how counters arrive, who reads them.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nimbus.counters import topology_counters
from nimbus.counters.topology_counters import Counted
from nimbus.lifecycle.cleanup import BadTopology, existing_record, view_of
from nimbus.lifecycle.notes import current_events
from nimbus.lifecycle.trial import Evidence
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.counters import SUMS, BadCounters, ComponentCounters, WorkerCounters
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry, name_of
from squall.cluster.store import Store
from squall.dead_letters.letter import HANDED_OVER, undone
from squall.reports.event_text import sentence
from squall.reports.histogram import LatencyHistogram
from squall.status import ComponentStatus, DownTask, TopologyStatus
from squall.values import Incarnation, TopologyState
from topology_api.errors import NoSuchTopology

_log = logging.getLogger(__name__)

#: The state shown for a topology whose record cannot be read.
BAD = "BAD"
#: The most topologies that are remembered after their end.
PAST = 4
#: The most topologies whose components are cached.
_DESCRIPTIONS = 1024
#: Why a spout without running tasks does not emit, by the topology's state. In all other states the reason is "inactive".
WITHOUT_TASKS: dict[str, str] = {TopologyState.ACTIVE: "not open yet", TopologyState.COMPLETED: "finished"}

#: The components of a topology in the order of declaration: (id, kind).
Components = tuple[tuple[str, str], ...]


class Counters:
    """The counters of all topologies."""

    def __init__(self, keep_days: float = 7.0) -> None:
        #: How long errors and counters of versions that have ended are kept (`nimbus.counters.ended`).
        self.keep_days = keep_days
        self._lock = threading.Lock()
        self._topologies: dict[str, Counted] = {}
        #: For the topologies that ended last: name -> a function that makes the final status.
        self._past: dict[str, Callable[[float], TopologyStatus]] = {}
        #: Topologies whose counters have changed since they were saved.
        self._unsaved: set[str] = set()

    def count(
        self, topology_id: str, worker: str, incarnation: Incarnation, counters: WorkerCounters
    ) -> None:
        """Record the counters of a worker."""
        with self._lock:
            self._topologies.setdefault(topology_id, Counted()).count(worker, incarnation, counters)
            self._unsaved.add(topology_id)

    def count_bytes(self, topology_id: str, worker: str, incarnation: Incarnation, data: bytes) -> None:
        """Add the counters that a worker process wrote; log a warning if the bytes cannot be read."""
        try:
            self.count(topology_id, worker, incarnation, WorkerCounters.from_bytes(data))
        except BadCounters as error:
            _log.warning("%s: the counters of worker %s cannot be read: %s", topology_id, worker, error)

    def replaced(self, topology_id: str, worker: str, version: int) -> None:
        """Record that a worker has left the assignment, while the topology continues."""
        with self._lock:
            counted = self._topologies.get(topology_id)
            last = None if counted is None else counted.workers.get(worker)
            if counted is not None and last is not None and last[0][0] == version:
                counted.fold(worker)
                self._unsaved.add(topology_id)

    def status(
        self,
        record: TopologyRecord,
        components: Components,
        living: Mapping[str, Incarnation],
        now: float,
    ) -> TopologyStatus:
        """Return the status of a topology, given its living workers."""
        with self._lock:
            counted = self._topologies.get(record.id, Counted())
            return topology_status(record, components, counted, living, now)

    def of_workers(self, topology_id: str) -> list[tuple[str, Incarnation, WorkerCounters]]:
        """Return the latest counters of each worker, sorted by the workers' names. Workers that the sums already include are
        left out."""
        with self._lock:
            counted = self._topologies.get(topology_id, Counted())
            return [(worker, *counted.workers[worker]) for worker in sorted(counted.workers)]

    def evidence(
        self, topology_id: str, components: Components, living: Collection[tuple[str, Incarnation]]
    ) -> Evidence:
        """Return what is known of a version on trial. `living`: its workers."""
        with self._lock:
            counted = self._topologies.get(topology_id, Counted())
            totals = [(kind, counted.totals(component, living)) for component, kind in components]
            last = next(reversed(counted.latest_reports()), None)
        spouts = [each for kind, each in totals if kind == "spout"]
        bolts = [each for kind, each in totals if kind != "spout"]
        return Evidence(
            emitted=sum(each.emitted for each in spouts),
            acked=sum(each.acked for each in spouts),
            failed=sum(map(_failed_attempts, spouts)),
            pending=sum(each.pending for each in spouts),
            executed=sum(each.executed for each in bolts),
            raised=sum(each.failed for each in bolts),
            errors=sum(each.errors for _, each in totals),
            last_error=""
            if last is None
            else f"{last.component}[{last.task}]: {last.text.partition(chr(10))[0]}",
        )

    def silent(self, topology_id: str) -> frozenset[str] | None:
        """If a topology has never emitted anything, return those of its workers that have sent counters; otherwise return
        None."""
        with self._lock:
            counted = self._topologies.get(topology_id, Counted())
            return None if counted.has_emitted() else frozenset(counted.workers)

    def key_groups(self, topology_id: str) -> int:
        """Return into how many groups the keys of a topology's state are divided; 0 if its workers have not said so."""
        with self._lock:
            counted = self._topologies.get(topology_id)
            return 0 if counted is None else counted.key_groups

    def committed(self, topology_id: str) -> int:
        """Return the last epoch of a topology that is known to be committed; 0 if none is."""
        with self._lock:
            counted = self._topologies.get(topology_id)
            return 0 if counted is None else counted.committed

    def close(self, record: TopologyRecord, components: Components) -> None:
        """Keep the final counters of a topology that is gone."""
        with self._lock:
            counted = self._topologies.pop(record.id, Counted())
            self._past.pop(record.name, None)
            self._past[record.name] = lambda now: topology_status(record, components, counted, {}, now)
            if len(self._past) > PAST:
                del self._past[next(iter(self._past))]

    def final(self, topology_id: str) -> WorkerCounters:
        """Return the sums of a topology's components, and its latest errors."""
        with self._lock:
            counted = self._topologies.get(topology_id, Counted())
            latest = (counters.components for _, counters in counted.workers.values())
            names = dict.fromkeys(name for components in (counted.base, *latest) for name in components)
            totals = {name: counted.totals(name, ()) for name in names}
            return WorkerCounters(totals, counted.latest_reports())

    def left_over(self, topology_id: str) -> int:
        """Return how many trees the spouts of a version that is rolled back have handed over."""
        totals = self.final(topology_id).components.values()
        return sum(each.failures.get(HANDED_OVER, 0) for each in totals)

    def keep(self, topology_ids: Collection[str], names: Collection[str] = ()) -> None:
        """Forget all topologies except those with these ids and those with these names."""
        with self._lock:
            for topology_id in list(self._topologies):
                if topology_id not in topology_ids and name_of(topology_id) not in names:
                    del self._topologies[topology_id]

    def save(self, directory: Path) -> None:
        """Write changed counters to a directory, which is created if it is missing, and delete files of topologies that are
        gone. If a topology's file cannot be written, the files of all other topologies are written first, then the OSError is
        raised; the next call tries the file again. Only one thread may call this at a time."""
        with self._lock:
            ids = set(self._topologies)
            unsaved = sorted(self._unsaved & ids)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failure: OSError | None = None
        for topology_id in unsaved:
            with self._lock:  # the workers' counters are immutable; only the sums may change later
                self._unsaved.discard(topology_id)
                counted = self._topologies.get(topology_id, Counted())
                parts = topology_counters.base_of(counted), dict(counted.folded), dict(counted.workers)
            try:
                topology_counters.write(directory, topology_id, topology_counters.encode(*parts))
            except OSError as error:
                failure = error
                with self._lock:
                    self._unsaved.add(topology_id)
        topology_counters.remove_others(directory, ids)
        if failure is not None:
            raise failure

    def load(self, directory: Path) -> None:
        """Load the saved counters of topologies for which no newer counters have arrived."""
        found = topology_counters.read_all(directory)
        with self._lock:
            for topology_id, counted in found.items():
                self._topologies.setdefault(topology_id, counted)

    def last(self, name: str, now: float) -> TopologyStatus | None:
        """Return the final status of the last topology with this name, while that topology is remembered."""
        with self._lock:
            final = self._past.get(name)
            return None if final is None else final(now)


class Statuses:
    """Combines the records of a store with the counters."""

    def __init__(self, store: Store, counters: Counters, now: Callable[[], float]) -> None:
        self._registry = Registry(store)
        self._counters = counters
        self._now = now
        #: The components of a topology never change, so they are read only once.
        self.components = lru_cache(_DESCRIPTIONS)(lambda id: components_of(get_description(store, id)))

    def status(self, name: str) -> TopologyStatus:
        """Return the status of a topology; the state is BAD if the topology cannot be read. Raises NoSuchTopology for an
        unknown name."""
        try:
            record = existing_record(self._registry, name)
        except BadTopology as error:
            return TopologyStatus(name, BAD, {}, 0, (), error.reason, 0.0)
        return self.of_record(record)

    def of_record(self, record: TopologyRecord) -> TopologyStatus:
        """Return the status of the version with this record. Raises NoSuchTopology if another version has its name by now, and
        nothing is left of this one."""
        try:
            components = self.components(record.id)
        except BadBlob:
            present = self._registry.topologies.get(record.name)
            if present is not None and present.id == record.id:
                raise
            raise NoSuchTopology(record.name) from None
        return self._counters.status(record, components, self.living(record), self._now())

    def last_status(self, name: str) -> TopologyStatus:
        """Like `status`. For a topology that is gone, return its final status while that topology is remembered."""
        try:
            return self.status(name)
        except NoSuchTopology:
            if (final := self._counters.last(name, self._now())) is None:
                raise
            return final

    def living(self, record: TopologyRecord) -> dict[str, Incarnation]:
        """Return the assigned and the leaving workers of a topology, with their incarnations."""
        view = view_of(self._registry, record, self._registry.supervisors.names())
        living = {}
        for place in (*view.withdrawn, *view.workers):
            report = view.report_of(place)
            if place.supervisor in view.supervisors and (report is None or not report.stopped):
                living[place.worker] = place.incarnation if report is None else report.incarnation
        return living


def _failed_attempts(spout: ComponentCounters) -> int:
    """Return how many attempts failed, also for workers of a release that counts only trees and replays."""
    return max(spout.attempts_failed, spout.failed + spout.replayed - undone(spout.failures))


def components_of(description: Mapping[str, Any]) -> Components:
    """Return the components that a topology's typed description lists."""
    return tuple((component["id"], component["kind"]) for component in description["components"])


def topology_status(
    record: TopologyRecord,
    components: Components,
    counted: Counted,
    living: Mapping[str, Incarnation],
    now: float,
) -> TopologyStatus:
    """Return the status of a topology, as users see it."""
    tasks = Counter(component for _, component, _ in record.tasks)
    present = set(living.items())
    events = current_events(record.notes, living)
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
        notes=tuple(map(sentence, events)),
        note_times=tuple(event.time for event in events),
        events=events,
        state_secs=now - record.since,
        epoch=counted.epoch(present, now),
    )


def component_status(kind: str, tasks: int, totals: ComponentCounters, state: str) -> ComponentStatus:
    """Return the status of a component, as users see it."""
    idle = summary_of(totals.idle)
    if kind == "spout" and not totals.idle:
        idle = WITHOUT_TASKS.get(state, "inactive")
    metrics = {**totals.metrics, **totals.gauges}
    return ComponentStatus(
        kind=kind,
        tasks=tasks,
        **{name: getattr(totals, name) for name in (*SUMS, "pending")},
        p50=totals.latency.percentile(50),
        p99=totals.latency.percentile(99),
        idle=idle,
        execute_p50=totals.execute.percentile(50),
        execute_p99=totals.execute.percentile(99),
        loads=tuple(load for _, load in sorted(totals.loads.items())),
        undecided=tuple(each for _, each in sorted(totals.undecided.items())),
        down=tuple(DownTask(task, *of_task) for task, of_task in sorted(totals.down.items())),
        metrics={name: shown_metric(value) for name, value in metrics.items()},
        failures=totals.failures,
        first_failure=totals.first_failure[1] if totals.first_failure else "",
        keys=totals.keys,
        parked=totals.parked,
        uncommitted=totals.uncommitted,
    )


def shown_metric(value: object) -> object:
    """Return a user's metric as a status shows it: a histogram as count, p50 and p99."""
    if isinstance(value, LatencyHistogram):
        return {"count": value.count, "p50": value.percentile(50), "p99": value.percentile(99)}
    return value


def summary_of(idle: Mapping[str, int]) -> str:
    """Return the most frequent reason why a task does not emit; "" if any task emits."""
    if not idle or "" in idle:
        return ""
    return Counter(idle).most_common(1)[0][0]
