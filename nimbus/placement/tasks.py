"""Task ids: the numbers that identify the tasks of a topology.

Ids begin at 1 and follow the order of declaration, then the index, so that a task gets the same id everywhere. When the number
of tasks changes, tasks that stay keep their ids, and no id is used for a second task: frames and counters of a removed task
cannot reach another task.
Must not know: where tasks run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from squall.values import TaskRow
from topology_api.topology import Topology


def number_tasks(topology: Topology, parallelism: Mapping[str, int] | None = None) -> tuple[TaskRow, ...]:
    """Return the tasks of a new topology, in order of declaration, then index. `parallelism`: other numbers of tasks than those
    of the topology's code."""
    counts = {component.id: component.parallelism for component in topology.components} | dict(
        parallelism or {}
    )
    return renumber_tasks((), counts, 0)


def renumber_tasks(
    existing: Collection[TaskRow], changes: Mapping[str, int], highest: int
) -> tuple[TaskRow, ...]:
    """Return the tasks of a topology after the number of tasks of some components has changed.

    `highest`: the highest id ever given, if it is higher than the ids of all existing tasks.
    """
    ids = {(component, index): task for task, component, index in existing}
    last = highest_task(existing, highest)
    numbered = []
    for component, count in {**count_tasks(existing), **changes}.items():
        for index in range(count):
            task = ids.get((component, index))
            if task is None:
                task = last = last + 1
            numbered.append(TaskRow(task, component, index))
    return tuple(numbered)


def count_tasks(tasks: Iterable[TaskRow]) -> dict[str, int]:
    """Return the number of tasks of each component, in order of declaration."""
    return dict(Counter(component for _, component, _ in tasks))


def highest_task(tasks: Iterable[TaskRow], highest: int = 0) -> int:
    """Return the highest id ever given: the highest of these tasks' ids and of `highest`."""
    return max([highest, *(task for task, _, _ in tasks)])
