"""What the store wants of a supervisor: the workers that have a place with it, and what their topologies' states ask.

Must not know: processes, directories, what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from squall.cluster.records import Assignment, BadRecord, Placement, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.worker_files import WHAT_A_STATE_ASKS
from supervisor.plan import Key, Wanted


@dataclass(frozen=True)
class TopologyView:
    """A topology at one moment, as the store has it."""

    record: TopologyRecord
    assignment: Assignment | None
    leaving: Assignment | None
    reports: Mapping[str, WorkerReport]

    @property
    def asked(self) -> str:
        """What its workers are to do."""
        return WHAT_A_STATE_ASKS[self.record.state]

    @property
    def version(self) -> int:
        """The version of the assignment, 0 without one."""
        return 0 if self.assignment is None else self.assignment.version

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The workers that it has."""
        return () if self.assignment is None else self.assignment.placements

    @property
    def withdrawn(self) -> tuple[Placement, ...]:
        """The workers that are to go."""
        return () if self.leaving is None else self.leaving.placements

    def places(self, worker: Placement) -> bool:
        """Whether a worker still has its place: who is to go is noted first, and may start until it has lost that."""
        same = (worker.worker, worker.incarnation)
        return any((place.worker, place.incarnation) == same for place in self.placements)

    @property
    def whole(self) -> bool:
        """Whether the assignment is one of just these tasks, or there is none."""
        placed = [task for place in self.placements for task in place.tasks]
        tasks = {task for task, _, _ in self.record.tasks}
        return not placed or (len(placed) == len(tasks) and tasks.issuperset(placed))

    def knows(self, worker: str, version: int) -> bool:
        """Whether a worker that was placed by that version has a place, or is awaited to be gone."""
        return any(
            place.worker == worker and place.incarnation[0] == version
            for place in (*self.placements, *self.withdrawn)
        )


@dataclass(frozen=True)
class Reading:
    """What the store says at one moment."""

    views: Mapping[str, TopologyView] = field(default_factory=dict)
    """The topologies by their id."""
    waiting: tuple[TopologyRecord, ...] = ()
    """Versions that are to take a name over."""
    former: tuple[TopologyRecord, ...] = ()
    """Versions that had a name before, and may come back."""
    unsure: Mapping[str, str] = field(default_factory=dict)
    """Name -> why of one that cannot be told: a record is damaged, or being written at this moment. Its workers go on."""


def read_topologies(
    registry: Registry, before: Mapping[str, TopologyView], supervisor: str, hosted: Collection[str] = ()
) -> Reading:
    """All topologies; one of which nothing has changed is the very view of `before`.

    Reports are read of those that concern `supervisor` only: that have, or are to lose, workers there, or are `hosted` (ids).
    """
    views: dict[str, TopologyView] = {}
    records = registry.topologies()
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
            unsure[record.name] = f"the assignment {view.version} of {record.id} is not one of its tasks"
            if last is not None:
                views[record.id] = last
    waiting = _versions(registry.replacements(), registry.replacement, unsure)
    former = _versions(registry.all_replaced(), registry.replaced, unsure)
    return Reading(views, waiting, former, unsure)


def _versions(
    names: Iterable[str], read: Callable[[str], TopologyRecord | None], unsure: dict[str, str]
) -> tuple[TopologyRecord, ...]:
    found = []
    for name in names:
        try:
            record = read(name)
        except BadRecord as error:
            unsure.setdefault(name, str(error))
            continue
        if record is not None:
            found.append(record)
    return tuple(found)


def _read(
    registry: Registry, record: TopologyRecord, supervisor: str, hosted: Collection[str]
) -> TopologyView:
    assignment, leaving = registry.assignment(record.id), registry.leaving(record.id)
    concerns = record.id in hosted or any(
        place.supervisor == supervisor
        for each in (assignment, leaving)
        if each is not None
        for place in each.placements
    )
    return TopologyView(record, assignment, leaving, registry.reports(record.id) if concerns else {})


def places_of(views: Iterable[TopologyView], supervisor: str) -> dict[Key, Placement]:
    """The places that a supervisor's workers have."""
    return {
        (view.record.id, place.worker): place
        for view in views
        for place in view.placements
        if place.supervisor == supervisor
    }


def wanted_of(views: Mapping[str, TopologyView], places: Mapping[Key, Placement]) -> dict[Key, Wanted]:
    """What is wanted in these places."""
    return {
        key: Wanted(
            version=place.incarnation[0],
            slot=place.slot,
            stop=views[key[0]].asked == "stop",
            timeout=cast(float, views[key[0]].record.conf["topology.worker.timeout.secs"]),
        )
        for key, place in places.items()
    }
