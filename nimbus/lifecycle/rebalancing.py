"""Rebalancing: checks a request, and makes the record that results from it. Pure functions over values.

The number of tasks of a component follows only from the tasks in the record; the description is never changed.
Must not know: slots, workers, when a rebalance is done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from nimbus.placement.tasks import count_tasks, highest_task, renumber_tasks
from squall.cluster.records import TopologyRecord
from topology_api.epoch_rules import STATE_PATH, few_groups_problem, groups_of
from topology_api.options import OPTIONS
from topology_api.validation import MAX_TASKS, problems_of_parallelism

WORKERS = "topology.workers"


def problems_of_rebalance(
    record: TopologyRecord,
    workers: object,
    parallelism: object,
    keeping: Collection[str],
    keyed: Collection[str] = (),
    groups: int = 0,
) -> list[str]:
    """Return all problems of a rebalance. A value of None means that the rebalance does not change this number. `keeping`: the
    spouts whose number of tasks cannot change. `keyed`: the stateful bolts, if the topology keeps its state. `groups`: its key
    groups, if the workers have said how many there are."""
    problems = []
    groups = groups or groups_of(record.conf)
    if workers is not None and (problem := OPTIONS[WORKERS].problem(workers)) is not None:
        problems.append(f"workers {problem}")
    if parallelism is not None:
        counts = count_tasks(record.tasks)
        found = problems_of_parallelism(parallelism, counts)
        problems += found
        if not found and isinstance(parallelism, Mapping):
            problems += [
                kept_number_problem(name, counts[name], count)
                for name, count in changes_of(record, parallelism).items()
                if name in keeping
            ]
            problems += [
                few_groups_problem(name, count, groups)
                for name, count in parallelism.items()
                if name in keyed and count > groups
            ]
            problems += _problems_of_ids(record, counts, parallelism)
    return problems


def kept_number_problem(spout: str, tasks: int, wanted: int) -> str:
    """Return why a spout that keeps its number of tasks cannot have another one."""
    return (
        f"spout {spout!r} has {tasks} tasks, and would have {wanted}: with {STATE_PATH} this number can change only if the "
        "spout has merge_positions"
    )


def changes_of(record: TopologyRecord, parallelism: Mapping[str, int] | None) -> dict[str, int]:
    """Return the components whose number of tasks changes, with the new number."""
    counts = count_tasks(record.tasks)
    return {
        component: count for component, count in (parallelism or {}).items() if count != counts[component]
    }


def renumbered(record: TopologyRecord) -> TopologyRecord:
    """Return the record with the tasks that its rebalance asked for. Tasks that stay keep their ids, and no id is used again. A
    finished task that has to read again gets a new id."""
    if not record.parallelism:
        return record
    before = highest_task(record.tasks, record.highest_task)
    again = _reading_again(record, record.parallelism)
    kept = [row for row in record.tasks if row.task not in again]
    tasks = renumber_tasks(kept, record.parallelism, before)
    there = {row.task for row in tasks}
    return replace(
        record,
        tasks=tasks,
        highest_task=highest_task(tasks, before),
        parallelism={},
        finished=tuple(task for task in record.finished if task in there),
        renumbered={**record.renumbered, **dict.fromkeys(record.parallelism, record.version)},
    )


def _reading_again(record: TopologyRecord, changes: Mapping[str, int]) -> set[int]:
    """Return the finished tasks of each spout whose number of tasks changes before all its tasks have finished.

    The remaining input is divided again among all tasks of the spout. Under their old ids the finished tasks would stay
    finished: their readers already have the end marks, and a late report may still call these tasks finished.
    """
    finished = set(record.finished)
    reading = {component for task, component, _ in record.tasks if task not in finished}
    return {
        task
        for task, component, _ in record.tasks
        if task in finished and component in changes and component in reading
    }


def _problems_of_ids(
    record: TopologyRecord, counts: Mapping[str, int], parallelism: Mapping[str, int]
) -> list[str]:
    """Return a problem if the task ids run out: no id is used again, and every rebalance may need new ids."""
    new = sum(max(0, count - counts[component]) for component, count in parallelism.items())
    new += len(_reading_again(record, changes_of(record, parallelism)))
    highest = highest_task(record.tasks, record.highest_task)
    if highest + new <= MAX_TASKS:
        return []
    return [
        f"{new:,} new tasks need more ids than are left: {highest:,} of {MAX_TASKS:,} were used since the topology was"
        " submitted, and no id is used twice; kill it and submit it again"
    ]
