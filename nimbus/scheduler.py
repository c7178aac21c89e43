"""Where tasks go: Storm's even scheduler as a pure function.

- Tasks that run in a slot that is still there stay in it.
- The others are spread component by component: evenly over hosts, then evenly over the workers of a host.
  Where that leaves a choice, the host with the least to do per worker takes the task, then the one that comes
  first by name, so that the answer depends on nothing but the arguments, and not on the order of slots.
- As many slots are used as workers are wanted, or fewer when there are fewer (tasks are squeezed) or when
  there are fewer tasks. Without any slot the answer is empty: all tasks run, or none.

Theory: both choices, of a host and of a worker in it, are the same question, "whose turn is it?": that of
the one with the fewest tasks of this component, then the least loaded, then the first. A heap answers it.
Must not know: topologies, workers' names, versions, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from nimbus.tasks import TaskSpec

__all__ = ["Slot", "TaskSpec", "schedule"]


@dataclass(frozen=True, order=True)
class Slot:
    """Room for one worker. `host` is the machine, where that is not simply the supervisor's id."""

    supervisor: str
    number: int
    host: str = field(default="", compare=False)

    @property
    def machine(self) -> str:
        """What tasks are spread over."""
        return self.host or self.supervisor


def schedule(
    tasks: Collection[TaskSpec],
    workers_wanted: int,
    slots: Iterable[Slot],
    current: Mapping[int, Slot],
) -> dict[Slot, tuple[int, ...]]:
    """The tasks of each slot that is used, in the order of slots; task ids in the order of `tasks`.

    `slots` are those that are free or run tasks of this topology already; `current` says where its tasks run.
    """
    there = {slot: slot for slot in sorted(set(slots))}
    placed = {spec.task: there[current[spec.task]] for spec in tasks if current.get(spec.task) in there}
    missing = [spec for spec in tasks if spec.task not in placed]
    if missing and there:
        used = set(placed.values())
        wanted = min(max(workers_wanted, 1), len(tasks)) - len(used)
        chosen = [*used, *_free_slots(there, used, wanted)]
        placed.update(_spread(missing, chosen, tasks, placed))
    by_slot: dict[Slot, list[int]] = {}
    for spec in tasks:
        if spec.task in placed:
            by_slot.setdefault(placed[spec.task], []).append(spec.task)
    return {slot: tuple(by_slot[slot]) for slot in sorted(by_slot)}


def _free_slots(there: Collection[Slot], used: Collection[Slot], wanted: int) -> list[Slot]:
    """Up to `wanted` slots that are not used, evenly over hosts; a host with more room goes first."""
    free: dict[str, list[Slot]] = {}
    for slot in sorted(there, reverse=True):  # so that pop gives the first
        if slot not in used:
            free.setdefault(slot.machine, []).append(slot)
    in_use = Counter(slot.machine for slot in used)
    turns = [(in_use[machine], -len(rest), machine) for machine, rest in free.items()]
    heapify(turns)
    chosen: list[Slot] = []
    while turns and len(chosen) < wanted:
        count, _, machine = heappop(turns)
        chosen.append(free[machine].pop())
        if free[machine]:
            heappush(turns, (count + 1, -len(free[machine]), machine))
    return chosen


class _Load:
    """How many tasks each chosen slot and its host run, in all and of each component."""

    def __init__(self, chosen: Iterable[Slot]) -> None:
        self._workers: dict[str, list[Slot]] = {}
        for slot in sorted(chosen):
            self._workers.setdefault(slot.machine, []).append(slot)
        self._of_slot: Counter[Slot] = Counter()
        self._of_host: Counter[str] = Counter()

    def add(self, slot: Slot) -> None:
        self._of_slot[slot] += 1
        self._of_host[slot.machine] += 1

    def per_worker(self, machine: str) -> float:
        return self._of_host[machine] / len(self._workers[machine])

    def place(self, specs: Iterable[TaskSpec], held: Mapping[Slot, int]) -> dict[int, Slot]:
        """Slots for tasks of one component, of which `held` run already."""
        on_host: Counter[str] = Counter()
        for slot, count in held.items():
            on_host[slot.machine] += count
        hosts = [(on_host[machine], self.per_worker(machine), machine) for machine in self._workers]
        heapify(hosts)
        workers: dict[str, list[tuple[int, int, Slot]]] = {}  # made when a host's first turn comes
        placed = {}
        for spec in specs:
            count, _, machine = hosts[0]
            if machine not in workers:
                workers[machine] = [
                    (held.get(slot, 0), self._of_slot[slot], slot) for slot in self._workers[machine]
                ]
                heapify(workers[machine])
            of_component, load, slot = workers[machine][0]
            placed[spec.task] = slot
            self.add(slot)
            heapreplace(workers[machine], (of_component + 1, load + 1, slot))
            heapreplace(hosts, (count + 1, self.per_worker(machine), machine))
        return placed


def _spread(
    missing: Iterable[TaskSpec], chosen: Iterable[Slot], tasks: Iterable[TaskSpec], placed: Mapping[int, Slot]
) -> dict[int, Slot]:
    """A slot among the chosen for each missing task, in view of those that are placed."""
    load = _Load(chosen)
    held: dict[str, Counter[Slot]] = {}
    for spec in tasks:
        if spec.task in placed:
            load.add(placed[spec.task])
            held.setdefault(spec.component, Counter())[placed[spec.task]] += 1
    waiting: dict[str, list[TaskSpec]] = {}
    for spec in missing:
        waiting.setdefault(spec.component, []).append(spec)
    found: dict[int, Slot] = {}
    for component, specs in waiting.items():
        found.update(load.place(specs, held.get(component, {})))
    return found
