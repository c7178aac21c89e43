"""Where tasks go: Storm's even scheduler as a pure function.

- Tasks whose slot still exists stay in this slot, however uneven that is. Only a rebalance, which places all tasks as if they
  were new, makes a topology even again.
- The number of used slots is the number of wanted workers, or less if there are fewer slots (then tasks are squeezed) or fewer
  tasks. New workers are spread evenly over hosts. Without slots the answer is empty. So all tasks run, or none.
- All other tasks are dealt to the workers, component by component. The next worker is the one with the fewest tasks of this
  component; among equals, the one with the fewest tasks; among equals, the next in a circle that changes host at each step. The
  answer depends only on the arguments, and not on the order of slots.

Theory: if all tasks are dealt, each component deals one task to every worker before any worker gets a second one, and what is
left over goes to the workers with the fewest tasks. So two workers differ by at most one task of each component, and by at most
one task in total. A worker without tasks has none of any component, so no worker stays empty while another gets two.
Must not know: topologies, workers' names, versions, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from squall.values import TaskRow


@dataclass(frozen=True, order=True)
class Slot:
    """A place for one worker. `host`: the name of the slot's host, if this name differs from the supervisor's id."""

    supervisor: str
    number: int
    host: str = field(default="", compare=False)

    @property
    def host_name(self) -> str:
        """The name of the slot's host. Workers are spread over the hosts by these names."""
        return self.host or self.supervisor


def schedule(
    tasks: Collection[TaskRow],
    workers_wanted: int,
    slots: Iterable[Slot],
    current: Mapping[int, Slot],
) -> dict[Slot, tuple[int, ...]]:
    """Return the tasks of each used slot. Slots are in their natural order, and task ids in the order of `tasks`.

    `slots`: the slots that are free or run tasks of this topology; `current`: the slots of its running tasks.
    """
    usable = {slot: slot for slot in sorted(set(slots))}
    placed = {spec.task: usable[current[spec.task]] for spec in tasks if current.get(spec.task) in usable}
    missing = [spec for spec in tasks if spec.task not in placed]
    if missing and usable:
        used = set(placed.values())
        wanted = min(max(workers_wanted, 1), len(tasks)) - len(used)
        chosen = [*used, *_free_slots(usable, used, wanted)]
        placed.update(_dealt(missing, _circle(chosen), tasks, placed))
    by_slot: dict[Slot, list[int]] = {}
    for spec in tasks:
        if spec.task in placed:
            by_slot.setdefault(placed[spec.task], []).append(spec.task)
    return {slot: tuple(by_slot[slot]) for slot in sorted(by_slot)}


def _free_slots(slots: Collection[Slot], used: Collection[Slot], wanted: int) -> list[Slot]:
    """Return up to `wanted` unused slots, spread evenly over hosts. Hosts with more free slots come first."""
    free: dict[str, list[Slot]] = {}
    for slot in sorted(slots, reverse=True):  # so that pop() returns the first slot
        if slot not in used:
            free.setdefault(slot.host_name, []).append(slot)
    in_use = Counter(slot.host_name for slot in used)
    turns = [(in_use[host], -len(rest), host) for host, rest in free.items()]
    heapify(turns)
    chosen: list[Slot] = []
    while turns and len(chosen) < wanted:
        count, _, host = heappop(turns)
        chosen.append(free[host].pop())
        if free[host]:
            heappush(turns, (count + 1, -len(free[host]), host))
    return chosen


def _circle(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots in the order in which they get tasks: the first slot of each host, then the second of each host, ...

    Hosts with few of the slots come first: tasks that are left over make the difference between hosts smaller.
    """
    hosts: dict[str, list[Slot]] = {}
    for slot in sorted(slots):
        hosts.setdefault(slot.host_name, []).append(slot)
    turns = (
        (turn, len(theirs), host, slot) for host, theirs in hosts.items() for turn, slot in enumerate(theirs)
    )
    return [slot for *_, slot in sorted(turns)]


def _dealt(
    missing: Iterable[TaskRow], slots: list[Slot], tasks: Iterable[TaskRow], placed: Mapping[int, Slot]
) -> dict[int, Slot]:
    """Return one of the slots for each missing task. From here on a worker is identified by its index in `slots`."""
    numbers = {slot: number for number, slot in enumerate(slots)}
    loads = [0] * len(slots)
    held: dict[str, Counter[int]] = {}
    for spec in tasks:
        if spec.task in placed:
            number = numbers[placed[spec.task]]
            loads[number] += 1
            held.setdefault(spec.component, Counter())[number] += 1
    lost: dict[str, list[int]] = {}
    for spec in missing:
        lost.setdefault(spec.component, []).append(spec.task)
    waiting = [(load, number) for number, load in enumerate(loads)]
    heapify(waiting)
    dealt: dict[int, Slot] = {}
    for component, theirs in lost.items():
        turns = _turns(len(theirs), held.get(component, {}), loads, waiting)
        dealt.update((task, slots[number]) for task, number in zip(theirs, turns, strict=True))
    return dealt


def _turns(
    count: int, held: Mapping[int, int], loads: list[int], waiting: list[tuple[int, int]]
) -> list[int]:
    """Return the workers of `count` tasks of one component, and add these tasks to `loads`. `held`: the number of tasks of the
    component by worker.

    `waiting`: a heap of all workers, (load, worker). Only workers that get or hold a task of the component are touched, so the
    cost depends on the tasks, and not on the number of workers.
    """
    # Workers with a task of the component: (tasks of the component, load, worker).
    served = [(tasks, loads[number], number) for number, tasks in held.items()]
    heapify(served)
    touched: list[int] = []
    turns: list[int] = []
    for _ in range(count):
        while waiting and waiting[0][1] in held:
            touched.append(heappop(waiting)[1])
        tasks = 0
        if waiting:
            _, number = heappop(waiting)
            touched.append(number)
        else:
            tasks, _, number = heappop(served)
        loads[number] += 1
        heappush(served, (tasks + 1, loads[number], number))
        turns.append(number)
    for number in touched:
        heappush(waiting, (loads[number], number))
    return turns
