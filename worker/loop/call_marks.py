"""The marks of running calls, after a worker's process has died in a call; and the report on the calls in which it died.

While nothing has died, no call is marked, and a tuple costs nothing more. The next process of a worker that died by the fault
of a call marks its calls for `MARK_SECONDS`, one tuple at a time. So the tuple of the second death is known. Batch bolts whose
batch was in a call then execute single tuples.
Must not know: files, what ends a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from squall.running_calls import MOST_TASKS, CallMark
from squall.transport.frames import DIED, HUNG, OPEN
from squall.worker_files import Death
from topology_api import Failure
from worker.loop.ack_router import AckRouter
from worker.tasks import failing
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task

#: How long a new process marks its calls.
MARK_SECONDS: Final = 600.0


class CallMarks:
    """The marks of one process."""

    def __init__(self, death: Death, buffer: Any, now: float) -> None:
        """`buffer`: where the marks are written; None: nowhere."""
        self.death = death
        self.buffer = buffer
        self.until = now + MARK_SECONDS
        self.indexes: dict[int, int] = {}
        #: The tasks in whose call the previous process died: if they execute batches, they execute single tuples now.
        self.died_in = {call.task for call in death.calls}

    def begin(self, task: Task) -> None:
        """Mark the calls of a new task."""
        if not isinstance(task, BoltTask) or self.buffer is None:
            return
        index = self.indexes.setdefault(task.id, len(self.indexes))
        if index < MOST_TASKS:
            task.mark = CallMark(self.buffer, index, task.id)
        if isinstance(task, BatchBoltTask) and task.id in self.died_in:
            task.batch_size = 1

    def end(self, tasks: Iterable[Task]) -> None:
        """Mark no further calls."""
        self.buffer = None
        for task in tasks:
            if isinstance(task, BoltTask):
                task.mark = None
            if isinstance(task, BatchBoltTask):
                task.batch_size = int(task.instance.batch_size)

    def report(self, router: AckRouter, tasks: Mapping[int, Task], component_of: Mapping[int, str]) -> None:
        """Report to the trackers in which calls the previous process died. A batch of several tuples names none of them."""
        death = self.death
        reason = HUNG if death.hung else DIED
        for call in death.calls:
            component = component_of.get(call.task)
            if call.size != 1 or component is None:
                continue
            failure = Failure(reason, component, call.task, death.reason, OPEN)
            task = tasks.get(call.task)
            for root in call.roots:
                router.route_failure(root, failure)
                if death.hung and isinstance(task, BoltTask):  # its next success decides
                    failing.expect(task, root, task.now(), death.reason)
