"""From slots to workers: which workers an assignment has, given the scheduler's choice.

A worker that keeps its slot and all of its tasks keeps its name and its incarnation, even if it gets more tasks. A worker that
loses a task is replaced by a new worker with a new incarnation, even in the same slot. From then on, everything that the old
worker still sends for the task is refused everywhere: a task has only one owner.
Must not know: the store, states, time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from nimbus.placement.scheduler import Slot
from squall.cluster.records import Placement, SupervisorRecord
from squall.values import Incarnation


def slots_of(supervisors: Iterable[SupervisorRecord]) -> list[Slot]:
    """Return all slots of these supervisors."""
    return [
        Slot(supervisor.id, number, supervisor.host)
        for supervisor in supervisors
        for number in range(supervisor.slots)
    ]


def slot_of(placement: Placement) -> Slot:
    """Return the slot that a worker runs in."""
    return Slot(placement.supervisor, placement.slot)


def tasks_by_slot(placements: Iterable[Placement]) -> dict[int, Slot]:
    """Return the slot of each task."""
    return {task: slot_of(placement) for placement in placements for task in placement.tasks}


def disputed(claims: Iterable[tuple[str, Iterable[Placement]]]) -> dict[str, set[Slot]]:
    """Return topology id -> the slots that this topology must leave because a topology earlier in `claims` has them, too."""
    owners: dict[Slot, str] = {}
    must_leave: dict[str, set[Slot]] = {}
    for topology_id, placements in claims:
        for slot in map(slot_of, placements):
            if owners.setdefault(slot, topology_id) != topology_id:
                must_leave.setdefault(topology_id, set()).add(slot)
    return must_leave


def all_run(tasks: Sequence[object], placements: Collection[Placement], slots: Collection[Slot]) -> bool:
    """Return whether every task is placed in one of these slots."""
    placed = sum(len(placement.tasks) for placement in placements)
    return placed == len(tasks) and all(slot_of(placement) in slots for placement in placements)


def placements_for(
    chosen: Mapping[Slot, tuple[int, ...]],
    current: Collection[Placement],
    leaving: Iterable[Placement],
    version: int,
) -> tuple[Placement, ...]:
    """Return the workers of the assignment `version`. A new worker gets neither a name that is in use nor the name of
    a leaving worker."""
    before = {slot_of(placement): placement for placement in current}
    names = {placement.worker for placement in (*current, *leaving)}
    free_names = (name for number in count(1) if (name := f"w{number}") not in names)
    new = Incarnation(version, 0)
    placements = []
    for slot, tasks in chosen.items():
        old = before.get(slot)
        if old is not None and set(old.tasks) <= set(tasks):
            placements.append(replace(old, tasks=tasks))
        else:
            placements.append(Placement(next(free_names), slot.supervisor, slot.number, new, tasks))
    return tuple(placements)
