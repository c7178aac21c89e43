"""Whether a topology has the workers that it is to have, and whether it has proved that they run: in a sentence.

Must not know: HTTP, terminals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from squall_cli.figures import duration, plural

#: States of workers that were withdrawn, or whose host is gone.
LEAVING: Final = ("STOPPING", "STOPPED", "LOST")
#: States in which a topology has its workers.
PLACED: Final = ("ACTIVE", "INACTIVE")


def fewer_workers(status: Mapping[str, Any]) -> str:
    """`4 of 9 workers: ...`, and why, of a topology that has places for fewer than it asks for; "" of others."""
    there = sum(worker["state"] not in LEAVING for worker in status["workers"])
    wanted = int(status.get("workers_wanted") or 0)  # an older Nimbus does not say
    if status["state"] not in PLACED or not 0 < there < wanted:
        return ""
    tasks = sum(int(component["tasks"]) for component in status["components"].values())
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
