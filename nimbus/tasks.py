"""The numbers of tasks: which id each copy of a component has.

Ids begin at 1 and follow the order of declaration, then the index, so that the same topology is numbered
the same way everywhere. When the number of tasks changes, those that stay keep their ids, and an id that was
given once is never given to another task: frames and counters that still name it can reach nobody else.
Must not know: where tasks run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topology_api.topology import Topology


@dataclass(frozen=True, order=True)
class TaskSpec:
    """One copy of a component; what is stored outside is keyed by (component, index)."""

    task: int
    component: str
    index: int


def number_tasks(
    topology: Topology, existing: Iterable[tuple[int, str, int]] = (), highest: int = 0
) -> tuple[TaskSpec, ...]:
    """The tasks of a topology, in order of declaration, then index.

    `existing` is its numbering so far; `highest` the highest id ever given, if higher than any in it.
    """
    ids = {(component, index): task for task, component, index in existing}
    last = max([highest, *ids.values()])
    numbered = []
    for component in topology.components:
        for index in range(component.parallelism):
            task = ids.get((component.id, index))
            if task is None:
                task = last = last + 1
            numbered.append(TaskSpec(task, component.id, index))
    return tuple(numbered)
