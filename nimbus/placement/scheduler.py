"""Where tasks go: Storm's even scheduler as a pure function.

- Tasks whose slot still exists stay in this slot.
- All other tasks are spread component by component: evenly over hosts, then evenly over the workers of a host. Ties go to the
  host with the fewest tasks per worker, then to the first by name, so that the answer depends only on the arguments, and not on
  the order of slots.
- The number of used slots is the number of wanted workers, or less if there are fewer slots (then tasks are squeezed) or fewer
  tasks. Using all these slots is more important than an even spread over hosts of unequal size: a host whose even share is
  smaller than its number of workers gets tasks from other hosts. Without slots the answer is empty. So all tasks run, or none.

Theory: the choice of a host, and the choice of a worker in a host, are the same question: "whose turn is it?" It is the turn of
the host (or worker) with the fewest tasks of this component; among equals, it is the turn of the least loaded, then of the
first. Two heaps answer the question: hosts without a task of the component wait in a heap that is kept for all components
(`_Turns`); all other hosts take turns in a second heap (`_Round`). Within a host an empty worker is always next, so a worker
stays empty only if its host was given fewer tasks than the host has empty workers. Such hosts then get tasks from hosts that
have more than enough (`_fill`), beginning with the component for which the giving host exceeds the receiving host by the most
tasks.
Must not know: topologies, workers' names, versions, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from squall.values import TaskRow


@dataclass(frozen=True, order=True)
class Slot:
    """A place for one worker. `host`: the name of the slot's host, if this name differs from the supervisor's id."""

    supervisor: str
    number: int
    host: str = field(default="", compare=False)

    @property
    def host_name(self) -> str:
        """The name of the slot's host. Tasks are spread over the hosts by these names."""
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
        placed.update(_spread(missing, chosen, tasks, placed))
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


Name = TypeVar("Name", str, int)


class _Turns(Generic[Name]):
    """Hosts, or the workers of a host, the least loaded first. The load is the number of tasks, of all components, per worker.

    `sizes`: the number of workers of each host (1 for a worker); `running`: the number of tasks of each host (or worker).
    """

    def __init__(self, sizes: Mapping[Name, int], running: Mapping[Name, int]) -> None:
        self._sizes: Mapping[Name, int] = sizes
        self._running: dict[Name, int] = {name: running.get(name, 0) for name in sizes}
        self.waiting: list[tuple[float, Name]] = [(self.load_of(name), name) for name in sizes]
        heapify(self.waiting)

    def load_of(self, name: Name) -> float:
        """Return the number of tasks per worker."""
        return self._running[name] / self._sizes[name]

    def add(self, name: Name, tasks: int) -> None:
        """Add tasks to the load. The number may be negative only after the last turn: the heap is not sorted again."""
        self._running[name] += tasks


class _Round(Generic[Name]):
    """The turns for the tasks of one component. Hosts (or workers) without a task of the component come first, in the order of
    `turns`.

    Only hosts that get a task are touched, so the cost depends on the component's tasks, and not on the number of waiting
    hosts.
    """

    def __init__(self, turns: _Turns[Name], held: Mapping[Name, int]) -> None:
        self._turns: _Turns[Name] = turns
        self._held: Mapping[Name, int] = held
        self._taken: list[tuple[int, float, Name]] = [
            (count, turns.load_of(name), name) for name, count in held.items()
        ]
        heapify(self._taken)
        self._away: list[Name] = []

    def next(self) -> Name:
        """Return the host (or worker) whose turn it is, and give it a task."""
        waiting = self._turns.waiting
        while waiting and waiting[0][1] in self._held:
            self._away.append(heappop(waiting)[1])
        if waiting:
            count, name = 0, heappop(waiting)[1]
            self._away.append(name)
        else:
            count, _, name = heappop(self._taken)
        self._turns.add(name, 1)
        heappush(self._taken, (count + 1, self._turns.load_of(name), name))
        return name

    def end(self) -> None:
        """Let all hosts (or workers) that got a task wait again, with their new load."""
        for name in self._away:
            heappush(self._turns.waiting, (self._turns.load_of(name), name))


