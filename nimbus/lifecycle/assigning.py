"""Where topologies run: which slots there are for whom, and the writing of assignments.

A slot of a drained supervisor is there for the workers that it has, and takes no new ones; so is one of a supervisor whose
record cannot be read. The slots of a topology that
cannot be read stay taken as they were last known. Who never could read it may give them away; when two topologies turn out
to have one slot, it is the older submission's, and what the younger has there is placed anew. An assignment is written in
an order that lets another Nimbus go on at any point: the keys for new supervisors, the workers that are to go, the record,
the workers that the topology has.
Must not know: states and deadlines, when tasks are to be placed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, cast

from nimbus import placing
from nimbus.progress import View
from nimbus.rebalancing import WORKERS
from nimbus.scheduler import Slot, schedule
from nimbus.tasks import TaskSpec
from squall.cluster.numbering import ASSIGNMENTS
from squall.cluster.records import Assignment, Placement, SupervisorRecord, TopologyRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)


class Keys(Protocol):
    """What Nimbus needs of `nimbus.keyring.KeyRing`."""

    def make(self, topology_id: str) -> None:
        """Make the keys of a new topology."""

    def seal_for(self, topology_id: str, supervisors: Iterable[SupervisorRecord]) -> None:
        """Let supervisors have a topology's keys."""

    def forget(self, topology_id: str) -> None:
        """Drop a topology's keys."""


