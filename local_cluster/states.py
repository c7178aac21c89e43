"""Reads the state of a key from the tasks of a local cluster in one process. Must not know: the engine, the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from topology_api import SquallError, StateError
from topology_api.wording import listed, shown
from worker.loop.worker import Worker
from worker.state import contents
from worker.state.keys import canonical
from worker.tasks.stateful_bolt import StatefulBoltTask


def state_of(workers: Iterable[Worker], topology: str, component: str, key: Any) -> dict[str, Any]:
    """Return the state of a key: state -> value. For a key without state, the values are empty or the defaults."""
    tasks = [task for worker in workers for task in list(worker.tasks.values())]
    found = [task for task in tasks if task.spec.id == component]
    if not found:
        raise SquallError(
            f"topology {topology!r} has no running task of {shown(component)} (running: "
            f"{listed(sorted({task.spec.id for task in tasks})) or 'none'})"
        )
    stateful = [task for task in found if isinstance(task, StatefulBoltTask)]
    if not stateful:
        raise StateError(
            f"component {component!r} of topology {topology!r} is no StatefulBolt: it has no state"
        )
    plain = canonical(key)
    owner = next((task for task in stateful if contents.has_state(task.states, plain)), stateful[0])
    return contents.read(owner.states, key)
