"""Watches which of the user's calls run in a worker, and for how long: for the worker's log and heartbeat, and to detect hangs.

The watch runs in threads other than the worker's loop; the loop records only the task whose job it runs (`Worker.running`).
A job makes many calls; the frame on the stack distinguishes a call from the previous one. Time is counted from check to check,
with a limit for each interval: so after a process was stopped for an hour, no call seems to have run for an hour.
Must not know: the consequences of a call that hangs.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Final

import msgspec

from worker.errors.reports import is_ours
from worker.loop.worker import Worker
from worker.tasks.async_bolt import CURRENT, AsyncBoltTask
from worker.tasks.task import Task

#: The stack of a job is inspected only after the job has run for this many seconds.
YOUNG_SECONDS: Final = 1.0
#: The most seconds by which a call's time grows between two checks.
LONGEST_GAP: Final = 2.0


class UserCall(msgspec.Struct, frozen=True):
    """A running call of user code, as far as it has been watched."""

    task: Task
    #: The time at which the job or the asynchronous call began, on the worker's clock.
    since: float
    #: Identifies this call: its frame, or the asynchronous call, or else the start of the job. None: the job is too young.
    mark: object
    seconds: float
    seen: float
    #: The thread of a call that a sink makes beside its task's own thread; 0: the call is in the task's own.
    outside: int = 0

    @property
    def thread(self) -> int:
        """The thread in which the call runs, unless it is asynchronous."""
        return self.outside or self.task.emitter.owner

    @property
    def hangs(self) -> bool:
        """Whether the call has run longer than `topology.bolt.hang.secs` (0: no limit)."""
        return self.mark is not None and 0 < self.task.hang_secs < self.seconds


class CallWatch:
    """The running calls of one worker."""

    def __init__(
        self, worker: Worker, frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames
    ) -> None:
        self.worker = worker
        self.frames = frames
        self.loop_thread = threading.get_ident()
        self.running: dict[tuple[int, bool, int], UserCall] = {}

    def watch(self, now: float) -> list[UserCall]:
        """Return the running calls, the longest first. Call this about once a second."""
        frames = self.frames()
        watched: dict[tuple[int, bool, int], UserCall] = {}
        for task, since, pending, outside in self.jobs():
            key = task.id, pending is not None, outside
            mark = pending
            if mark is None and now - since >= YOUNG_SECONDS:
                mark = user_frame(frames.get(outside or task.emitter.owner)) or since
            old = self.running.get(key)
            if mark is None:
                seconds = now - since
            elif old is not None and old.since == since and old.mark == mark:
                seconds = old.seconds + min(now - old.seen, LONGEST_GAP)
            else:
                seconds = 0.0  # it is unknown how long the job's earlier calls took
            watched[key] = UserCall(task, since, mark, seconds, now, outside)
        self.running = watched
        return sorted(watched.values(), key=lambda call: -call.seconds)

    def jobs(self) -> Iterator[tuple[Task, float, object, int]]:
        """Yield (task, start time, None, 0) for each task that is in a job, (task, start time, None, thread) for each call that
        a sink makes beside its thread, and (task, start time, call, 0) for the oldest call of each asynchronous bolt task."""
        worker = self.worker
        for task in list(worker.tasks.values()):
            if task.threaded and not worker.inline:
                if task.jobs:
                    yield task, task.busy_since, None, 0
                outside = getattr(task, "outside", None)
                if outside is not None and outside.busy and outside.ident:
                    yield task, outside.since, None, outside.ident
            elif task is worker.running:
                yield task, task.busy_since, None, 0
            if isinstance(task, AsyncBoltTask):
                oldest = min(list(task.in_flight.values()), key=lambda call: call.started, default=None)
                if oldest is not None:
                    yield task, oldest.started, oldest, 0

    def here(self) -> Task | None:
        """Return the task whose code the current thread runs."""
        worker = self.worker
        if threading.get_ident() == self.loop_thread:
            return worker.running
        call = CURRENT.get()
        if call is not None:
            return next((task for task in worker.async_bolts if id(call) in task.in_flight), None)
        _, separator, number = threading.current_thread().name.rpartition("-task-")
        return worker.tasks.get(int(number)) if separator and number.isdecimal() else None

    def place(self, record: logging.LogRecord) -> str:
        """Return the task that wrote a log record: the task that owns the record's logger, else the task whose call is
        running; "" if there is no such task.
        """
        name = self.worker.plan.tasks_by_logger.get(record.name)
        if name is None:
            task = self.here()
            name = "" if task is None else task_name(task)
        return name


def task_name(task: Task) -> str:
    """Return component and task, as in error reports."""
    return f"{task.spec.id}[{task.id}]"


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the outermost frame of user code that Squall called; None if there is none on this stack."""
    stack = [] if frame is None else [each for each, _ in traceback.walk_stack(frame)]
    ours = False
    for frame in reversed(stack):
        if is_ours(frame.f_code.co_filename):
            ours = True
        elif ours:
            return frame
    return None


def all_stacks() -> str:
    """Return the stacks of all other threads of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [f"All threads of process {os.getpid()}:"]
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            parts.append(f"Thread {names.get(ident, ident)}:")
            parts += [line.rstrip() for line in traceback.format_stack(frame)]
    return "\n".join(parts)