def _spread(
    missing: Iterable[TaskRow], chosen: Iterable[Slot], tasks: Iterable[TaskRow], placed: Mapping[int, Slot]
) -> dict[int, Slot]:
    """Return, for each missing task, one of the chosen slots."""
    slots = sorted(chosen)  # from here on a worker is identified by its index in this list
    numbers = {slot: number for number, slot in enumerate(slots)}
    workers_of: dict[str, dict[int, int]] = {}
    for number, slot in enumerate(slots):
        workers_of.setdefault(slot.host_name, {})[number] = 1
    of_worker: Counter[int] = Counter()
    of_host: Counter[str] = Counter()
    held: dict[str, dict[str, Counter[int]]] = {host: {} for host in workers_of}
    counts: dict[str, Counter[str]] = {}
    for spec in tasks:
        if spec.task in placed:
            slot = placed[spec.task]
            of_worker[numbers[slot]] += 1
            of_host[slot.host_name] += 1
            held[slot.host_name].setdefault(spec.component, Counter())[numbers[slot]] += 1
            counts.setdefault(spec.component, Counter())[slot.host_name] += 1
    hosts = _Turns({host: len(its) for host, its in workers_of.items()}, of_host)
    given = _over_hosts(missing, hosts, counts)
    empty = Counter(slot.host_name for number, slot in enumerate(slots) if not of_worker[number])
    _fill(given, empty, counts, hosts)
    order = {component: number for number, component in enumerate(counts)}
    spread: dict[int, Slot] = {}
    for host, its in workers_of.items():
        workers = _Turns(its, of_worker)
        for component in sorted(given.get(host, ()), key=order.__getitem__):
            turns = _Round(workers, held[host].get(component, {}))
            for task in given[host][component]:
                spread[task] = slots[turns.next()]
            turns.end()
    return spread


#: Host -> component -> the tasks that the host is given.
_Given = dict[str, dict[str, list[int]]]


def _over_hosts(missing: Iterable[TaskRow], hosts: _Turns[str], counts: dict[str, Counter[str]]) -> _Given:
    """Spread the missing tasks of each component evenly over hosts. Updates `counts`: the number of tasks of each component by
    host."""
    waiting: dict[str, list[int]] = {}
    for spec in missing:
        waiting.setdefault(spec.component, []).append(spec.task)
    given: _Given = {}
    for component, tasks in waiting.items():
        of_host = counts.setdefault(component, Counter())
        turns = _Round(hosts, dict(of_host))
        for task in tasks:
            host = turns.next()
            of_host[host] += 1
            given.setdefault(host, {}).setdefault(component, []).append(task)
        turns.end()
    return given


def _fill(
    given: _Given, empty: Mapping[str, int], counts: Mapping[str, Counter[str]], hosts: _Turns[str]
) -> None:
    """Some hosts were given more tasks than they have empty workers, others fewer: move given tasks from the former to the
    latter.

    The least loaded of the receiving hosts gets the next task; `_rank` decides which task. No move improves the rank of a later
    move, so an outdated rank is corrected only when its move would be next.
    """
    spare = {host: sum(map(len, given.get(host, {}).values())) - empty[host] for host in {**empty, **given}}
    lacking = [(hosts.load_of(host), host) for host, more in spare.items() if more < 0]
    heapify(lacking)
    givers = [host for host, more in spare.items() if more > 0]
    left = sum(spare[host] for host in givers)
    ranked: dict[str, list[tuple[int, float, str, str]]] = {}
    while lacking and left:
        _, to = heappop(lacking)
        if to not in ranked:
            ranked[to] = [
                _rank(to, host, component, counts, hosts) for host in givers for component in given[host]
            ]
            heapify(ranked[to])
        while True:
            best = heappop(ranked[to])
            _, _, giver, component = best
            if spare[giver] <= 0 or not given[giver][component]:
                continue
            now = _rank(to, giver, component, counts, hosts)
            heappush(ranked[to], now)
            if now == best:
                break
        given.setdefault(to, {}).setdefault(component, []).append(given[giver][component].pop())
        for host, more in ((giver, -1), (to, 1)):
            counts[component][host] += more
            spare[host] += more
            hosts.add(host, more)
        left -= 1
        if spare[to] < 0:
            heappush(lacking, (hosts.load_of(to), to))


def _rank(
    to: str, giver: str, component: str, counts: Mapping[str, Counter[str]], hosts: _Turns[str]
) -> tuple[int, float, str, str]:
    """Return the rank of a move; the lowest rank comes first. Moves are ranked by how many more tasks of the component the
    giver has than `to` (the most first), then by the giver's load (the highest first)."""
    of_host = counts[component]
    return of_host[to] - of_host[giver], -hosts.load_of(giver), giver, component
