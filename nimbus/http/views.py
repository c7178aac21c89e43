"""What Nimbus tells of the cluster and its topologies, as JSON values: put together from records and counters.

Everything here reads and nothing changes, so that a Nimbus that does not lead can answer too, and any thread may ask.
Configurations are shown without their secrets.
Must not know: HTTP, who asks, who leads (it is told).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from nimbus.counting import Counters, Statuses
from nimbus.lifecycle import COMPLETED, FAILED
from nimbus.progress import why_not_up
from nimbus.rebalancing import WORKERS
from nimbus.replacing import is_on_trial
from squall.cluster import paths
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.records import (
    Assignment,
    BadRecord,
    NimbusRecord,
    Placement,
    SupervisorRecord,
    TopologyRecord,
    WorkerReport,
)
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.redaction import redacted
from squall.status import TopologyStatus
from squall.versions import own_versions
from topology_api.errors import NoSuchTopology, SquallError

#: Topologies whose descriptions are kept.
_DESCRIPTIONS: Final = 64


_UNREADABLE: Final = (BadRecord, BadBlob)
_NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "components": {}, "errors": [], "notes": [], "note_times": [], "workers": [], "workers_wanted": 0, "files": {},
    "submitted": 0.0,
}  # fmt: skip


class NoSuchPart(SquallError):
    """Something of a topology, or of the cluster, that is not there: a component, a worker, a supervisor."""


class Views:
    """The answers to what may be asked."""

    def __init__(
        self,
        store: Store,
        counters: Counters,
        now: Callable[[], float],
        lost: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """`now`: the calendar, which all hosts share, as a clock of their own they do not; `lost`: the files (SHA-256) that no
        Nimbus has any more."""
        self.registry = Registry(store)
        self.counters = counters
        self._store = store
        self._now = now
        self._lost = lost
        self._statuses = Statuses(store, counters, now)
        self._descriptions: dict[str, Mapping[str, Any]] = {}

    # The cluster

    def cluster(self, store: Mapping[str, object], uptime_secs: float) -> dict[str, Any]:
        """The cluster in a few numbers; `store`: what is known of the store itself."""
        supervisors = self.registry.supervisors()
        records = self.registry.topologies()
        total = sum(record.slots for record in supervisors)
        taken = self._taken_slots(records)
        used = sum(min(record.slots, len(taken.get(record.id, ()))) for record in supervisors)
        nimbuses, leader = self.nimbuses(), self.leader_id()
        found = next((each for each in nimbuses if each.id == leader), None)
        return {
            "id": self.cluster_id(),
            **{name: version for name, version in own_versions().items() if name != "squall"},
            "version": own_versions()["squall"],
            "leader": None if found is None else {"id": found.id, "url": found.url},
            "nimbuses": [
                {
                    "id": each.id,
                    "url": each.url,
                    "host": each.host,
                    "leader": each.id == leader,
                    "versions": dict(each.versions),
                }
                for each in nimbuses
            ],
            "supervisors": len(supervisors),
            "slots": {"total": total, "used": used, "free": total - used},
            "topologies": len(records) + len(self.registry.bad),
            "tasks": sum(len(record.tasks) for record in records),
            "uptime_secs": uptime_secs,
            "store": dict(store),
        }

    def cluster_id(self) -> str | None:
        """The id of the cluster, None before its first leader has given it one."""
        found = self._store.get(paths.CLUSTER)
        try:
            return None if found is None else str(json.loads(found[0])["id"])
        except (ValueError, TypeError, KeyError):
            return None

    def nimbuses(self) -> list[NimbusRecord]:
        """The Nimbuses that are there."""
        return self.registry.nimbuses()

    def leader_id(self) -> str | None:
        """The id of the Nimbus that leads, None in between."""
        found = self._store.get(paths.LEADER)
        return None if found is None else found[0].decode(errors="replace")

    def supervisors(self) -> list[dict[str, Any]]:
        """The supervisors with their workers."""
        workers: dict[str, list[dict[str, Any]]] = {}
        for record in self.registry.topologies():
            for placement, _ in self._placements(record):
                workers.setdefault(placement.supervisor, []).append(
                    {
                        "topology": record.name,
                        "worker": placement.worker,
                        "slot": placement.slot,
                        "tasks": len(placement.tasks),
                    }
                )
        drained = self.registry.drained_supervisors()
        return [
            {
                "id": record.id,
                "host": record.host,
                "slots": record.slots,
                "used": len({worker["slot"] for worker in workers.get(record.id, [])}),
                "drained": record.id in drained,
                "connected": self._store.get(paths.presence(record.id)) is not None,
                "versions": dict(record.versions),
                "resources": dict(record.resources),
                "workers": sorted(workers.get(record.id, []), key=lambda worker: worker["slot"]),
            }
            for record in self.registry.supervisors()
        ]

    def supervisor(self, supervisor_id: str) -> SupervisorRecord:
        """The record of a supervisor; `NoSuchPart`."""
        records = self.registry.supervisors()
        for record in records:
            if record.id == supervisor_id:
                return record
        known = ", ".join(record.id for record in records) or "none"
        raise NoSuchPart(f"there is no supervisor {supervisor_id!r:.200} (there are: {known})")

    # Topologies

    def topologies(self) -> list[dict[str, Any]]:
        """All topologies, a few numbers of each; those whose records cannot be read at the end."""
        found = []
        for record in self.registry.topologies():
            try:
                summary = _summary(record, self._statuses.status(record.name))
                found.append(
                    {**summary, "stands_by": self._standing_by(record), "held_up": self._held_up(record)}
                )
            except NoSuchTopology:
                continue  # it went meanwhile
            except _UNREADABLE as error:
                found.append(_bad(record.name, str(error)))
        return found + [_bad(name, reason) for name, reason in sorted(self.registry.bad.items())]

    def topology(self, name: str) -> dict[str, Any]:
        """The status of a topology, with its workers."""
        try:
            record = self.record(name)
            status, workers = self._statuses.status(name), self.workers(name)
        except _UNREADABLE as error:
            return {**_bad(name, str(error)), **_NOTHING_KNOWN}
        lost = _notes_of_lost(record, self._lost())
        return {
            **status.as_dict(),
            "notes": [*status.notes, *lost],
            "note_times": [*status.note_times, *[self._now()] * len(lost)],
            "id": record.id,
            "workers": workers,
            "workers_wanted": record.conf[WORKERS],
            "stands_by": self._standing_by(record),
            "submitted": record.submitted,
            "files": dict(record.files),
        }

    def record(self, name: str) -> TopologyRecord:
        """The record of a topology; `NoSuchTopology`, or why it cannot be read."""
        record = self.registry.topology(name)
        if record is None:
            raise NoSuchTopology(name)
        return record

    def status(self, name: str) -> TopologyStatus:
        """State and counters of a topology."""
        return self._statuses.status(name)

    def component(self, name: str, component: str) -> dict[str, Any]:
        """A component: its status, where its tasks run, what it reads and writes, its configuration."""
        record = self.record(name)
        described = self._component_of(record, component)
        hosts = {each.id: each.host for each in self.registry.supervisors()}
        places = {task: place for place, _ in self._placements(record) for task in place.tasks}
        tasks = []
        for task, owner, index in record.tasks:
            if owner == component:
                place = places.get(task)
                tasks.append(
                    {
                        "task": task,
                        "index": index,
                        "worker": None if place is None else place.worker,
                        "host": None if place is None else hosts.get(place.supervisor),
                    }
                )
        status = self._statuses.status(name).as_dict()["components"][component]
        return {
            "topology": name,
            "id": component,
            **status,
            "parallelism": len(tasks),
            "tasks": tasks,
            "inputs": [
                {key: value for key, value in each.items() if key != "custom"} for each in described["inputs"]
            ],
            "outputs": described["outputs"],
            "conf": redacted(record.component_confs.get(component, {})),
        }

    def workers(self, name: str) -> list[dict[str, Any]]:
        """The workers of a topology, also those that are on their way out; of one that has ended those that it had."""
        record = self.record(name)
        hosts = {each.id: each.host for each in self.registry.supervisors()}
        there = hosts.keys() | self.registry.unread_supervisors
        reports = self.registry.reports(record.id)
        named = {task: [task, component, index] for task, component, index in record.tasks}
        found = []
        for placement, leaving in self._known(record):
            report = reports.get(placement.worker)
            if report is not None and report.incarnation[0] != placement.incarnation[0]:
                report = None  # of an earlier worker of this name
            incarnation = placement.incarnation if report is None else report.incarnation
            found.append(
                {
                    "worker": placement.worker,
                    "supervisor": placement.supervisor,
                    "host": hosts.get(placement.supervisor),
                    "slot": placement.slot,
                    "incarnation": list(incarnation),
                    "tasks": [named[task] for task in placement.tasks if task in named],
                    "opened": report is not None and report.opened,
                    "state": state_of(report, leaving, placement.supervisor in there),
                }
            )
        return found

    def supervisor_of(self, name: str, worker: str) -> tuple[str, SupervisorRecord]:
        """(the topology's id, the supervisor that a worker runs at, or ran at when the topology ended)."""
        record = self.record(name)
        known = []
        for placement, _ in self._known(record):
            if placement.worker == worker:
                return record.id, self.supervisor(placement.supervisor)
            known.append(placement.worker)
        raise NoSuchPart(
            f"topology {name!r} has no worker {worker!r:.80} (it has: {', '.join(known) or 'none'})"
        )

    def errors(self, name: str, component: str | None = None) -> list[dict[str, Any]]:
        """The latest error reports, the oldest first: as values, and `text` as a person reads them."""
        record = self.record(name)
        if component is not None:
            self._component_of(record, component)
        return [
            {**report.as_dict(), "text": report.render()}
            for report in self._statuses.status(name).errors
            if component in (None, report.component)
        ]

    def configuration(self, name: str) -> dict[str, Any]:
        """The configuration of a topology and of its components, without secrets."""
        record = self.record(name)
        return {
            "conf": redacted(record.conf),
            "component_confs": {
                component: redacted(own) for component, own in record.component_confs.items()
            },
        }

    def worker_counters(self, name: str) -> dict[str, Any]:
        """What each worker has counted, as it said so itself, and the sums of the components."""
        record = self.record(name)
        status = self._statuses.status(name).as_dict()
        return {
            "topology": name,
            "id": record.id,
            "components": status["components"],
            "workers": [
                {
                    "worker": worker,
                    "incarnation": list(incarnation),
                    "components": {
                        component: counters.as_dict() for component, counters in said.components.items()
                    },
                }
                for worker, incarnation, said in self.counters.of_workers(record.id)
            ],
        }

    # Inside

    def _standing_by(self, record: TopologyRecord) -> dict[str, Any] | None:
        """The version before a topology, while it may come back, and after how many seconds it does."""
        if record.until is None or not is_on_trial(record):
            return None
        return {"id": record.replaces, "secs": max(0.0, record.until - self._now())}

    def _held_up(self, record: TopologyRecord) -> dict[str, Any] | None:
        """How many workers of a running topology are not up, of which their hosts have said why; and of the first, why."""
        assignment, reports = self.registry.assignment(record.id), self.registry.reports(record.id)
        found = why_not_up(record, _rows(assignment), reports)
        return {"workers": len(found), "why": found[0]} if found else None

    def _component_of(self, record: TopologyRecord, component: str) -> Mapping[str, Any]:
        components = self._description(record.id)["components"]
        for described in components:
            if described["id"] == component:
                return dict(described)
        known = ", ".join(described["id"] for described in components)
        raise NoSuchPart(f"topology {record.name!r} has no component {component!r:.200} (it has: {known})")

    def _description(self, topology_id: str) -> Mapping[str, Any]:
        """A description never changes, so it is read once."""
        found = self._descriptions.get(topology_id)
        if found is None:
            found = get_description(self._store, topology_id)
            if len(self._descriptions) >= _DESCRIPTIONS:
                self._descriptions = {}
            self._descriptions[topology_id] = found
        return found

    def _placements(self, record: TopologyRecord) -> Iterator[tuple[Placement, bool]]:
        """(placement, whether it was withdrawn)."""
        for placement in _rows(self.registry.assignment(record.id)):
            yield placement, False
        for placement in _rows(self.registry.leaving(record.id)):
            yield placement, True

    def _known(self, record: TopologyRecord) -> Iterator[tuple[Placement, bool | None]]:
        """(placement, whether it was withdrawn; None: it is gone, with the end of its topology)."""
        there = set()
        for placement, leaving in self._placements(record):
            there.add(placement.worker)
            yield placement, leaving
        if record.state in (COMPLETED, FAILED):
            for placement in _rows(self.registry.former(record.id)):
                if placement.worker not in there:
                    yield placement, None

    def _taken_slots(self, records: list[TopologyRecord]) -> dict[str, set[int]]:
        taken: dict[str, set[int]] = {}
        for record in records:
            for placement, _ in self._placements(record):
                taken.setdefault(placement.supervisor, set()).add(placement.slot)
        return taken


def state_of(report: WorkerReport | None, leaving: bool | None, supervised: bool) -> str:
    """A worker's state in one word. `leaving`: whether it was withdrawn; None: it is gone."""
    if not supervised:
        return "LOST"
    if leaving is None or (report is not None and report.stopped):
        return "STOPPED"
    if leaving:
        return "STOPPING"
    if report is None or not report.opened:
        return "STARTING"
    return "DRAINED" if report.drained else "RUNNING"


def _summary(record: TopologyRecord, status: TopologyStatus) -> dict[str, Any]:
    components = status.components.values()
    spouts = [component for component in components if component.kind == "spout"]
    return {
        "name": record.name,
        "id": record.id,
        "state": status.state,
        "tasks": len(record.tasks),
        "workers": status.workers,
        "components": len(status.components),
        "uptime_secs": status.uptime,
        "state_secs": status.state_secs,
        "emitted": sum(component.emitted for component in components),
        "acked": sum(spout.acked for spout in spouts),
        "failed": sum(spout.failed for spout in spouts),
        "pending": sum(spout.pending for spout in spouts),
        "errors": sum(component.errors for component in components),
        "error": status.error,
    }


def _bad(name: str, reason: str) -> dict[str, Any]:
    counts = ("tasks", "workers", "components", "emitted", "acked", "failed", "pending", "errors")
    nothing = {**dict.fromkeys(counts, 0), "uptime_secs": 0.0, "state_secs": 0.0}
    return {
        "name": name,
        "id": "",
        "state": "BAD",
        **nothing,
        "error": reason,
        "stands_by": None,
        "held_up": None,
    }


def _notes_of_lost(record: TopologyRecord, lost: Collection[str]) -> list[str]:
    """What is said of the files that a topology brought and no Nimbus has any more, while workers may have to be started."""
    if record.state in (COMPLETED, FAILED):
        return []
    return [
        f"its {kind} is lost: no Nimbus that answers has the file {sha256}. Workers that run go on; none can be started on a"
        " host that has not got it: submit the topology again, with --replace"
        for kind, sha256 in sorted(record.files.items())
        if sha256 in lost
    ]


def _rows(assignment: Assignment | None) -> tuple[Placement, ...]:
    return () if assignment is None else assignment.placements
