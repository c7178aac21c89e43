"""Whether a topology has the workers that it is to have, and whether it has proved that they run: in a sentence.

Must not know: HTTP, terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from squall_cli.figures import duration, plural

#: States of workers that were withdrawn, or whose host is gone.
LEAVING: Final = ("STOPPING", "STOPPED", "LOST")
#: Seconds within which a Nimbus that does not lead may not know yet what the leader has done.
LAG_SECS: Final = 5.0
#: Hosts that are named in one sentence.
MOST_HOSTS: Final = 3
#: States in which a topology has its workers.
PLACED: Final = ("ACTIVE", "INACTIVE")


def has_fewer_workers(status: Mapping[str, Any]) -> bool:
    """Whether a topology has places, for fewer workers than it asks for."""
    return status["state"] in PLACED and 0 < _workers_there(status) < _wanted(status)


def fewer_workers(status: Mapping[str, Any], supervisors: Sequence[Mapping[str, Any]]) -> str:
    """`4 of 9 workers: ...`, and why, of a topology that has places for fewer than it asks for; "" of others."""
    if not has_fewer_workers(status):
        return ""
    return _fewer(_workers_there(status), _wanted(status), tasks_of(status, {}), supervisors)


def _workers_there(status: Mapping[str, Any]) -> int:
    return sum(worker["state"] not in LEAVING for worker in status["workers"])


def _wanted(status: Mapping[str, Any]) -> int:
    return int(status.get("workers_wanted") or 0)  # an older Nimbus does not say


def fewer_to_come(
    status: Mapping[str, Any],
    supervisors: Sequence[Mapping[str, Any]],
    workers: int | None,
    parallelism: Mapping[str, int],
) -> str:
    """The same of a topology whose rebalance has begun, by what is free now: over so many workers (None: as before), with so
    many tasks for some components."""
    wanted = workers or _wanted(status)
    tasks = tasks_of(status, parallelism)
    connected = [each for each in supervisors if each["connected"]]
    # Drained hosts are for what has no other place at all.
    room = _room(status, [each for each in connected if not each["drained"]])
    drained = [each for each in connected if each["drained"]] if room else []
    room = room or _room(status, connected)
    to_come = min(wanted, tasks, room)
    # What is free on the others it will have by then.
    return _fewer(to_come, wanted, tasks, drained) if 0 < to_come < wanted else ""


def tasks_of(status: Mapping[str, Any], parallelism: Mapping[str, int]) -> int:
    """How many tasks it has, with so many for some components."""
    return sum(parallelism.get(name, int(each["tasks"])) for name, each in status["components"].items())


def _room(topology: Mapping[str, Any], supervisors: Sequence[Mapping[str, Any]]) -> int:
    """The slots on these supervisors that a topology may be placed in: the free ones, and its own."""
    free = sum(max(0, int(each["slots"]) - int(each["used"])) for each in supervisors)
    own = [
        worker for each in supervisors for worker in each["workers"] if worker["topology"] == topology["name"]
    ]
    return free + len(own)


def _fewer(there: int, wanted: int, tasks: int, supervisors: Sequence[Mapping[str, Any]]) -> str:
    free, closed = free_slots(supervisors)
    if there >= tasks:
        why = f"it has {plural(tasks, 'task')}, and no worker is without one"
    elif free:
        why = (
            f"{free}; its tasks are placed anew over more workers as soon as no other topology is being moved"
        )
    elif closed:
        why = f"{closed}, where nothing new is placed; its tasks are placed anew when there is another slot"
    else:
        why = "no slot is free for more; its tasks are placed anew when there is one"
    return f"{there} of {plural(wanted, 'worker')}: {why}"


def no_workers(supervisors: Sequence[Mapping[str, Any]]) -> str:
    """Why a topology that should have workers has none."""
    free, closed = free_slots(supervisors)
    if free:
        return f"it has no workers, though {free}: the log of the Nimbus that leads says why"
    if closed:
        return f"it has no workers: {closed}, where nothing new is placed"
    return "it has no workers, no slot is free for them"


def free_slots(supervisors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Which slots are free, in words: those that take workers, those of drained hosts; "" where there are none."""
    open_slots, drained = _free_by_host(supervisors, False), _free_by_host(supervisors, True)
    count = plural(sum(open_slots.values()), "slot is", "slots are")
    hosts = "the drained host" if len(drained) == 1 else "drained hosts:"
    return (
        f"{count} free on {_named(open_slots)}" if open_slots else "",
        f"slots are free only on {hosts} {_named(drained)}" if drained else "",
    )


def _free_by_host(supervisors: Sequence[Mapping[str, Any]], drained: bool) -> Counter[str]:
    free: Counter[str] = Counter()
    for each in supervisors:
        if bool(each["drained"]) == drained and int(each["slots"]) > int(each["used"]):
            free[str(each["host"])] += int(each["slots"]) - int(each["used"])
    return free


def _named(hosts: Collection[str]) -> str:
    """The first of them by name, and how many there are besides."""
    names, more = sorted(hosts)[:MOST_HOSTS], len(hosts) - MOST_HOSTS
    return ", ".join(names) + (f" and {plural(more, 'other')}" if more > 0 else "")


def held_up(topology: Mapping[str, Any]) -> str:
    """That workers of a running topology do not run, and why, as their hosts said; "" when all do, or nobody said."""
    found = topology.get("held_up")  # an older Nimbus does not say
    if not found:
        return ""
    verb = "does" if found["workers"] == 1 else "do"
    return f"{found['workers']} of {plural(topology['workers'], 'worker')} {verb} not run: {found['why']}"


def on_trial(topology: Mapping[str, Any]) -> str:
    """That the version before stands by, and until when; "" when there is none."""
    before = topology.get("stands_by")
    if not before:
        return ""
    return (
        f"the version before ({before['id']}) stands by: it runs again unless the workers of this one are up within"
        f" {duration(before['secs'])}"
    )
