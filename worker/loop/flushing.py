"""When partial frames leave the outboxes: all of them when the loop has nothing to do, those for idle tasks now and then.

Must not know: frames, credit, user code.
"""

from __future__ import annotations

from collections.abc import Callable

from worker.loop.links import Flush, Links
from worker.loop.task_table import TaskTable
from worker.tasks.bolt import BoltTask

#: Seconds after which everything is sent though the loop has more to do.
LONGEST_WAIT_IN_OUTBOX = 0.05
#: Minimum seconds between two flushes for idle tasks in a busy worker; and the pause after one, as a multiple of the time
#: that it took, so that flushing takes a small share of the time.
IDLE_FLUSH_SECONDS = 0.002
IDLE_FLUSH_PAUSE = 20


class Flushing:
    """Flushes the outboxes of one worker's tasks."""

    def __init__(self, table: TaskTable, links: Links, now: Callable[[], float]) -> None:
        self.table = table
        self.links = links
        self.now = now
        self.last_flush = self.next_idle_flush = self.next_pause_flush = now()

    def all_due(self, now: float) -> bool:
        """Whether everything has to be sent though the loop has more to do."""
        return now - self.last_flush >= LONGEST_WAIT_IN_OUTBOX

    def idle_due(self, now: float) -> bool:
        """Whether partial frames for idle tasks are due; earlier when the loop would otherwise pause."""
        return now >= self.next_idle_flush or (now >= self.next_pause_flush and self.pauses)

    @property
    def pauses(self) -> bool:
        """Whether no task wants to run in the loop. A spout whose thread is busy is not asked: no other thread may touch it."""
        spouts = self.table.spouts
        return not self.table.ready and not any(not spout.jobs and spout.wants_run() for spout in spouts)

    def flush_all(self, now: float) -> bool:
        """Send whatever is in outboxes, as far as there is credit."""
        self.last_flush = now
        return self.flush(Flush.ALL)

    def flush_idle(self) -> None:
        """Send what is in outboxes for tasks that have nothing to do."""
        began = self.now()
        self.flush(Flush.IDLE)
        ended = self.now()
        self.next_pause_flush = ended + IDLE_FLUSH_PAUSE * (ended - began)
        self.next_idle_flush = max(ended + IDLE_FLUSH_SECONDS, self.next_pause_flush)

    def flush(self, what: Flush) -> bool:
        """Flush the outboxes of all tasks that are not in a job; return whether anything left."""
        sent = False
        for task in self.table.by_id.values():
            if not task.jobs and task.emitter.dirty:
                if what is Flush.ALL:
                    task.flushed_at = task.emitter.emitted
                sent |= self.links.flush(task, what)
                if isinstance(task, BoltTask) and not task.blocked:
                    self.table.queue(task)
        return sent
