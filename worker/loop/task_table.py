"""The tasks of one worker: by id, by kind, and the bolt tasks that are ready to run.

Must not know: links, trackers, clocks.
"""

from __future__ import annotations

from collections import deque

from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task


class TaskTable:
    """The tasks that run in a worker, and the tasks that ran there before a reassignment."""

    def __init__(self) -> None:
        self.by_id: dict[int, Task] = {}
        #: Tasks that a reassignment closed: their counters are still part of the totals.
        self.former: list[Task] = []
        self.spouts: list[SpoutTask] = []
        self.bolts: list[BoltTask] = []
        self.async_bolts: list[AsyncBoltTask] = []
        #: Bolt tasks that run in the next round.
        self.ready: deque[BoltTask] = deque()

    def add(self, task: Task) -> None:
        """Add a new task."""
        self.by_id[task.id] = task
        if isinstance(task, SpoutTask):
            self.spouts.append(task)
        elif isinstance(task, BoltTask):
            self.bolts.append(task)
            if isinstance(task, AsyncBoltTask):
                self.async_bolts.append(task)

    def remove(self, task: Task) -> None:
        """Move a closed task to the former tasks."""
        self.former.append(task)  # first, so that a thread that reads the counters always finds the task
        del self.by_id[task.id]
        if isinstance(task, SpoutTask):
            self.spouts.remove(task)
        elif isinstance(task, BoltTask):
            self.bolts.remove(task)
            if task in self.ready:
                self.ready.remove(task)
            if isinstance(task, AsyncBoltTask):
                self.async_bolts.remove(task)

    def queue(self, task: BoltTask) -> None:
        """Let a bolt task run in the next round, if the task has something to do."""
        if not task.queued and task.opened and task.wants_run():
            task.queued = True
            self.ready.append(task)

    @property
    def opened(self) -> bool:
        """Whether there are tasks, and all of them were opened or prepared."""
        return bool(self.by_id) and all(task.opened for task in self.by_id.values())

    @property
    def spouts_drained(self) -> bool:
        """Whether no spout here has open trees or final calls to make."""
        return not any(task.pending or task.busy or task.has_final_calls for task in self.spouts)

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits in any inbox or outbox."""
        return all(task.at_rest() for task in self.by_id.values())
