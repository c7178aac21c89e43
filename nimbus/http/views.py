"""Views of the cluster and its topologies: answers of the API, built from the records in the store and the counters.

Views only read, so a Nimbus that does not lead can answer too, and any thread may call them. Configurations are shown
without their secrets.
Must not know: HTTP, callers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from msgspec import convert

from nimbus.counters.counting import Counters, Statuses
from nimbus.http.worker_entries import entry_of, state_of
from nimbus.lifecycle.cleanup import view_of
from nimbus.lifecycle.progress import LifecycleView, is_on_trial, why_not_up, workers_of
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.lifecycle.states import COMPLETED, FAILED
from nimbus.submission.keeping import unkept_bolts
from squall.api import answers, cluster_answers
from squall.api.versions import StandbyVersion
from squall.cluster import identity, paths
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.leadership import leads_since
from squall.cluster.records import BadRecord, Placement, SupervisorRecord, TopologyRecord
from squall.cluster.registry import Registry, name_of
from squall.cluster.store import Store
from squall.packages.versions import own_versions
from squall.reports.error_reports import ErrorReport
from squall.reports.event_text import sentence
from squall.reports.events import Event
from squall.security.redaction import redacted
from squall.security.sealing import BadSeal, fingerprint, sealed_to
from squall.values import Incarnation
from topology_api.epoch_rules import state_path
from topology_api.errors import NoSuchTopology, SquallError

#: The most topologies whose descriptions are cached.
_DESCRIPTIONS: Final = 64
_BAD: Final = "BAD"
_KINDS: Final = {"ZooKeeperStore": "zookeeper", "InMemoryStore": "memory", "SqliteStore": "file"}
_UNREADABLE: Final = (BadRecord, BadBlob)


class NoSuchPart(SquallError):
    """A part of a topology or of the cluster that does not exist: a component, a worker, a supervisor."""


@dataclass(eq=False, repr=False)
class Views:
    """The views of one Nimbus."""

    store: Store
    counters: Counters
    #: The wall clock, in seconds since 1970.
    now: Callable[[], float]
    #: Returns the files (SHA-256) that no Nimbus has any more.
    lost: Callable[[], Collection[str]] = frozenset

    def __post_init__(self) -> None:
        self.registry = Registry(self.store)
        self.statuses = Statuses(self.store, self.counters, self.now)
        #: A description never changes, so it is read only once.
        self._description = lru_cache(_DESCRIPTIONS)(partial(get_description, self.store))

    # The cluster

    def cluster(self, uptime_secs: float) -> cluster_answers.ClusterAnswer:
        """Return the cluster in a few numbers."""
        supervisors = self.registry.all_supervisors()
        records = self.registry.all_topologies()
        total = sum(record.slots for record in supervisors)
        workers = self._workers_by_supervisor(records)
        used = sum(min(record.slots, _used(workers.get(record.id, ()))) for record in supervisors)
        leader = self.leader_id()
        nimbuses = [
            cluster_answers.NimbusEntry(each.id, each.url, each.host, each.id == leader, dict(each.versions))
            for each in self.registry.all_nimbuses()
        ]
        own = own_versions()
        return cluster_answers.ClusterAnswer(
            id=self.cluster_id(),
            python=own["python"],
            cloudpickle=own["cloudpickle"],
            version=own["squall"],
            leader=next(
                (cluster_answers.LeaderEntry(each.id, each.url) for each in nimbuses if each.leader), None
            ),
            nimbuses=nimbuses,
            supervisors=len(supervisors),
            slots=cluster_answers.SlotCounts(total, used, total - used),
            topologies=len(records) + len(self.registry.bad),
            tasks=sum(len(record.tasks) for record in records),
            uptime_secs=uptime_secs,
            store=self.store_state(),
        )

    def store_state(self) -> cluster_answers.StoreState:
        """Return the kind of the store, and whether it is connected."""
        kind = type(self.store).__name__
        return cluster_answers.StoreState(
            _KINDS.get(kind, kind), bool(getattr(self.store, "connected", True))
        )

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None before the cluster's first leader has set it."""
        with suppress(identity.OtherCluster):
            return identity.check(self.store, None) or None
        return None

    def leader_id(self) -> str | None:
        """Return the id of the leading Nimbus; None while no Nimbus leads."""
        found = self.store.get(paths.LEADER)
        return None if found is None else found[0].decode(errors="replace")

    def nimbuses(self) -> list[cluster_answers.NimbusMember]:
        """Return the Nimbuses that are registered, and those that are away but have a copy of the operators' token."""
        leader, epoch = self.leader_id(), self.store.get(paths.EPOCH)
        since = None if leader is None or epoch is None else leads_since(epoch[0], leader)
        sealed = self._recipients()
        found = []
        for record in self.registry.all_nimbuses():
            leads = record.id == leader
            if has_token := sealed.get(record.id) == record.public_key:
                del sealed[record.id]
            found.append(
                cluster_answers.NimbusMember(
                    id=record.id,
                    url=record.url,
                    host=record.host,
                    state="leading" if leads else "standby",
                    since=since if leads else record.started,
                    key=fingerprint(record.public_key),
                    has_token=has_token,
                    versions=dict(record.versions),
                )
            )
        for name, public in sorted(sealed.items()):
            found.append(
                cluster_answers.NimbusMember(name, "", "", "away", None, fingerprint(public), True, {})
            )
        return found

    def _recipients(self) -> dict[str, str]:
        """Return the public keys to which the operators' token is sealed, by the ids of their owners."""
        found = {}
        for name in map(paths.unquoted, self.store.children(paths.keys(paths.OPERATOR))):
            sealed = self.registry.sealed_keys(paths.OPERATOR, name)
            with suppress(BadSeal):
                found[name] = "" if sealed is None else sealed_to(sealed)
        return {name: public for name, public in found.items() if public}

    def supervisors(self) -> list[cluster_answers.SupervisorEntry]:
        """Return the supervisors with their workers."""
        workers = self._workers_by_supervisor(self.registry.all_topologies())
        drained = self.registry.drained_supervisors()
        return [
            cluster_answers.SupervisorEntry(
                id=supervisor.id,
                host=supervisor.host,
                slots=supervisor.slots,
                used=_used(workers.get(supervisor.id, ())),
                drained=supervisor.id in drained,
                connected=self.store.get(paths.presence(supervisor.id)) is not None,
                versions=dict(supervisor.versions),
                resources=dict(supervisor.resources),
                workers=sorted(workers.get(supervisor.id, []), key=lambda worker: worker.slot),
                cannot_start=supervisor.cannot_start,
                connections_closed=dict(supervisor.connections_closed),
                state_folder=supervisor.state_folder,
            )
            for supervisor in self.registry.all_supervisors()
        ]

    def supervisor(self, supervisor_id: str) -> SupervisorRecord:
        """Return the record of a supervisor. Raises `NoSuchPart`."""
        records = self.registry.all_supervisors()
        for record in records:
            if record.id == supervisor_id:
                return record
        known = ", ".join(record.id for record in records) or "none"
        raise NoSuchPart(f"there is no supervisor {supervisor_id!r:.200} (there are: {known})")

    # Topologies

    def topologies(self) -> list[answers.TopologySummary]:
        """Return a summary of each topology. Topologies whose records cannot be read come last."""
        found = []
        for record in self.registry.all_topologies():
            try:
                found.append(self._summary(record))
            except NoSuchTopology:
                continue  # the topology ended meanwhile
            except _UNREADABLE as error:
                found.append(_unreadable(record.name, str(error)))
        return found + [_unreadable(name, reason) for name, reason in sorted(self.registry.bad.items())]

    def topology(self, name: str) -> answers.TopologyAnswer:
        """Return the status of a topology, with its workers."""
        try:
            record = self.record(name)  # read once: an answer never mixes two versions
            status, workers = self.statuses.of_record(record), self.workers(record)
            in_memory = unkept_bolts(record, self._description(record.id))
        except NoSuchTopology:
            if self.registry.topologies.get(name) is None:
                raise
            return self.topology(name)  # another version has the name since
        except _UNREADABLE as error:
            return _unreadable_topology(name, str(error))
        lost = _lost_files(record, self.lost(), self.now())
        return answers.TopologyAnswer(
            name=status.name,
            state=status.state,
            workers=workers,
            uptime_secs=status.uptime,
            components=dict(status.components),
            errors=[report.render() for report in status.errors],
            error=status.error,
            notes=[*status.notes, *map(sentence, lost)],
            note_times=[*status.note_times, *[self.now()] * len(lost)],
            events=(*status.events, *lost),
            state_secs=status.state_secs,
            error_reports=convert(status.errors, list[answers.ErrorOutline], from_attributes=True),
            id=record.id,
            workers_wanted=int(str(record.conf[WORKERS])),
            stands_by=self._standing_by(record, whole=True),
            submitted=record.submitted,
            files=dict(record.files),
            dead_letters=sum(letters_by_topology(self.registry, self.now()).get(name, {}).values()),
            now=self.now(),
            epoch=status.epoch,
            state_in_memory=in_memory,
            state_path=state_path(record.conf),
        )

    def record(self, name: str) -> TopologyRecord:
        """Return the record of a topology. Raises `NoSuchTopology` or `BadRecord`."""
        record = self.registry.topologies.get(name)
        if record is None:
            raise NoSuchTopology(name)
        return record

    def component(self, name: str, component: str) -> answers.ComponentAnswer:
        """Return a component: its status, the places of its tasks, the streams that it reads and writes, its configuration."""
        record = self.record(name)
        described = self._component_of(record, component)
        hosts = {each.id: each.host for each in self.registry.all_supervisors()}
        view = self._view(record)
        places = {task: place for place in (*view.workers, *view.withdrawn) for task in place.tasks}
        tasks = []
        for task, owner, index in record.tasks:
            if owner == component:
                place = places.get(task)
                worker, host = (None, None) if place is None else (place.worker, hosts.get(place.supervisor))
                tasks.append(answers.TaskEntry(task, index, worker, host))
        status = {**vars(self.statuses.of_record(record).components[component]), "tasks": tasks}
        return answers.ComponentAnswer(
            topology=name,
            id=component,
            **status,
            parallelism=len(tasks),
            inputs=convert(described["inputs"], list[answers.InputEntry]),
            outputs=convert(described["outputs"], dict[str, answers.OutputEntry]),
            conf=redacted(record.component_confs.get(component, {})),
        )

    def is_of_another(self, topology_id: str, worker: str, incarnation: Incarnation, supervisor: str) -> bool:
        """Return whether the assignment that began this worker placed it with another supervisor, or did not begin yet."""
        if (found := self._is_of_another(topology_id, worker, incarnation, supervisor)) is None:
            self.store.owns(paths.presence(supervisor))  # see `may_fetch`
            found = self._is_of_another(topology_id, worker, incarnation, supervisor)
        return found is not False

    def _is_of_another(
        self, topology_id: str, worker: str, incarnation: Incarnation, supervisor: str
    ) -> bool | None:
        """Return None if the assignment is newer than any that is known. Of an assignment that is too old to be known, no
        worker is known any more: its last counters may come from any supervisor."""
        placed = [
            placement.supervisor
            for placement in self.registry.last_workers(topology_id)
            if (placement.worker, placement.incarnation.version) == (worker, incarnation.version)
        ]
        if placed:
            return supervisor not in placed
        record = self.registry.topologies.last_readable(name_of(topology_id))
        known = record is not None and record.id == topology_id
        return None if known and record is not None and incarnation.version > record.version else False

    def may_fetch(self, sha256: str, supervisor: str) -> bool:
        """Return whether a supervisor may need a file: it has workers of a topology with this file, or of one that a version
        with this file replaces or has replaced."""
        if self._needs(sha256, supervisor):
            return True
        # The supervisor may have seen an assignment that is not in the cache yet. Any answer of the store makes the cache
        # current.
        self.store.owns(paths.presence(supervisor))
        return self._needs(sha256, supervisor)

    def _needs(self, sha256: str, supervisor: str) -> bool:
        registry = self.registry
        hosted = [
            record
            for record in registry.all_topologies()
            if any(place.supervisor == supervisor for place in registry.last_workers(record.id))
        ]
        versions = (
            versions.last_readable(record.name)
            for record in hosted
            for versions in (registry.replacements, registry.replaced)
        )
        return any(sha256 in each.files.values() for each in (*hosted, *versions) if each is not None)

    def workers(self, record: TopologyRecord) -> list[answers.WorkerEntry]:
        """Return the workers of a topology, including those that are stopping. For an ended topology, return the workers that
        it had."""
        hosts = {each.id: each.host for each in self.registry.all_supervisors()}
        view = self._view(record)
        rows = {row[0]: row for row in record.tasks}
        counted = {
            (worker, incarnation): counters.process
            for worker, incarnation, counters in self.counters.of_workers(record.id)
        }
        found = []
        for place, leaving in self._known(view):
            report = view.report_of(place)
            used = None
            if report is not None and not report.stopped:
                used = counted.get((place.worker, report.incarnation))
            supervised = place.supervisor in view.supervisors
            tasks = [rows[task] for task in place.tasks if task in rows]
            host = hosts.get(place.supervisor)
            found.append(
                entry_of(place, report, state_of(report, leaving, supervised), tasks, host, record.conf, used)
            )
        return found

    def supervisor_of(self, name: str, worker: str) -> tuple[str, SupervisorRecord]:
        """Return (the topology's id, the supervisor that runs the worker, or that ran it when the topology ended)."""
        record = self.record(name)
        known = []
        for placement, _ in self._known(self._view(record)):
            if placement.worker == worker:
                return record.id, self.supervisor(placement.supervisor)
            known.append(placement.worker)
        raise NoSuchPart(
            f"topology {name!r} has no worker {worker!r:.80} (it has: {', '.join(known) or 'none'})"
        )

    def errors(self, name: str, component: str | None = None) -> list[answers.ErrorEntry]:
        """Return the latest error reports, the oldest first."""
        record = self.record(name)
        if component is not None:
            self._component_of(record, component)
        return [
            error_entry(report)
            for report in self.statuses.of_record(record).errors
            if component in (None, report.component)
        ]

    def configuration(self, name: str) -> answers.ConfigurationsAnswer:
        """Return the configuration of a topology and of its components, without secrets."""
        record = self.record(name)
        own = {component: redacted(conf) for component, conf in record.component_confs.items()}
        return answers.ConfigurationsAnswer(redacted(record.conf), own)

    def worker_counters(self, name: str) -> answers.CountersAnswer:
        """Return the counters that each worker reported, and the sums of the components."""
        record = self.record(name)
        workers = []
        for worker, incarnation, counted in self.counters.of_workers(record.id):
            components = {component: counters.as_dict() for component, counters in counted.components.items()}
            workers.append(answers.WorkerCountersEntry(worker, incarnation, components))
        return answers.CountersAnswer(
            name, record.id, dict(self.statuses.of_record(record).components), workers
        )

    # Inside

    def _summary(self, record: TopologyRecord) -> answers.TopologySummary:
        status = self.statuses.of_record(record)
        components = status.components.values()
        spouts = [component for component in components if component.kind == "spout"]
        return answers.TopologySummary(
            name=record.name,
            id=record.id,
            state=status.state,
            tasks=len(record.tasks),
            workers=status.workers,
            components=len(components),
            uptime_secs=status.uptime,
            state_secs=status.state_secs,
            emitted=sum(component.emitted for component in components),
            acked=sum(spout.acked for spout in spouts),
            failed=sum(spout.failed for spout in spouts),
            pending=sum(spout.pending for spout in spouts),
            errors=sum(component.errors for component in components),
            error=status.error,
            stands_by=self._standing_by(record),
            held_up=self._held_up(record),
        )

    def _standing_by(self, record: TopologyRecord, whole: bool = False) -> StandbyVersion | None:
        """Return the previous version of a topology, and the seconds until a rollback to it (unless the trial is suspended);
        None if no rollback is possible. `whole`: with its components."""
        if not is_on_trial(record):
            return None
        secs = 0.0 if record.until is None else max(0.0, record.until - self.now())
        components = None
        if whole and (before := self.registry.replaced.readable(record.name)) is not None:
            components = tuple(dict.fromkeys(row.component for row in before.tasks))
        return StandbyVersion(str(record.replaces), secs, record.until is None, components)

    def _held_up(self, record: TopologyRecord) -> answers.HeldUp | None:
        """Count the workers of a running topology that are not up and whose hosts have reported a reason. Return this number
        and the first reason; None if there are no such workers."""
        reasons = why_not_up(self._view(record))
        return answers.HeldUp(len(reasons), sentence(reasons[0])) if reasons else None

    def components(self, topology_id: str) -> dict[str, Mapping[str, Any]]:
        """Return the described components of a topology, by id. Raises `BadBlob`."""
        return {each["id"]: each for each in self._description(topology_id)["components"]}

    def _component_of(self, record: TopologyRecord, component: str) -> Mapping[str, Any]:
        components = self._description(record.id)["components"]
        for described in components:
            if described["id"] == component:
                return dict(described)
        known = ", ".join(described["id"] for described in components)
        raise NoSuchPart(f"topology {record.name!r} has no component {component!r:.200} (it has: {known})")

    def _view(self, record: TopologyRecord) -> LifecycleView:
        return view_of(self.registry, record, self.registry.supervisors.names())

    def _known(self, view: LifecycleView) -> Iterator[tuple[Placement, bool | None]]:
        """Yield (placement, whether its worker was withdrawn; None: the worker is gone because its topology has ended)."""
        yield from ((placement, False) for placement in view.workers)
        yield from ((placement, True) for placement in view.withdrawn)
        if view.record.state in (COMPLETED, FAILED):
            there = {placement.worker for placement in (*view.workers, *view.withdrawn)}
            former = workers_of(self.registry.former.readable(view.record.id))
            yield from ((placement, None) for placement in former if placement.worker not in there)

    def _workers_by_supervisor(
        self, records: list[TopologyRecord]
    ) -> dict[str, list[cluster_answers.SlotEntry]]:
        workers: dict[str, list[cluster_answers.SlotEntry]] = {}
        for record in records:
            for place in self.registry.last_workers(record.id):
                slot = cluster_answers.SlotEntry(record.name, place.worker, place.slot, len(place.tasks))
                workers.setdefault(place.supervisor, []).append(slot)
        return workers


