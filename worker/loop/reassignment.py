"""The changes that a new assignment makes in a running worker: tasks that leave, tasks that move, routes that are replaced.

Tasks that stay are not disturbed: they keep their instances, queues and trees; their routes are replaced only where a reader's
tasks have changed. If a component's number of tasks changed, all its tasks are closed and created again.
`worker.loop.worker` carries the changes out. Must not know: links, sockets, who decides on assignments.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from squall.transport.in_flight import SentBatch
from worker.loop.build import build_outputs
from worker.loop.plan import WorkerPlan
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task


class Reassignment(msgspec.Struct, frozen=True):
    """The difference between two assignments, as seen from one worker."""

    before: WorkerPlan
    plan: WorkerPlan
    #: Components whose number of tasks changed.
    renumbered: frozenset[str]
    #: Tasks that another worker hosts now, and the tasks of renumbered components.
    moved: frozenset[int]

    @classmethod
    def between(cls, before: WorkerPlan, plan: WorkerPlan) -> Reassignment:
        """Compare two assignments."""
        renumbered = frozenset(
            component
            for component, tasks in plan.tasks_of.items()
            if tasks != before.tasks_of.get(component, [])
        )
        moved = {task for task, host in plan.worker_of.items() if host != before.worker_of.get(task)}
        moved.update(task for component in renumbered for task in plan.tasks_of[component])
        return cls(before, plan, renumbered, frozenset(moved))

    def leaving(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks that have to be closed here."""
        here = self.plan.tasks_here
        return [task for task in tasks if task.spec.id in self.renumbered or task.id not in here]

    def reroute(self, task: Task) -> list[SentBatch]:
        """Replace the routes of a task that stays, where the assignment changes them; waiting tuples stay in their outboxes.

        Returns the waiting tuples for tasks that are gone.
        """
        component, before, plan = task.spec.id, self.before, self.plan
        if isinstance(task, BoltTask):
            task.inputs.renew(before.end_sources(component), plan.end_sources(component))
        readers = plan.readers(component)
        local = before.tasks_here != plan.tasks_here and any(
            entry.grouping.kind == "local_or_shuffle" and entry.source == component
            for reader in readers
            for entry in reader.inputs
        )
        if not local and self.renumbered.isdisjoint(reader.id for reader in readers):
            return []
        boxes = {
            (box.source.stream, box.target): box
            for box in task.emitter.boxes()
            if plan.component_of.get(box.target, "") not in self.renumbered | {""}
        }
        kept = {id(box) for box in boxes.values()}
        gone = [box for box in task.emitter.dirty if id(box) not in kept]
        task.emitter.dirty = [box for box in task.emitter.dirty if id(box) in kept]
        outputs = build_outputs(plan, task.context, task.context.index, boxes)
        for stream, output in outputs.items():
            task.emitter.outputs[stream].take_routes(output)
        task.blocked = False
        return [SentBatch.of(box.dequeue(len(box.rows))) for box in gone]
