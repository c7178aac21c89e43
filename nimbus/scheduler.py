"""Where tasks go: Storm's even scheduler as a pure function.

- Tasks that run in a slot that is still there stay in it.
- The others are spread component by component: evenly over hosts, then evenly over the workers of a host.
  Where that leaves a choice, the host with the least to do per worker takes the task, then the one that comes
  first by name, so that the answer depends on nothing but the arguments, and not on the order of slots.
- As many slots are used as workers are wanted, or fewer when there are fewer (tasks are squeezed) or when
  there are fewer tasks. Without any slot the answer is empty: all tasks run, or none.

Theory: both choices, of a host and of a worker in it, are the same question, "whose turn is it?": that of
the one with the fewest tasks of this component, then the least loaded, then the first. Two heaps answer it:
all that have none of the component wait in one that lives on from component to component (`_Turns`), those
that have some take turns in another (`_Round`).
Must not know: topologies, workers' names, versions, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

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


Name = TypeVar("Name", str, int)


class _Turns(Generic[Name]):
    """Hosts, or the workers of one, the least loaded first; the load is that of tasks of all components.

    `sizes`: how many workers share what each of them runs; `running`: how many tasks that is.
    """

    def __init__(self, sizes: Mapping[Name, int], running: Mapping[Name, int]) -> None:
        self._sizes: Mapping[Name, int] = sizes
        self._running: dict[Name, int] = {name: running.get(name, 0) for name in sizes}
        self.waiting: list[tuple[float, Name]] = [(self.load_of(name), name) for name in sizes]
        heapify(self.waiting)

    def load_of(self, name: Name) -> float:
        """How many tasks it runs for each worker."""
        return self._running[name] / self._sizes[name]

    def give(self, name: Name) -> None:
        """It runs one task more."""
        self._running[name] += 1


class _Round(Generic[Name]):
    """The turns for the tasks of one component. Those that run none of it come first, as they wait in `turns`.

    Only what is given a task is touched, so that a component costs what its tasks cost, however many others wait.
    """

    def __init__(self, turns: _Turns[Name], held: Mapping[Name, int]) -> None:
        self._turns: _Turns[Name] = turns
        self._held: Mapping[Name, int] = held
        self._taken: list[tuple[int, float, Name]] = [
            (count, turns.load_of(name), name) for name, count in held.items()
        ]
        heapify(self._taken)
        self._away: list[Name] = []

    def give(self) -> Name:
        """Whose turn it is, which is given a task."""
        waiting = self._turns.waiting
        while waiting and waiting[0][1] in self._held:
            self._away.append(heappop(waiting)[1])
        if waiting:
            count, name = 0, heappop(waiting)[1]
            self._away.append(name)
        else:
            count, _, name = heappop(self._taken)
        self._turns.give(name)
        heappush(self._taken, (count + 1, self._turns.load_of(name), name))
        return name

    def end(self) -> None:
        """Let all that were touched wait again, by what they have to do now."""
        for name in self._away:
            heappush(self._turns.waiting, (self._turns.load_of(name), name))


def _spread(
    missing: Iterable[TaskSpec], chosen: Iterable[Slot], tasks: Iterable[TaskSpec], placed: Mapping[int, Slot]
) -> dict[int, Slot]:
    """A slot among the chosen for each missing task, in view of those that are placed."""
    slots = sorted(chosen)  # from here on a worker is a number in this list, and so in the order of slots
    numbers = {slot: number for number, slot in enumerate(slots)}
    workers_of: dict[str, dict[int, int]] = {}
    for number, slot in enumerate(slots):
        workers_of.setdefault(slot.machine, {})[number] = 1
    of_worker: Counter[int] = Counter()
    held: dict[str, Counter[int]] = {}
    for spec in tasks:
        if spec.task in placed:
            number = numbers[placed[spec.task]]
            of_worker[number] += 1
            held.setdefault(spec.component, Counter())[number] += 1
    hosts = _Turns({host: len(its) for host, its in workers_of.items()}, _by_host(of_worker, slots))
    workers = {host: _Turns(its, of_worker) for host, its in workers_of.items()}
    waiting: dict[str, list[TaskSpec]] = {}
    for spec in missing:
        waiting.setdefault(spec.component, []).append(spec)
    found: dict[int, Slot] = {}
    for component, specs in waiting.items():
        of_component = held.get(component, Counter())
        rounds: dict[str, _Round[int]] = {}
        turns = _Round(hosts, _by_host(of_component, slots))
        for spec in specs:
            host = turns.give()
            if host not in rounds:
                mine = {number: count for number, count in of_component.items() if number in workers_of[host]}
                rounds[host] = _Round(workers[host], mine)
            found[spec.task] = slots[rounds[host].give()]
        turns.end()
        for of_host in rounds.values():
            of_host.end()
    return found


def _by_host(of_worker: Mapping[int, int], slots: Sequence[Slot]) -> Counter[str]:
    """The tasks of each host, from those of each worker."""
    of_host: Counter[str] = Counter()
    for number, count in of_worker.items():
        of_host[slots[number].machine] += count
    return of_host
