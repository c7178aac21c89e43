"""Where tasks go: Storm's even scheduler as a pure function.

- Tasks that run in a slot that is still there stay in it.
- The others are spread component by component: evenly over hosts, then evenly over the workers of a host.
  Where that leaves a choice, the host with the least to do per worker takes the task, then the one that comes
  first by name, so that the answer depends on nothing but the arguments, and not on the order of slots.
- As many slots are used as workers are wanted, or fewer when there are fewer (tasks are squeezed) or when
  there are fewer tasks to place. Where hosts have unequal room, that goes before evenness over hosts: a host with more
  workers than an even spread has tasks for is given some of the others'. Without any slot the answer is empty: all tasks
  run, or none.

Theory: both choices, of a host and of a worker in it, are the same question, "whose turn is it?": that of
the one with the fewest tasks of this component, then the least loaded, then the first. Two heaps answer it:
all that have none of the component wait in one that lives on from component to component (`_Turns`), those
that have some take turns in another (`_Round`). In a host an empty worker is always next, so a worker stays empty only where
its host was given fewer tasks than it has empty workers; those are moved there from hosts that were given more (`_fill`),
first those of which the other host has most in comparison.
Must not know: topologies, workers' names, versions, the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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

    def take(self, name: Name) -> None:
        """It runs one task fewer. Only when nobody takes turns any more: who waits is not put in order again."""
        self._running[name] -= 1


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
    of_host: Counter[str] = Counter()
    held: dict[str, dict[str, Counter[int]]] = {host: {} for host in workers_of}
    counts: dict[str, Counter[str]] = {}
    for spec in tasks:
        if spec.task in placed:
            slot = placed[spec.task]
            of_worker[numbers[slot]] += 1
            of_host[slot.machine] += 1
            held[slot.machine].setdefault(spec.component, Counter())[numbers[slot]] += 1
            counts.setdefault(spec.component, Counter())[slot.machine] += 1
    hosts = _Turns({host: len(its) for host, its in workers_of.items()}, of_host)
    given = _over_hosts(missing, hosts, counts)
    empty = Counter(slot.machine for number, slot in enumerate(slots) if not of_worker[number])
    _fill(given, empty, counts, hosts)
    order = {component: number for number, component in enumerate(counts)}
    found: dict[int, Slot] = {}
    for host, its in workers_of.items():
        workers = _Turns(its, of_worker)
        for component in sorted(given.get(host, ()), key=lambda each: order[each]):
            turns = _Round(workers, held[host].get(component, {}))
            for task in given[host][component]:
                found[task] = slots[turns.give()]
            turns.end()
    return found


#: The tasks that hosts are given, component by component.
_Given = dict[str, dict[str, list[int]]]


def _over_hosts(missing: Iterable[TaskSpec], hosts: _Turns[str], counts: dict[str, Counter[str]]) -> _Given:
    """The missing tasks by host, every component evenly. `counts`: how many tasks of each component a host has, kept so."""
    waiting: dict[str, list[int]] = {}
    for spec in missing:
        waiting.setdefault(spec.component, []).append(spec.task)
    given: _Given = {}
    for component, tasks in waiting.items():
        of_host = counts.setdefault(component, Counter())
        turns = _Round(hosts, dict(of_host))
        for task in tasks:
            host = turns.give()
            of_host[host] += 1
            given.setdefault(host, {}).setdefault(component, []).append(task)
        turns.end()
    return given


def _fill(
    given: _Given, empty: Mapping[str, int], counts: Mapping[str, Counter[str]], hosts: _Turns[str]
) -> None:
    """Move given tasks to hosts that have more empty workers than tasks for them, from those that have fewer.

    The least loaded host takes first, in the order of `_rank`. A move makes no rank better, so one that is out of date is
    put right when its turn comes.
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
            ranked[to] = [_rank(to, host, each, counts, hosts) for host in givers for each in given[host]]
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
        hosts.take(giver)
        hosts.give(to)
        left -= 1
        if spare[to] < 0:
            heappush(lacking, (hosts.load_of(to), to))


def _rank(
    to: str, giver: str, component: str, counts: Mapping[str, Counter[str]], hosts: _Turns[str]
) -> tuple[int, float, str, str]:
    """First the component of which the giver has most in comparison, then the giver that is most loaded."""
    of_host = counts[component]
    return of_host[to] - of_host[giver], -hosts.load_of(giver), giver, component
