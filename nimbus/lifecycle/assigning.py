"""Where topologies run: which slots each topology may use, and how assignments are written.

Slots of a drained supervisor, of a supervisor whose host cannot start workers, or of a supervisor whose record cannot be read,
keep their running workers and take no new workers. A worker that its host cannot start gives its tasks to other slots, if there
are any. The last known slots of a topology that cannot be read stay taken. A Nimbus that could never read such a topology may
give its slots to a different topology. If two topologies have the same slot for this reason, the slot belongs to the older
submission, and the tasks of the younger topology are placed again. An assignment is written in an order that lets another
Nimbus continue at any point: the keys for new supervisors, the workers that leave, the record, the workers that the topology
has.
Must not know: states and deadlines, when tasks have to be placed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import cast

from msgspec.structs import replace

from nimbus.lifecycle import progress
from nimbus.lifecycle.cleanup import TopologyKeys
from nimbus.lifecycle.progress import LifecycleView, withdrawn, workers_of
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.placement import placing
from nimbus.placement.scheduler import Slot, schedule
from squall.cluster.numbering import ASSIGNMENTS
from squall.cluster.records import Assignment, SupervisorRecord, TopologyRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)


class Assigner:
    """Gives slots to topologies."""

    def __init__(self, registry: Registry, keys: TopologyKeys | None) -> None:
        self._registry = registry
        self.keys = keys
        #: The registered supervisors, by id.
        self.supervisors: Mapping[str, SupervisorRecord] = {}
        self._slots: frozenset[Slot] = frozenset()
        self._drained: set[str] = set()
        #: Ids of supervisors whose hosts cannot start workers.
        self._failing: frozenset[str] = frozenset()
        #: Ids of registered supervisors whose records cannot be read.
        self.unread: frozenset[str] = frozenset()
        #: Topology id -> the slots that the topology uses although they belong to an older topology.
        self._disputed: Mapping[str, set[Slot]] = {}

    def refresh(self) -> None:
        """Read which slots exist. Later changes are seen at the next refresh."""
        readable = self._registry.all_supervisors()
        unread = self._registry.unread_supervisors
        if unread or unread != self.unread or readable != list(self.supervisors.values()):
            unknown = (SupervisorRecord(key, key, 0, beats=True) for key in sorted(unread))
            self.supervisors = {record.id: record for record in (*readable, *unknown)}
            self._slots = frozenset(placing.slots_of(readable)) | self._slots_with_workers(unread)
            self.unread = unread
            self._failing = frozenset(record.id for record in readable if record.cannot_start)
        self._drained = self._registry.drained_supervisors()

    def find_disputes(self) -> None:
        """Find the slots that more than one topology has."""
        self._disputed = placing.disputed(
            (record.id, workers_of(self._registry.assignments.get(record.id)))
            for record in self._registry.all_topologies()
        )

    def place(self, view: LifecycleView, becomes: TopologyRecord) -> None:
        """Place the tasks that no worker runs; all other tasks keep their slots. If any task is placed, the record becomes
        `becomes`."""
        slots = self._slots_for(view)
        if _is_half_written(view) or not placing.all_run(view.record.tasks, view.workers, slots):
            self.assign(view, self._completed(view), becomes)

    def place_all(self, view: LifecycleView, becomes: TopologyRecord) -> None:
        """Place all tasks as if they were new. Use drained supervisors only if there are no other slots at all."""
        slots = self._usable(becomes) or set(self._slots - self._taken_from(becomes))
        self.assign(view, self._scheduled(becomes, slots, {}), becomes)

    def withdraw(self, view: LifecycleView) -> None:
        """Withdraw all workers. Their placements are kept, so that their logs can be read."""
        if view.assignment is not None:
            self._registry.former.put(view.assignment)
        self.assign(view, {})

    def is_squeezed(self, record: TopologyRecord) -> bool:
        """Return whether a rebalance would give the topology more workers than it has."""
        workers = len(workers_of(self._registry.assignments.get(record.id)))
        wanted = min(cast(int, record.conf[WORKERS]), len(record.tasks))
        return 0 < workers < wanted and workers < len(self._usable(record))

    def gives_up(self, view: LifecycleView) -> bool:
        """Return whether the topology has workers that their hosts cannot start, and other slots for their tasks."""
        return bool(self._given_up(view))

    def must_move(self, record: TopologyRecord) -> bool:
        """Return whether the topology has workers on a drained supervisor, and there are free slots elsewhere."""
        if not self._drained:
            return False
        placements = workers_of(self._registry.assignments.get(record.id))
        on_drained = any(placement.supervisor in self._drained for placement in placements)
        return on_drained and bool(self._usable(record))

    def assign(
        self,
        view: LifecycleView,
        chosen: Mapping[Slot, tuple[int, ...]],
        becomes: TopologyRecord | None = None,
    ) -> None:
        """Write an assignment, in this order: the workers that leave, the record (as `becomes`), the workers that the topology
        has.

        Until the last of these three writes, the record and the assignment have different versions, so supervisors read both
        again.
        """
        record = view.record
        becomes = record if becomes is None else becomes
        same = {placing.slot_of(placement): placement.tasks for placement in view.workers} == chosen
        if same and becomes == record and not _is_half_written(view):
            return
        version = self._registry.next_number(ASSIGNMENTS, record.version) if chosen else record.version
        placements = placing.placements_for(chosen, view.workers, view.withdrawn, version)
        leaving = withdrawn(dict.fromkeys((*view.withdrawn, *view.workers)), placements)
        if self.keys is not None and placements:
            # Supervisors whose records cannot be read already have the keys.
            theirs = {placement.supervisor for placement in placements} - self.unread
            self.keys.seal_for(record.id, [self.supervisors[key] for key in sorted(theirs)])
        if leaving != view.withdrawn:
            self._registry.leaving.write(Assignment(record.id, version, leaving))
        becomes = replace(becomes, version=version)
        if becomes != record:
            self._registry.topologies.update(record, becomes)
        self._registry.assignments.write(Assignment(record.id, version, placements))
        _log.info("%s: %d workers by assignment %d", record.name, len(placements), version)

    # Slots

    def _usable(self, record: TopologyRecord) -> set[Slot]:
        """Return the slots that a topology may use for new workers."""
        return {slot for slot in self._slots - self._taken_from(record) if self._is_open(slot)}

    def _is_open(self, slot: Slot) -> bool:
        """Return whether the supervisor of a slot takes new workers."""
        return not any(slot.supervisor in closed for closed in (self._drained, self._failing, self.unread))

    def _slots_with_workers(self, supervisors: Collection[str]) -> set[Slot]:
        """Return the slots of these supervisors in which known workers run."""
        placed = self._registry.placed_ids() if supervisors else ()
        workers = (worker for topology_id in placed for worker in self._registry.last_workers(topology_id))
        return {placing.slot_of(worker) for worker in workers if worker.supervisor in supervisors}

    def _slots_for(self, view: LifecycleView) -> frozenset[Slot]:
        """Return the slots in which the workers of a topology may stay."""
        leave = self._disputed.get(view.record.id, set()) | self._given_up(view)
        return self._slots - leave if leave else self._slots

    def _given_up(self, view: LifecycleView) -> set[Slot]:
        """Return the slots of the workers that their hosts cannot start; none if no other slot could run their tasks."""
        if not self._failing:
            return set()
        failing = [placement for placement in view.workers if placement.supervisor in self._failing]
        unstarted = {placing.slot_of(each) for each in failing if progress.is_unstarted(view, each)}
        if not unstarted:
            return set()
        own = {placing.slot_of(placement) for placement in view.workers} & self._slots
        return unstarted if self._usable(view.record) or any(map(self._is_open, own)) else set()

    def _taken_from(self, record: TopologyRecord) -> set[Slot]:
        """Return the slots of all topologies except this one, including slots that a withdrawn worker has not left yet."""
        others = self._registry.placed_ids() - {record.id}
        return {placing.slot_of(worker) for other in others for worker in self._registry.last_workers(other)}

    def _completed(self, view: LifecycleView) -> dict[Slot, tuple[int, ...]]:
        """Return slots for all tasks of a topology. Running tasks keep their slots."""
        record = view.record
        placed = {placing.slot_of(placement): placement.tasks for placement in view.workers}
        own = {slot: placed[slot] for slot in self._slots_for(view) if slot in placed}
        stay = {slot: tasks for slot, tasks in own.items() if not self._is_open(slot)}
        # The topology keeps its own slots, even if a younger topology has them, too.
        usable = self._usable(record) | (own.keys() - stay.keys())
        if not stay:
            return self._scheduled(record, usable, placing.tasks_by_slot(view.workers))
        staying = {task for tasks in stay.values() for task in tasks}
        others = tuple(row for row in record.tasks if row.task not in staying)
        rest = replace(record, tasks=others)
        scheduled = self._scheduled(rest, usable, placing.tasks_by_slot(view.workers), len(stay))
        if others and not scheduled:
            return self._scheduled(record, usable | set(stay), placing.tasks_by_slot(view.workers))
        return {**stay, **scheduled}

    def _scheduled(
        self, record: TopologyRecord, slots: set[Slot], current: Mapping[int, Slot], fewer: int = 0
    ) -> dict[Slot, tuple[int, ...]]:
        """Return the scheduler's answer for the number of workers that the topology wants, minus `fewer`."""
        return schedule(record.tasks, cast(int, record.conf[WORKERS]) - fewer, slots, current)


def _is_half_written(view: LifecycleView) -> bool:
    """Return whether a Nimbus stopped while it wrote the assignment. If so, this Nimbus may choose a different assignment."""
    return view.assignment is not None and view.assignment.version != view.record.version