class Assigner:
    """Gives slots to topologies."""

    def __init__(self, registry: Registry, keys: Keys | None) -> None:
        self._registry = registry
        self._keys = keys
        self._supervisors: dict[str, SupervisorRecord] = {}
        self._slots: frozenset[Slot] = frozenset()
        self._drained: set[str] = set()
        #: Ids of supervisors that are there and whose records cannot be read.
        self.unread: frozenset[str] = frozenset()
        #: By the id of a topology: slots that it has, and that are an older one's.
        self._disputed: Mapping[str, set[Slot]] = {}

    def look(self) -> None:
        """See which slots there are. What changes afterwards is seen at the next look."""
        found = self._registry.supervisors()
        unread = self._registry.unread_supervisors
        if unread or unread != self.unread or found != list(self._supervisors.values()):
            unknown = (SupervisorRecord(each, each, 0, beats=True) for each in sorted(unread))
            self._supervisors = {record.id: record for record in (*found, *unknown)}
            self._slots = frozenset(placing.slots_of(found)) | self._slots_with_workers(unread)
            self.unread = unread
        self._drained = self._registry.drained_supervisors()

    @property
    def supervisors(self) -> Mapping[str, SupervisorRecord]:
        """The supervisors that are there, by id."""
        return self._supervisors

    def look_for_disputes(self) -> None:
        """See which slots two topologies have."""
        self._disputed = placing.disputed(
            (record.id, workers_of(self._registry.assignment(record.id)))
            for record in self._registry.topologies()
        )

    def place(self, view: View, becomes: TopologyRecord) -> None:
        """Place the tasks that run nowhere; the others stay where they are. The record becomes this one if any has to be
        placed."""
        slots = self._slots_for(view.record)
        if _is_half_written(view) or not placing.all_run(view.record.tasks, view.workers, slots):
            self.assign(view, self._completed(view), becomes)

    def place_anew(self, view: View, becomes: TopologyRecord) -> None:
        """Place all tasks as if they were new; on drained supervisors only where there is nothing else at all."""
        slots = self._usable(becomes) or set(self._slots - self._taken_from(becomes))
        self.assign(view, self._scheduled(becomes, slots, {}), becomes)

    def withdraw(self, view: View) -> None:
        """Have all workers go. Which they were, and where, stays known: their logs may be asked for."""
        if view.assignment is not None:
            self._registry.save_former(view.assignment)
        self.assign(view, {})

    def is_squeezed(self, record: TopologyRecord) -> bool:
        """Whether a rebalance would give the topology more workers than it has."""
        workers = len(workers_of(self._registry.assignment(record.id)))
        wanted = min(cast(int, record.conf[WORKERS]), len(record.tasks))
        return 0 < workers < wanted and workers < len(self._usable(record))

    def must_move(self, record: TopologyRecord) -> bool:
        """Whether the topology has workers on a drained supervisor, and there is another place for them."""
        if not self._drained:
            return False
        placements = workers_of(self._registry.assignment(record.id))
        on_drained = any(placement.supervisor in self._drained for placement in placements)
        return on_drained and bool(self._usable(record))

    def assign(
        self, view: View, chosen: Mapping[Slot, tuple[int, ...]], becomes: TopologyRecord | None = None
    ) -> None:
        """Write the workers of a topology: those that are to go, the record (as what it becomes), those that it has.

        Until the last is written the record's version is not the assignment's, which tells hosts to look again.
        """
        record = view.record
        becomes = record if becomes is None else becomes
        same = {placing.slot_of(placement): placement.tasks for placement in view.workers} == chosen
        if same and becomes == record and not _is_half_written(view):
            return
        version = self._registry.next_number(ASSIGNMENTS, record.version) if chosen else record.version
        placements = placing.placements_for(chosen, view.workers, view.withdrawn, version)
        leaving = placing.withdrawn(dict.fromkeys((*view.withdrawn, *view.workers)), placements)
        self._hand_out_keys(record.id, placements)
        if leaving != view.withdrawn:
            self._registry.save_leaving(Assignment(record.id, version, leaving))
        becomes = replace(becomes, version=version)
        if becomes != record:
            self._registry.update_topology(record, becomes)
        self._registry.save_assignment(Assignment(record.id, version, placements))
        _log.info("%s: %d workers by assignment %d", record.name, len(placements), version)

    def _hand_out_keys(self, topology_id: str, placements: Collection[Placement]) -> None:
        if self._keys is not None and placements:
            theirs = {placement.supervisor for placement in placements} - self.unread  # they have theirs
            self._keys.seal_for(topology_id, [self._supervisors[each] for each in sorted(theirs)])

    # Slots

    def _usable(self, record: TopologyRecord) -> set[Slot]:
        """The slots that a topology may be placed in anew: no other has them, and their supervisors take new workers."""
        free = self._slots - self._taken_from(record)
        return {slot for slot in free if self._is_open(slot)}

    def _is_open(self, slot: Slot) -> bool:
        """Whether a supervisor takes new workers."""
        return slot.supervisor not in self._drained and slot.supervisor not in self.unread

    def _slots_with_workers(self, supervisors: Collection[str]) -> set[Slot]:
        """The slots of supervisors that are known only by the workers in them."""
        placed = self._registry.placed_ids() if supervisors else ()
        workers = (each for topology_id in placed for each in self._registry.last_workers(topology_id))
        return {placing.slot_of(each) for each in workers if each.supervisor in supervisors}

    def _slots_for(self, record: TopologyRecord) -> frozenset[Slot]:
        """The slots in which the workers that a topology has may stay."""
        disputed = self._disputed.get(record.id)
        return self._slots - disputed if disputed else self._slots

    def _taken_from(self, record: TopologyRecord) -> set[Slot]:
        """The slots of all other topologies, also those that a withdrawn worker has not left yet."""
        others = self._registry.placed_ids() - {record.id}
        return {placing.slot_of(each) for other in others for each in self._registry.last_workers(other)}

    def _completed(self, view: View) -> dict[Slot, tuple[int, ...]]:
        """Slots for all tasks of a topology, of which those that run stay where they are."""
        record = view.record
        placed = {placing.slot_of(placement): placement.tasks for placement in view.workers}
        own = {slot: placed[slot] for slot in self._slots_for(record) if slot in placed}
        stay = {slot: tasks for slot, tasks in own.items() if not self._is_open(slot)}
        # What it has it keeps, though a younger topology has it too.
        usable = self._usable(record) | (own.keys() - stay.keys())
        if not stay:
            return self._scheduled(record, usable, placing.tasks_by_slot(view.workers))
        staying = {task for tasks in stay.values() for task in tasks}
        others = tuple(row for row in record.tasks if row[0] not in staying)
        rest = replace(record, tasks=others)
        found = self._scheduled(rest, usable, placing.tasks_by_slot(view.workers), len(stay))
        if others and not found:
            return self._scheduled(record, usable | set(stay), placing.tasks_by_slot(view.workers))
        return {**stay, **found}

    def _scheduled(
        self, record: TopologyRecord, slots: set[Slot], current: Mapping[int, Slot], fewer: int = 0
    ) -> dict[Slot, tuple[int, ...]]:
        """The scheduler's answer for as many workers as the topology wants, or so many fewer."""
        tasks = [TaskSpec(*row) for row in record.tasks]
        return schedule(tasks, cast(int, record.conf[WORKERS]) - fewer, slots, current)


def _is_half_written(view: View) -> bool:
    """Whether an assignment was about to be written for the record as it is; whoever goes on may come to another."""
    return view.assignment is not None and view.assignment.version != view.record.version


def workers_of(assignment: Assignment | None) -> tuple[Placement, ...]:
    """The workers of an assignment; none without one."""
    return () if assignment is None else assignment.placements
