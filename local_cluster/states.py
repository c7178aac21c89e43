"""Reads the state of a key from the tasks of a local cluster: those in this process, or those of its worker processes.

A worker process answers through the files of its directory, as it does for `squall state get`, but with a pickle of the values.
Must not know: the engine, the store.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from squall.reports.live_state import WorkerState
from supervisor.state_questions import PATIENCE, ask_state
from topology_api import SquallError, StateError
from topology_api.packing import dumps_by_value
from topology_api.wording import listed, shown
from worker.loop.worker import Worker
from worker.state import contents
from worker.state.keys import canonical
from worker.tasks.stateful_bolt import StatefulBoltTask

#: How many worker processes are asked at a time.
AT_ONCE: Final = 8


def state_of(workers: Iterable[Worker], topology: str, component: str, key: Any) -> dict[str, Any]:
    """Return the state of a key: state -> value. For a key without state, the values are empty or the defaults."""
    tasks = [task for worker in workers for task in list(worker.tasks.values())]
    found = [task for task in tasks if task.spec.id == component]
    if not found:
        raise no_running_task(topology, component, {task.spec.id for task in tasks})
    stateful = [task for task in found if isinstance(task, StatefulBoltTask)]
    if not stateful:
        raise StateError(
            f"component {component!r} of topology {topology!r} is no StatefulBolt: it has no state"
        )
    plain = canonical(key)
    owner = next((task for task in stateful if contents.has_state(task.states, plain)), stateful[0])
    return contents.read(owner.states, key)


def no_running_task(topology: str, component: str, running: Collection[str]) -> SquallError:
    """Return the error for a component of which no task runs. `running`: the components that run."""
    there = listed(sorted(running)) or "none"
    return SquallError(f"topology {topology!r} has no running task of {shown(component)} (running: {there})")


def state_in_processes(workers: Sequence[tuple[str, Path]], component: str, key: Any) -> dict[str, Any]:
    """Return the state of a key, as `state_of` does. `workers`: name and directory of each worker process that runs tasks of
    the component. Raises `SquallError` if the task that has the key does not answer."""
    canonical(key)  # raises TypeError for what can be no key
    try:
        exact = b64encode(dumps_by_value(key, pickle.HIGHEST_PROTOCOL)).decode()
    except Exception as error:
        raise SquallError(
            f"the key {shown(key)} cannot be pickled for the worker processes: {error}"
        ) from error
    with ThreadPoolExecutor(min(AT_ONCE, len(workers))) as pool:
        answers = list(pool.map(lambda each: ask_state(each[1], component, "", exact=exact), workers))
    for answer in answers:
        if answer is not None and answer.refusal:
            raise StateError(answer.refusal)
    return chosen(component, key, [name for name, _ in workers], answers)


def chosen(
    component: str, key: Any, workers: Sequence[str], answers: Sequence[WorkerState | None]
) -> dict[str, Any]:
    """Return the values of the task that has the key; if none has, what any of them shows."""
    copies = [copy for answer in answers if answer is not None for copy in answer.copies]
    owner = next((copy for copy in copies if copy.owns), None)
    if owner is None:
        silent = [
            f"worker {worker} does not answer within {PATIENCE:g} s"
            for worker, answer in zip(workers, answers)
            if answer is None
        ]
        silent += [task.why for answer in answers if answer is not None for task in answer.tasks if task.why]
        if silent:
            what = f"the task that has the key {shown(key)} of {component}"
            raise SquallError("; ".join([f"{what} was not reached", *silent]))
        owner = copies[0]
    values: dict[str, Any] = pickle.loads(b64decode(owner.values))
    return values
