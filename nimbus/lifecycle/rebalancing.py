"""What a rebalance may ask for, and what it makes of a topology's record: values in, values out.

The number of tasks of a component follows from the record's tasks alone; the description that was shipped
stays as it was submitted.
Must not know: slots, workers, when a rebalance is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nimbus.tasks import count_tasks, highest_task, renumber_tasks
from squall.cluster.records import TopologyRecord
from topology_api.options import OPTIONS
from topology_api.validation import MAX_TASKS, problems_of_parallelism

WORKERS = "topology.workers"


def problems_of_rebalance(record: TopologyRecord, workers: object, parallelism: object) -> list[str]:
    """All that is wrong with what a rebalance asks for; None for either is nothing asked."""
    problems = []
    if workers is not None:
        problem = OPTIONS[WORKERS].problem(workers)
        if problem is not None:
            problems.append(f"workers {problem}")
    if parallelism is not None:
        counts = count_tasks(record.tasks)
        found = problems_of_parallelism(parallelism, counts)
        problems += found
        if not found and isinstance(parallelism, Mapping):
            problems += _problems_of_ids(record, counts, parallelism)
    return problems


def changes_of(record: TopologyRecord, parallelism: Mapping[str, int] | None) -> dict[str, int]:
    """The components whose number of tasks is another than now, with the new one."""
    counts = count_tasks(record.tasks)
    return {
        component: count for component, count in (parallelism or {}).items() if count != counts[component]
    }


def renumbered(record: TopologyRecord) -> TopologyRecord:
    """The record with the tasks that its rebalance asked for. Those that stay keep their ids, no id is given again; a finished
    task that is to read once more is another one."""
    if not record.parallelism:
        return record
    before = highest_task(record.tasks, record.highest_task)
    anew = _read_anew(record, record.parallelism)
    kept = [row for row in record.tasks if row[0] not in anew]
    specs = renumber_tasks(kept, record.parallelism, before)
    tasks = tuple((spec.task, spec.component, spec.index) for spec in specs)
    there = {spec.task for spec in specs}
    return replace(
        record,
        tasks=tasks,
        highest_task=highest_task(tasks, before),
        parallelism={},
        finished=tuple(task for task in record.finished if task in there),
        renumbered={**record.renumbered, **dict.fromkeys(record.parallelism, record.version)},
    )


def _read_anew(record: TopologyRecord, changes: Mapping[str, int]) -> set[int]:
    """The finished tasks of spouts whose number of tasks changes while others of theirs have not finished.

    What these had left is shared out anew, to all the tasks that there are then. Under their old ids they would stay finished:
    readers have their end marks, and a late report may still say so.
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
    """Ids are never given again, so those of a topology that is rebalanced up and down for ever come to an end."""
    new = sum(max(0, count - counts[component]) for component, count in parallelism.items())
    new += len(_read_anew(record, changes_of(record, parallelism)))
    highest = highest_task(record.tasks, record.highest_task)
    if highest + new <= MAX_TASKS:
        return []
    return [
        f"{new:,} new tasks need ids that are not there: {highest:,} of {MAX_TASKS:,} were given since the topology was"
        " submitted, and none is given twice; kill it and submit it again"
    ]