def letters_by_topology(registry: Registry, now: float) -> dict[str, dict[str, int]]:
    """Return how many dead letters each host holds, by topology, which may be gone, and supervisor. `now`: the wall clock."""
    found: dict[str, dict[str, int]] = {}
    for held in registry.all_letters(now):
        for name, count in held.topologies.items():
            found.setdefault(name, {})[held.supervisor] = count
    return found


def error_entry(report: ErrorReport) -> answers.ErrorEntry:
    """Return an error report as the API shows it."""
    return convert({**report.as_dict(), "text": report.render()}, answers.ErrorEntry)


def _used(workers: Iterable[cluster_answers.SlotEntry]) -> int:
    return len({worker.slot for worker in workers})


def _unreadable(name: str, reason: str) -> answers.TopologySummary:
    return answers.TopologySummary(
        name=name, id="", state=_BAD, tasks=0, workers=0, components=0, uptime_secs=0.0, emitted=0, acked=0, failed=0,
        pending=0, errors=0, error=reason,
    )  # fmt: skip


def _unreadable_topology(name: str, reason: str) -> answers.TopologyAnswer:
    return answers.UnreadableTopologyAnswer(
        name=name, state=_BAD, workers=[], uptime_secs=0.0, components={}, errors=[], error=reason, notes=[],
        state_secs=0.0, id="", submitted=0.0, files={},
    )  # fmt: skip


def _lost_files(record: TopologyRecord, lost: Collection[str], now: float) -> list[Event]:
    """Return an event for each file of a topology that no Nimbus has any more, while workers may still need it."""
    if record.state in (COMPLETED, FAILED):
        return []
    return [
        Event("file_lost", now, record.name, part=kind, file=sha256)
        for kind, sha256 in sorted(record.files.items())
        if sha256 in lost
    ]
