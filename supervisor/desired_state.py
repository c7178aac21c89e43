"""The desired state of a supervisor's workers, from the store: their placements, and the states of their topologies.

Must not know: processes, directories, which workers run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

import msgspec

from squall.cluster.record_sets import RecordSet
from squall.cluster.records import Assignment, BadRecord, Placement, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from supervisor.plan import DesiredState, Key


class TopologyView(msgspec.Struct, frozen=True):
    """A topology in the store at one moment."""

    record: TopologyRecord
    assignment: Assignment | None
    leaving: Assignment | None
    reports: Mapping[str, WorkerReport]

    @property
    def asked(self) -> str:
        """What the topology's state asks of its workers."""
        return self.record.state.asks

    @property
    def version(self) -> int:
        """The version of the assignment; 0 without an assignment."""
        return 0 if self.assignment is None else self.assignment.version

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The placements of the topology's workers."""
        return () if self.assignment is None else self.assignment.placements

    @property
    def withdrawn(self) -> tuple[Placement, ...]:
        """The placements that are being withdrawn."""
        return () if self.leaving is None else self.leaving.placements

    def places(self, worker: Placement) -> bool:
        """Return whether a worker is still placed. A worker may start until its placement is removed, even if the worker is
        already listed as leaving."""
        same = (worker.worker, worker.incarnation)
        return any((place.worker, place.incarnation) == same for place in self.placements)

    @property
    def whole(self) -> bool:
        """Whether the assignment places each task of the topology exactly once, or places no task."""
        placed = [task for place in self.placements for task in place.tasks]
        tasks = {task for task, _, _ in self.record.tasks}
        return not placed or (len(placed) == len(tasks) and tasks.issuperset(placed))

    def concerns(self, supervisor: str) -> bool:
        """Return whether the supervisor has current or leaving workers."""
        return any(place.supervisor == supervisor for place in (*self.placements, *self.withdrawn))

    def knows(self, worker: str, version: int) -> bool:
        """Return whether a worker of this version is placed, or is being withdrawn."""
        return any(
            place.worker == worker and place.incarnation.version == version
            for place in (*self.placements, *self.withdrawn)
        )


class Reading(msgspec.Struct, frozen=True):
    """One read of the store."""

    #: The topologies by their id.
    views: Mapping[str, TopologyView] = msgspec.field(default_factory=dict)
    #: Versions that will take over the name of a running topology.
    waiting: tuple[TopologyRecord, ...] = ()
    #: Replaced versions, to which a rollback may return.
    former: tuple[TopologyRecord, ...] = ()
    #: Name -> reason, for topologies whose records are damaged, or are being written at this moment. Their workers continue.
    unsure: Mapping[str, str] = msgspec.field(default_factory=dict)


def read_topologies(
    registry: Registry, before: Mapping[str, TopologyView], supervisor: str, hosted: Collection[str] = ()
) -> Reading:
    """Return all topologies. An unchanged topology keeps its view object from `before`.

    Reports are read only for topologies that have current or leaving workers at `supervisor`, or are in `hosted` (ids).
    """
    views: dict[str, TopologyView] = {}
    records = registry.all_topologies()
    unsure = dict(registry.bad)
    for record in records:
        last = before.get(record.id)
        try:
            view = _read(registry, record, supervisor, hosted)
        except BadRecord as error:
            unsure[record.name] = str(error)
            continue
        if view == last:
            views[record.id] = last
        elif view.whole:
            views[record.id] = view
        else:
            why = f"assignment {view.version} of {record.id} does not place each task exactly once"
            unsure[record.name] = why
            if last is not None:
                views[record.id] = last
    waiting = _versions(registry.replacements, unsure)
    former = _versions(registry.replaced, unsure)
    return Reading(views, waiting, former, unsure)


def _versions(versions: RecordSet[TopologyRecord], unsure: dict[str, str]) -> tuple[TopologyRecord, ...]:
    found = []
    for name in versions.names():
        try:
            record = versions.get(name)
        except BadRecord as error:
            unsure.setdefault(name, str(error))
            continue
        if record is not None:
            found.append(record)
    return tuple(found)


def _read(
    registry: Registry, record: TopologyRecord, supervisor: str, hosted: Collection[str]
) -> TopologyView:
    assignment, leaving = registry.assignments.get(record.id), registry.leaving.get(record.id)
    view = TopologyView(record, assignment, leaving, {})
    concerns = record.id in hosted or view.concerns(supervisor)
    return msgspec.structs.replace(view, reports=registry.reports(record.id)) if concerns else view


def places_of(views: Iterable[TopologyView], supervisor: str) -> dict[Key, Placement]:
    """Return the placements of a supervisor's workers."""
    return {
        (view.record.id, place.worker): place
        for view in views
        for place in view.placements
        if place.supervisor == supervisor
    }


def desired_states(
    views: Mapping[str, TopologyView], places: Mapping[Key, Placement]
) -> dict[Key, DesiredState]:
    """Return the desired state of the workers with these placements."""
    return {
        key: DesiredState(
            version=place.incarnation.version,
            slot=place.slot,
            stop=views[key[0]].asked == "stop",
            timeout=cast(float, views[key[0]].record.conf["topology.worker.timeout.secs"]),
        )
        for key, place in places.items()
    }
