"""What the store wants of a supervisor: the workers that have a place with it, and what their topologies' states ask.

Must not know: processes, directories, what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import StoreError
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


class HalfWritten(StoreError):
    """What was read does not fit together: it is being written at this moment."""


def read_views(registry: Registry, before: Mapping[str, TopologyView]) -> dict[str, TopologyView]:
    """All topologies by their id; one of which nothing has changed is the very view of `before`. `HalfWritten`: try again."""
    views = {}
    for record in registry.topologies():
        view = TopologyView(
            record,
            registry.assignment(record.id),
            registry.leaving(record.id),
            registry.reports(record.id),
        )
        last = before.get(record.id)
        if last == view:
            views[record.id] = last
            continue
        if not view.whole:
            raise HalfWritten(f"the assignment {view.version} of {record.id} is not one of its tasks")
        views[record.id] = view
    return views


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
