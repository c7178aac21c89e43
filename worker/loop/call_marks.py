"""The marks of running calls, after a worker's process has died in a call; and the report on the calls in which it died.

While nothing has died, no call is marked, and a tuple costs nothing more. The next process of a worker that died by the fault
of a call marks its calls for a while, one tuple at a time. So the tuple of the second death is known. Batch bolts whose batch
was in a call then execute single tuples; a coroutine that waits is in no call, so after a death between calls async bolts have
one at a time. What is known of deaths on this host (`squall.suspects`) outlives the processes, and
the trackers that are in them.
Must not know: files, what ends a process, when a suspect is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from squall.running_calls import MOST_TASKS, NO_TUPLE, CallMark
from squall.suspects import MARK_SECS, Suspects
from squall.transport.frames import DIED, HUNG, OPEN
from squall.worker_files import Death
from topology_api import Failure
from worker.loop.ack_router import AckRouter
from worker.loop.plan import WorkerPlan
from worker.tasks import failing
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.lone_calls import LoneCalls
from worker.tasks.marked_calls import MarkedCalls
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task

_log = logging.getLogger(__name__)


class CallMarks:
    """The marks of one process."""

    def __init__(
        self, death: Death | None, buffer: Any, now: float, suspects: Suspects | None = None
    ) -> None:
        """`death`: of the previous process, by the fault of its calls; None: it ended otherwise. `buffer`: where the marks are
        written; None: nowhere."""
        self.death = death
        self.buffer = buffer
        self.until = now + (MARK_SECS if suspects is None else max(MARK_SECS, suspects.mark_secs))
        self.suspects = {bytes.fromhex(each.key): each for each in (suspects.known if suspects else ())}
        self.lone_calls = LoneCalls()
        self.indexes: dict[int, int] = {}
        #: The spout tasks that give up no tuple; None: not known yet.
        self.endless: frozenset[int] | None = None
        self.ended = False
        #: The tasks in whose call a process died: if they execute batches, they execute single tuples now.
        self.died_in = {call.task for call in (death.calls if death else ()) if call.size != NO_TUPLE}
        self.died_in.update(suspects.batches if suspects else ())

    def begin(self, task: Task, plan: WorkerPlan) -> None:
        """Mark the calls of a new task."""
        if self.ended or (self.buffer is None and not self.suspects):
            return
        if isinstance(task, SpoutTask) and task.threaded:
            return  # its call may never end, and would be beside all others
        if self.endless is None:
            self.endless = endless_tasks(plan) if self.suspects else frozenset()
        index = self.indexes.setdefault(task.id, len(self.indexes))
        record = None
        if self.buffer is not None and index < MOST_TASKS:
            record = CallMark(self.buffer, index, task.id)
        mark = task.mark = MarkedCalls(record, task, self.suspects, self.lone_calls, self.endless)
        if isinstance(task, BatchBoltTask) and task.id in self.died_in:
            task.batch_size = 1
        if isinstance(task, AsyncBoltTask):
            mark.marks_others = False
            if self.death is not None and self.death.between_calls:
                task.max_concurrency, mark.is_whole = 1, True

    def end(self, tasks: Iterable[Task]) -> None:
        """Mark no further calls."""
        self.ended = True
        for task in tasks:
            task.mark = None
            if isinstance(task, BatchBoltTask):
                task.batch_size = int(task.instance.batch_size)
            if isinstance(task, AsyncBoltTask):
                task.max_concurrency = int(task.instance.max_concurrency)

    def report(self, router: AckRouter, tasks: Mapping[int, Task], component_of: Mapping[int, str]) -> None:
        """Report to the trackers in which call the previous process died. A batch of several tuples names none of them, and of
        several calls that were running none is known to be at fault."""
        death = self.death
        if death is None or len(death.calls) != 1 or death.calls[0].size != 1:
            return
        [call] = death.calls
        component = component_of.get(call.task)
        if component is None:
            return
        failure = Failure(HUNG if death.hung else DIED, component, call.task, death.reason, OPEN)
        task = tasks.get(call.task)
        for root in call.roots:
            router.route_failure(root, failure)
            if death.hung and isinstance(task, BoltTask):  # its next success decides
                failing.expect(task, root, task.now(), death.reason)


def endless_tasks(plan: WorkerPlan) -> frozenset[int]:
    """Return the spout tasks with `Replay(max_attempts=None)`."""
    found: set[int] = set()
    for spec in plan.topology.spouts:
        try:
            replay = plan.topology.load(spec.id).replay
        except Exception as error:  # the worker that runs it says more
            _log.warning("the replays of %s are not known: %s", spec.id, error)
            continue
        if replay is not None and replay.max_attempts is None:
            found.update(plan.tasks_of[spec.id])
    return frozenset(found)
