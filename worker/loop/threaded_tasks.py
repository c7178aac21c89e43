"""The threaded tasks of one worker: their jobs, and the tuples that a call emits while it runs.

A call whose tuples wait in outboxes is visited: the loop sends them 50 ms after the first of them at the latest.
Must not know: trackers, user code, sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from worker.loop.links import Flush, Links
from worker.tasks.bolt import BoltTask
from worker.tasks.runners import Job, ThreadRunner
from worker.tasks.spout import SpoutTask
from worker.tasks.task import Task
from worker.tasks.yielding import YieldingCalls

#: Seconds between two visits to a running call.
VISIT_SECONDS: Final = 0.05


class ThreadedTasks:
    """The threads, and the calls that may yield."""

    def __init__(self, name: str, links: Links, wake: Callable[[], None]) -> None:
        self.runner = ThreadRunner(name, wake)
        self.links = links
        self.calls: dict[int, YieldingCalls] = {}
        #: Tasks whose threads have got their last job.
        self.closing: set[int] = set()
        #: Tasks that were closed while a call hangs.
        self.left_behind: list[Task] = []

    def add(self, task: Task) -> None:
        """Let the calls of a task yield."""
        assert isinstance(task, SpoutTask | BoltTask)
        self.calls[task.id] = YieldingCalls(task, self.runner)

    def submit(self, task: Task, job: Job) -> None:
        """Run a job of a task in its thread."""
        calls = self.calls[task.id]
        if task.jobs == 1:  # not by the thread: the loop may visit the call before the thread begins it
            calls.looks = calls.stopped
            # A task whose jobs are short has one whenever the loop sends what waits; what the last job emitted leaves now.
            if task.emitter.dirty:
                self.links.flush(task, Flush.IDLE)
        calls.quiet = False
        if not task.emitter.dirty or task.jobs > 1:
            calls.due = task.busy_since + VISIT_SECONDS
        self.runner.submit(task.id, calls.job(job))

    def close(self, task: Task) -> None:
        """Run the last job of a task: its `close`."""
        self.calls[task.id].stop()
        self.submit(task, task.close)

    def begin_to_finish(self, tasks: Iterable[Task]) -> None:
        """Let the threads of tasks that leave this worker close them, all at the same time; `finish` then waits for each."""
        for task in tasks:
            calls = self.calls[task.id]
            calls.stop()
            self.runner.submit(task.id, calls.job(task.close))
            self.closing.add(task.id)

    def finish(self, task: Task) -> None:
        """Close a task that leaves this worker, and wait until it is closed."""
        if task.id not in self.closing:
            self.begin_to_finish([task])
        self.closing.remove(task.id)
        del self.calls[task.id]
        if not self.runner.finish(task.id):
            self.left_behind.append(task)

    def visit(self, now: float) -> bool:
        """Send what running calls have emitted; return whether there was any."""
        sent = False
        for calls in self.calls.values():
            if not calls.task.jobs or calls.quiet or now < calls.due:
                continue
            calls.looks, calls.due = True, now + VISIT_SECONDS
            if calls.lock.acquire(blocking=False):
                try:
                    sent |= self.flush(calls, now)
                finally:
                    calls.lock.release()
        return sent

    def flush(self, calls: YieldingCalls, now: float) -> bool:
        """Send what a call has emitted. The caller has its lock, so the call is between two emissions."""
        task, emitter = calls.task, calls.task.emitter
        emits = emitter.emitted != calls.seen
        calls.seen = emitter.emitted
        if emits:
            task.busy_since = now  # a call that emits does not hang
        sent = False
        if emitter.dirty:
            task.flushed_at = emitter.emitted
            sent = self.links.flush(task, Flush.ALL)
        calls.quiet = not emits and not emitter.dirty
        return sent

    def next_time(self) -> float | None:
        """Return when the next visit is due; None if no call needs one before it emits."""
        due = [calls.due for calls in self.calls.values() if calls.task.jobs and not calls.quiet]
        return min(due, default=None)
