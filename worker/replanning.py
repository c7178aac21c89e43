"""Another assignment while the worker runs: tasks come, tasks go, other workers host the rest.

Tasks that stay are not disturbed: they keep their instances, queues and trees; only their routes are laid anew where a
reader's tasks have changed. All tasks of a component whose number of tasks changed are closed and made anew.
Must not know: links' insides, sockets, who decides on assignments.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from squall.transport.exchange import RENUMBERED
from squall.transport.link import Sent, remembered
from worker.async_bolt_task import AsyncBoltTask
from worker.bolt_task import BoltTask
from worker.build import build_outputs
from worker.outbox import Outbox
from worker.peers import unexecuted
from worker.plan import WorkerPlan
from worker.spout_task import SpoutTask
from worker.task import Task

if TYPE_CHECKING:
    from worker.worker import Worker


def replan(worker: Worker, plan: WorkerPlan) -> None:
    """Have the worker run its tasks of another assignment from now on."""
    before = worker.plan
    renumbered = frozenset(
        component for component, tasks in plan.tasks_of.items() if tasks != before.tasks_of.get(component, [])
    )
    going = [
        task for task in worker.tasks.values() if task.spec.id in renumbered or task.id not in plan.tasks_here
    ]
    for task in going:
        remove(worker, task)
    moved = {task for task, host in plan.worker_of.items() if host != before.worker_of.get(task)} | {
        task for component in renumbered for task in plan.tasks_of[component]
    }
    adopt(worker, plan, moved)
    for task in worker.tasks.values():
        reroute(worker, task, before, renumbered)
    if worker.started:
        worker.open_tasks([row for row in plan.own_tasks if row[0] not in worker.tasks])
        for task in worker.tasks.values():
            if task.ended:
                worker.endings.tell_end(
                    task, [target for target in plan.end_targets(task.spec.id) if target in moved]
                )


def remove(worker: Worker, task: Task) -> None:
    """Close a task that goes, after its last words; what still waits for it is lost, and what it did still counts."""
    worker.settling.finish()  # a spout's trees that have their verdict must not fail with it
    if task.threaded and not worker.inline:
        worker.runner.finish(task.id, task.close)
    else:
        task.close()
    worker.take_reports(task.reports)
    worker.former.append(task)  # first: who reads the counters meanwhile finds it in one of the two
    del worker.tasks[task.id]
    if isinstance(task, BoltTask):
        worker.peers.lost(unexecuted(task), RENUMBERED)
        worker.settling.take(task, worker.now())
        task.inbox.clear()
        worker.bolts.remove(task)
        if task in worker.ready:
            worker.ready.remove(task)
        if isinstance(task, AsyncBoltTask):
            worker.async_bolts.remove(task)
        worker.timers.drop(task)
    elif isinstance(task, SpoutTask):
        worker.spouts.remove(task)
        worker.settling.spouts.pop(task.id, None)
    worker.links.forget_task(task.id)
    shutil.rmtree(worker.plan.scratch(task.spec.id, task.context.index), ignore_errors=True)


def adopt(worker: Worker, plan: WorkerPlan, moved: set[int]) -> None:
    """The plan is the worker's own from now on."""
    worker.plan = worker.ground.plan = plan
    links = worker.links
    links.worker_of = dict(plan.worker_of)
    if plan.linked:
        links.reachable = {worker.name, *plan.worker_of.values()}
    links.reset_windows(moved)
    worker.settling.assign(
        plan.worker_of, [task for spec in plan.topology.spouts for task in plan.tasks_of[spec.id]]
    )
    worker.cycles.renew(plan.cycles())
    worker.timers.assign(plan)


def reroute(worker: Worker, task: Task, before: WorkerPlan, renumbered: frozenset[str]) -> None:
    """Lay the routes of a task that stays anew, where that changes anything; tuples that wait keep their outboxes."""
    plan = worker.plan
    readers = {reader.id for reader in plan.readers(task.spec.id)}
    if isinstance(task, BoltTask):
        task.inputs.renew(before.end_sources(task.spec.id), plan.end_sources(task.spec.id))
    local = any(
        entry.grouping.kind == "local_or_shuffle" and entry.source == task.spec.id
        for reader in plan.readers(task.spec.id)
        for entry in reader.inputs
    )
    if not readers & renumbered and not (local and before.tasks_here != plan.tasks_here):
        return
    boxes = {
        (box.source.stream, box.target): box
        for box in task.emitter.boxes()
        if plan.component_of.get(box.target) not in renumbered and box.target in plan.component_of
    }
    kept = {id(box) for box in boxes.values()}
    gone = [box for box in task.emitter.dirty if id(box) not in kept]
    task.emitter.dirty = [box for box in task.emitter.dirty if id(box) in kept]
    worker.peers.lost([lost_rows(box) for box in gone], RENUMBERED)
    outputs = build_outputs(plan, task.spec, task.id, task.context.index, task.context, boxes)
    for stream, output in outputs.items():
        task.emitter.outputs[stream].take_routes(output)
    task.blocked = False


def lost_rows(box: Outbox) -> Sent:
    """What waits in an outbox for a task that is no more."""
    return remembered(box.take(len(box.rows)), 0)
