"""From slots to workers: which workers an assignment has, given what the scheduler chose.

A worker that keeps its slot and all of its tasks keeps its name and its incarnation, also when it is given
more tasks. One that loses a task is replaced by a new worker with a new incarnation, even in the same slot:
what the old one still sends for that task is refused everywhere (two owners of one task never both count).
Must not know: the store, states, time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from nimbus.scheduler import Slot
from squall.cluster.records import Placement, SupervisorRecord


def slots_of(supervisors: Iterable[SupervisorRecord]) -> list[Slot]:
    """Every slot of the supervisors that are there."""
    return [
        Slot(supervisor.id, number, supervisor.host)
        for supervisor in supervisors
        for number in range(supervisor.slots)
    ]


def slot_of(placement: Placement) -> Slot:
    """The slot that a worker runs in."""
    return Slot(placement.supervisor, placement.slot)


def tasks_by_slot(placements: Iterable[Placement]) -> dict[int, Slot]:
    """Where each task runs."""
    return {task: slot_of(placement) for placement in placements for task in placement.tasks}


def disputed(claims: Iterable[tuple[str, Iterable[Placement]]]) -> dict[str, set[Slot]]:
    """The slots that more than one topology has, by the id of each that has to leave them: all but the first to claim it."""
    owners: dict[Slot, str] = {}
    found: dict[str, set[Slot]] = {}
    for topology_id, placements in claims:
        for slot in map(slot_of, placements):
            if owners.setdefault(slot, topology_id) != topology_id:
                found.setdefault(topology_id, set()).add(slot)
    return found


def all_run(tasks: Sequence[object], placements: Iterable[Placement], slots: Collection[Slot]) -> bool:
    """Whether every task is placed in a slot that is there."""
    placed = 0
    for placement in placements:
        if slot_of(placement) not in slots:
            return False
        placed += len(placement.tasks)
    return placed == len(tasks)


def placements_for(
    chosen: Mapping[Slot, tuple[int, ...]],
    current: Collection[Placement],
    leaving: Iterable[Placement],
    version: int,
) -> tuple[Placement, ...]:
    """The workers of the assignment `version`. Names in use, also by workers that are to go, stay theirs."""
    before = {slot_of(placement): placement for placement in current}
    names = {placement.worker for placement in (*current, *leaving)}
    free_names = (name for number in count(1) if (name := f"w{number}") not in names)
    placements = []
    for slot, tasks in chosen.items():
        old = before.get(slot)
        if old is not None and set(old.tasks) <= set(tasks):
            placements.append(replace(old, tasks=tasks))
        else:
            placements.append(Placement(next(free_names), slot.supervisor, slot.number, (version, 0), tasks))
    return tuple(placements)


def withdrawn(before: Iterable[Placement], after: Iterable[Placement]) -> tuple[Placement, ...]:
    """The workers of `before` that `after` has no more."""
    stay = {(placement.worker, placement.incarnation) for placement in after}
    return tuple(old for old in before if (old.worker, old.incarnation) not in stay)
