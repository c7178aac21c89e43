"""Sentences about a topology's workers: whether the topology has as many workers as it asks for, and whether they run.

Must not know: HTTP, terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall.values import TopologyState
from squall_cli.terminal.formats import duration, plural, to_type

if TYPE_CHECKING:
    from squall.api.answers import TopologyAnswer, TopologySummary, WorkerEntry
    from squall.api.cluster_answers import SupervisorEntry

#: States of workers that no longer run, because they were withdrawn or their host is gone.
LEAVING: Final = ("STOPPING", "STOPPED", "LOST")
#: Seconds by which a standby Nimbus may lag behind the leader.
LAG_SECS: Final = 5.0
#: The most hosts named in one sentence.
MOST_HOSTS: Final = 3
#: States in which a topology has its workers.
PLACED: Final = tuple(state for state in TopologyState if state.asks in ("run", "pause"))


def has_fewer_workers(status: TopologyAnswer) -> bool:
    """Return whether a topology has workers, but fewer than it asks for."""
    return status.state in PLACED and 0 < _workers_there(status) < status.workers_wanted


def fewer_workers(status: TopologyAnswer, supervisors: Sequence[SupervisorEntry]) -> str:
    """Return `4 of 9 workers: REASON` if a topology has fewer workers than it asks for; else ""."""
    if not has_fewer_workers(status):
        return ""
    return _fewer(_workers_there(status), status.workers_wanted, tasks_of(status, {}), supervisors)


def _workers_there(status: TopologyAnswer) -> int:
    return sum(worker.state not in LEAVING for worker in status.workers)


def fewer_to_come(
    status: TopologyAnswer,
    supervisors: Sequence[SupervisorEntry],
    workers: int | None,
    parallelism: Mapping[str, int],
) -> str:
    """Like `fewer_workers`, for a topology that is REBALANCING: an estimate from the slots that are free now. If `workers` is
    None, the number of workers does not change; `parallelism` has the new numbers of tasks of some components."""
    wanted = workers or status.workers_wanted
    tasks = tasks_of(status, parallelism)
    connected = [supervisor for supervisor in supervisors if supervisor.connected]
    # Drained hosts, and hosts that cannot start workers, are used only if no other host has a slot.
    room = _room(status, [supervisor for supervisor in connected if supervisor.takes_workers])
    closed = [supervisor for supervisor in connected if not supervisor.takes_workers] if room else []
    room = room or _room(status, connected)
    to_come = min(wanted, tasks, room)
    # The topology will use all free slots of the other hosts.
    return _fewer(to_come, wanted, tasks, closed) if 0 < to_come < wanted else ""


def tasks_of(status: TopologyAnswer, parallelism: Mapping[str, int]) -> int:
    """Return how many tasks the topology will have when some components get new numbers of tasks (`parallelism`)."""
    return sum(parallelism.get(name, each.tasks) for name, each in status.components.items())


def _room(topology: TopologyAnswer, supervisors: Sequence[SupervisorEntry]) -> int:
    """Return the number of slots on these supervisors that a topology may use: free slots, and the topology's own."""
    free = sum(max(0, supervisor.slots - supervisor.used) for supervisor in supervisors)
    workers = (worker for supervisor in supervisors for worker in supervisor.workers)
    return free + sum(worker.topology == topology.name for worker in workers)


def _fewer(workers: int, wanted: int, tasks: int, supervisors: Sequence[SupervisorEntry]) -> str:
    free, closed = free_slots(supervisors)
    if workers >= tasks:
        why = f"it has only {plural(tasks, 'task')}"
    elif free:
        why = f"{free}; its tasks are spread over more workers as soon as no other topology is being moved"
    elif closed:
        why = f"{closed}, where nothing new is placed; its tasks are spread over more workers when another slot is free"
    else:
        why = "no slot is free for more; its tasks are spread over more workers when a slot is free"
    return f"{workers} of {plural(wanted, 'worker')}: {why}"


def no_workers(supervisors: Sequence[SupervisorEntry]) -> str:
    """Return why a topology that should have workers has none."""
    free, closed = free_slots(supervisors)
    if free:
        return f"it has no workers, although {free}: see the log of the leading Nimbus"
    if closed:
        return f"it has no workers: {closed}, where nothing new is placed"
    return "it has no workers: no slot is free"


def free_slots(supervisors: Sequence[SupervisorEntry]) -> tuple[str, str]:
    """Return two phrases: the free slots that can get workers, and the free slots of drained hosts and of hosts that cannot
    start workers. A phrase is "" if there are no such slots."""
    open_slots = _free_by_host(each for each in supervisors if each.takes_workers)
    failing = _free_by_host(each for each in supervisors if each.cannot_start)
    drained = _free_by_host(each for each in supervisors if each.drained and not each.cannot_start)
    count = plural(sum(open_slots.values()), "slot is", "slots are")
    closed = []
    if drained:
        closed.append(f"{'the drained host' if len(drained) == 1 else 'drained hosts:'} {_named(drained)}")
    if failing:
        closed.append(
            f"{'the host' if len(failing) == 1 else 'hosts'} that cannot start workers: {_named(failing)}"
        )
    return (
        f"{count} free on {_named(open_slots)}" if open_slots else "",
        f"slots are free only on {' and on '.join(closed)}" if closed else "",
    )


def _free_by_host(supervisors: Iterable[SupervisorEntry]) -> Counter[str]:
    free: Counter[str] = Counter()
    for supervisor in supervisors:
        if supervisor.slots > supervisor.used:
            free[supervisor.host] += supervisor.slots - supervisor.used
    return free


def _named(hosts: Collection[str]) -> str:
    """Return the names of the first hosts in alphabetical order, and the number of the others."""
    names, more = sorted(hosts)[:MOST_HOSTS], len(hosts) - MOST_HOSTS
    return ", ".join(names) + (f" and {plural(more, 'other')}" if more > 0 else "")


def held_up(topology: TopologySummary) -> str:
    """Return a sentence saying how many workers of a topology do not run, and why; "" if all run, or if no reason is known."""
    held = topology.held_up
    if not held:
        return ""
    verb = "does" if held.workers == 1 else "do"
    return f"{held.workers} of {plural(topology.workers, 'worker')} {verb} not run: {held.why}"


def on_trial(topology: TopologyAnswer | TopologySummary) -> str:
    """Return a sentence saying when the previous version returns; "" if there is no previous version."""
    before = topology.stands_by
    if not before:
        return ""
    if before.suspended:
        begins = f"on trial, which begins at {to_type('activate', topology.name)}"
        return f"{begins}; the previous version ({before.id}) is on standby"
    if not isinstance(topology.workers, int) and _all_open(topology.workers):
        return f"the previous version ({before.id}) runs again if the tuples of this one fail"
    unless = f"the previous version ({before.id}) runs again unless"
    if topology.state == "INACTIVE":
        return f"{unless} the workers of this one start within {duration(before.secs)}"
    return f"{unless} this one starts within {duration(before.secs)} and processes its tuples"


def _all_open(workers: Sequence[WorkerEntry]) -> bool:
    there = [worker for worker in workers if worker.state not in LEAVING]
    return bool(there) and all(worker.opened for worker in there)
