"""The numbers of tasks: which id each copy of a component has.

Ids begin at 1 and follow the order of declaration, then the index, so that the same topology is numbered
the same way everywhere. When the number of tasks changes, those that stay keep their ids, and an id that was
given once is never given to another task: frames and counters that still name it can reach nobody else.
Must not know: where tasks run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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
    counts = {component.id: component.parallelism for component in topology.components}
    return _number(counts, existing, highest)


def renumber_tasks(
    existing: Collection[tuple[int, str, int]], changes: Mapping[str, int], highest: int
) -> tuple[TaskSpec, ...]:
    """The tasks of a topology of which some components get another number of them."""
    return _number({**count_tasks(existing), **changes}, existing, highest)


def count_tasks(tasks: Iterable[tuple[int, str, int]]) -> dict[str, int]:
    """How many tasks each component has; in the order of the tasks, which is that of declaration."""
    return dict(Counter(component for _, component, _ in tasks))


def highest_task(tasks: Iterable[tuple[int, str, int]], highest: int = 0) -> int:
    """The highest id that was ever given, `highest` being that of before."""
    return max([highest, *(task for task, _, _ in tasks)])


def _number(
    counts: Mapping[str, int], existing: Iterable[tuple[int, str, int]], highest: int
) -> tuple[TaskSpec, ...]:
    ids = {(component, index): task for task, component, index in existing}
    last = max([highest, *ids.values()])
    numbered = []
    for component, count in counts.items():
        for index in range(count):
            task = ids.get((component, index))
            if task is None:
                task = last = last + 1
            numbered.append(TaskSpec(task, component, index))
    return tuple(numbered)
