"""Which of the user's calls are running in a worker, and for how long: for its log, its pulse, and to find one that hangs.

Asked by other threads than the worker's loop, which does nothing for it but to say whose job it is in (`Worker.running`).
A job is many calls, so a call is told from the one before it by its frame on the stack. Time is counted from look to look
and a look that comes late counts for little: a process that was stopped for an hour has no call that ran for an hour.
Must not know: what follows from a call that hangs.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Final

from worker.async_bolt_task import CURRENT, AsyncBoltTask
from worker.plan import WorkerPlan
from worker.reports import is_ours
from worker.task import Task
from worker.worker import Worker

#: A job that is younger need not be looked at closely.
YOUNG_SECONDS: Final = 1.0
#: The most that the time between two looks counts for.
LONGEST_GAP: Final = 2.0


@dataclass(frozen=True)
class Call:
    """A call of the user's that is running, as far as it has been watched."""

    task: Task
    #: The job's or the asynchronous call's beginning, by the worker's clock.
    since: float
    #: What tells this call from others: its frame, or the asynchronous call. None: the job is too young to be looked at.
    mark: object
    seconds: float
    seen: float

    @property
    def hangs(self) -> bool:
        """Whether it has run for longer than its component allows. 0 allows any time."""
        return self.mark is not None and 0 < self.task.hang_secs < self.seconds

    @property
    def name(self) -> str:
        """Component and task."""
        return task_name(self.task)


class Calls:
    """The running calls of one worker."""

    def __init__(
        self, worker: Worker, frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames
    ) -> None:
        self.worker = worker
        self.frames = frames
        self.loop_thread = threading.get_ident()
        self.running: dict[tuple[int, bool], Call] = {}
        self._named = worker.plan, logger_names(worker.plan)

    @property
    def names(self) -> dict[str, str]:
        """The tasks by the names of their loggers, as the plan has them that the worker follows now."""
        plan, named = self.worker.plan, self._named
        if named[0] is not plan:
            named = self._named = plan, logger_names(plan)
        return named[1]

    def look(self, now: float) -> list[Call]:
        """The calls that are running, the longest first. To be asked every second or so."""
        frames = self.frames()
        watched: dict[tuple[int, bool], Call] = {}
        for task, since, pending in self.jobs():
            key = task.id, pending is not None
            mark = pending
            if mark is None and now - since >= YOUNG_SECONDS:
                mark = user_frame(frames.get(task.emitter.owner)) or since
            old = self.running.get(key)
            if mark is None:
                seconds = now - since
            elif old is not None and old.since == since and old.mark == mark:
                seconds = old.seconds + min(now - old.seen, LONGEST_GAP)
            else:
                seconds = 0.0  # how much of the job was other calls, nobody has seen
            watched[key] = Call(task, since, mark, seconds, now)
        self.running = watched
        return sorted(watched.values(), key=lambda call: -call.seconds)

    def jobs(self) -> Iterator[tuple[Task, float, object]]:
        """Tasks that are in a job with its beginning, and the oldest calls of asynchronous bolts."""
        worker = self.worker
        for task in list(worker.tasks.values()):
            if task.threaded and not worker.inline:
                if task.jobs:
                    yield task, task.busy_since, None
            elif task is worker.running:
                yield task, task.busy_since, None
            if isinstance(task, AsyncBoltTask):
                oldest = min(list(task.in_flight.values()), key=lambda call: call.started, default=None)
                if oldest is not None:
                    yield task, oldest.started, oldest

    def here(self) -> Task | None:
        """The task whose call the calling thread is in."""
        worker = self.worker
        if threading.get_ident() == self.loop_thread:
            return worker.running
        call = CURRENT.get()
        if call is not None:
            return next((task for task in worker.async_bolts if id(call) in task.in_flight), None)
        _, found, number = threading.current_thread().name.rpartition("-task-")
        return worker.tasks.get(int(number)) if found and number.isdecimal() else None

    def place(self, record: logging.LogRecord) -> str:
        """Where a log record comes from: by the task's own logger, else by the call that wrote it."""
        name = self.names.get(record.name)
        if name is None:
            task = self.here()
            name = "" if task is None else task_name(task)
        return name


def logger_names(plan: WorkerPlan) -> dict[str, str]:
    """The name of each task's logger (`Context.log`), and the task that it is."""
    return {
        f"squall.{plan.topology.name}.{component}.{index}": f"{component}[{task}]"
        for task, component, index in plan.tasks
    }


def task_name(task: Task) -> str:
    """Component and task, as in error reports."""
    return f"{task.spec.id}[{task.id}]"


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The outermost frame of user code that ours called; None: there is none on this stack."""
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    ours = False
    for frame in reversed(stack):
        if is_ours(frame.f_code.co_filename):
            ours = True
        elif ours:
            return frame
    return None


def all_stacks() -> str:
    """What every thread of this process is doing."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [f"All threads of process {os.getpid()}:"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            parts.append(f"Thread {names.get(ident, ident)}:")
            parts += [line.rstrip() for line in traceback.format_stack(frame)]
    return "\n".join(parts)
