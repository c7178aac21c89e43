"""Whether a topology has the workers that it is to have, and whether it has proved that they run: in a sentence.

Must not know: HTTP, terminals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from squall_cli.figures import duration, plural

#: States of workers that were withdrawn, or whose host is gone.
LEAVING: Final = ("STOPPING", "STOPPED", "LOST")
#: Seconds within which a Nimbus that does not lead may not know yet what the leader has done.
LAG_SECS: Final = 5.0
#: States in which a topology has its workers.
PLACED: Final = ("ACTIVE", "INACTIVE")


def fewer_workers(status: Mapping[str, Any]) -> str:
    """`4 of 9 workers: ...`, and why, of a topology that has places for fewer than it asks for; "" of others."""
    there = sum(worker["state"] not in LEAVING for worker in status["workers"])
    wanted = int(status.get("workers_wanted") or 0)  # an older Nimbus does not say
    if status["state"] not in PLACED or not 0 < there < wanted:
        return ""
    return _fewer(there, wanted, tasks_of(status, {}))


def fewer_to_come(
    status: Mapping[str, Any],
    supervisors: Sequence[Mapping[str, Any]],
    workers: int | None,
    parallelism: Mapping[str, int],
) -> str:
    """The same of a topology whose rebalance has begun, by what is free now: over so many workers (None: as before), with so
    many tasks for some components."""
    wanted = workers or int(status.get("workers_wanted") or 0)
    tasks = tasks_of(status, parallelism)
    connected = [each for each in supervisors if each["connected"]]
    # Drained hosts are for what has no other place at all.
    room = _room(status, [each for each in connected if not each["drained"]]) or _room(status, connected)
    to_come = min(wanted, tasks, room)
    return _fewer(to_come, wanted, tasks) if 0 < to_come < wanted else ""


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


def _fewer(there: int, wanted: int, tasks: int) -> str:
    if there >= tasks:
        why = f"it has {plural(tasks, 'task')}, and no worker is without one"
    else:
        why = "no slot is free for more; its tasks are placed anew when there is one"
    return f"{there} of {plural(wanted, 'worker')}: {why}"


def on_trial(topology: Mapping[str, Any]) -> str:
    """That the version before stands by, and until when; "" when there is none."""
    before = topology.get("stands_by")
    if not before:
        return ""
    return (
        f"the version before ({before['id']}) stands by: it runs again unless the workers of this one are up within"
        f" {duration(before['secs'])}"
    )
