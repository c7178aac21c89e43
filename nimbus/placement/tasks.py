"""Task ids: which number each copy of a component has.

Ids begin at 1 and follow the order of declaration, then the index, so that a topology is numbered the same way everywhere.
When the number of tasks changes, those that stay keep their ids, and no id is ever given to a second task: frames and
counters that still name it cannot reach another one.
Must not know: where tasks run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from squall.values import TaskRow
from topology_api.topology import Topology


def number_tasks(
    topology: Topology, existing: Iterable[TaskRow] = (), highest: int = 0
) -> tuple[TaskRow, ...]:
    """Return the tasks of a topology, in order of declaration, then index.

    `existing`: its tasks so far; `highest`: the highest id ever given, if higher than any of theirs.
    """
    counts = {component.id: component.parallelism for component in topology.components}
    return _number(counts, existing, highest)


def renumber_tasks(
    existing: Collection[TaskRow], changes: Mapping[str, int], highest: int
) -> tuple[TaskRow, ...]:
    """Return the tasks of a topology after the number of tasks of some components has changed."""
    return _number({**count_tasks(existing), **changes}, existing, highest)


def count_tasks(tasks: Iterable[TaskRow]) -> dict[str, int]:
    """Return the number of tasks of each component, in order of declaration."""
    return dict(Counter(component for _, component, _ in tasks))


def highest_task(tasks: Iterable[TaskRow], highest: int = 0) -> int:
    """Return the highest id ever given, `highest` being the highest so far."""
    return max([highest, *(task for task, _, _ in tasks)])


def _number(counts: Mapping[str, int], existing: Iterable[TaskRow], highest: int) -> tuple[TaskRow, ...]:
    ids = {(component, index): task for task, component, index in existing}
    last = max([highest, *ids.values()])
    numbered = []
    for component, count in counts.items():
        for index in range(count):
            task = ids.get((component, index))
            if task is None:
                task = last = last + 1
            numbered.append(TaskRow(task, component, index))
    return tuple(numbered)
