"""Runs tasks outside the worker's loop: in a thread per task, with another one for calls of sinks that reach the outside, and
on one asyncio loop per worker.

The worker's core uses only "submit this job" and "which jobs are done"; in simulated time, jobs run at once, in the loop. A
task's jobs run one after the other in one thread, the same thread from `prepare` to `cleanup`. A process that user code forks
has a copy of every task, but must not run these copies: if the forking call returns to Squall, the forked process is ended. If
the forked process runs another program or calls `os._exit`, Squall does not interfere.
Must not know: tasks, tuples.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)

Job = Callable[[], None]
Calls = list[Callable[[], Coroutine[Any, Any, None]]]

#: How many seconds an ending worker waits for running user calls. The threads are daemons, so a call that never returns
#: does not keep the process alive.
STOP_SECONDS = 5.0


class TaskStopped(BaseException):
    """Ends a call that emits after its task was stopped. `except Exception` does not catch it."""


class AsyncDriver(Protocol):
    """The worker's asyncio loop: `AsyncThread`, or `SimulatedAsync` in simulated time."""

    def submit(self, calls: Calls) -> None: ...

    def step(self) -> bool: ...

    def next_time(self) -> float | None: ...

    def stop(self) -> None: ...


class ThreadRunner:
    """A thread for each task that submits a job."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self.name = name
        self.wake = wake
        self.over: deque[int] = deque()
        self.queues: dict[int, SimpleQueue[Job | None]] = {}
        self.threads: list[threading.Thread] = []
        #: In a task's thread: its queue, and the task.
        self.own = threading.local()
        self.process = os.getpid()

    def submit(self, task: int, job: Job) -> None:
        """Run a job of this task, after the task's earlier jobs."""
        if task not in self.queues:
            self.queues[task] = SimpleQueue()
            name = f"{self.name}-task-{task}"
            thread = threading.Thread(target=self.serve, args=(task,), name=name, daemon=True)
            self.threads.append(thread)
            thread.start()
        self.queues[task].put(job)

    def serve(self, task: int) -> None:
        """Run the jobs of a thread until it is stopped."""
        queue = self.queues[task]  # kept here, since `finish` removes the entry before the last job has ended
        self.own.queue, self.own.task = queue, task
        while (job := queue.get()) is not None:
            job()
            end_returned_fork(self.process)
            self.over.append(task)
            self.wake()

    def pass_turn(self) -> Job | None:
        """In a task's thread: end the running job without returning from it. Return the next job; None: there is none."""
        end_returned_fork(self.process)
        queue: SimpleQueue[Job | None] = self.own.queue
        self.over.append(self.own.task)
        self.wake()
        job = queue.get()
        if job is None:
            queue.put(None)  # for `serve`
        return job

    def collect(self) -> list[int]:
        """Return the tasks whose jobs have ended since the last call; one entry per job."""
        over = []
        while self.over:
            over.append(self.over.popleft())
        return over

    def finish(self, task: int) -> bool:
        """Wait until the last job of this task has ended; return whether it has, after `STOP_SECONDS` at most."""
        self.queues.pop(task).put(None)
        name = f"{self.name}-task-{task}"
        ended = True
        for thread in [thread for thread in self.threads if thread.name == name]:
            self.threads.remove(thread)
            thread.join(STOP_SECONDS)
            ended = ended and not thread.is_alive()
        while task in self.over:
            self.over.remove(task)
        return ended

    def stop(self) -> None:
        for queue in self.queues.values():
            queue.put(None)
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _log.warning(
                    "%s: a user's call has not returned for %g s; its thread is left behind",
                    thread.name,
                    STOP_SECONDS,
                )


class OutsideThread:
    """A thread beside that of a task, for calls that reach the outside while the task goes on. They run one after the other."""

    def __init__(self, name: str, task: int, wake: Callable[[], None], now: Callable[[], float]) -> None:
        self.runner = ThreadRunner(name, wake)
        self.task, self.now = task, now
        #: How many calls the loop has submitted, and how many have ended.
        self.submitted = self.ended = 0
        #: Since when the running call has been running, or since its last report of progress.
        self.since = 0.0
        #: What the running call waits for, as it says; "": it does not say.
        self.waits_for = ""
        #: The thread's number; 0: no call has run.
        self.ident = 0

    @property
    def busy(self) -> bool:
        """Whether a call runs, or waits for its turn."""
        return self.submitted > self.ended

    def submit(self, job: Job) -> None:
        """Run a call after the earlier ones. Called by the loop."""
        if not self.busy:
            self.since = self.now()
        self.submitted += 1
        self.runner.submit(self.task, lambda: self.run(job))

    def run(self, job: Job) -> None:
        """Run a call in the thread."""
        self.ident, self.since = threading.get_ident(), self.now()
        try:
            job()
        finally:
            self.waits_for = ""
            self.ended += 1
            self.runner.over.clear()

    def do(self, job: Job) -> None:
        """Run a job after the earlier calls, and wait for its end. Called in the task's own thread."""
        over = threading.Event()

        def run() -> None:
            try:
                job()
            finally:
                over.set()

        self.runner.submit(self.task, run)
        over.wait()

    def end(self) -> None:
        """End the thread, after its calls."""
        self.runner.stop()


def protect(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Refuse each `loop.stop()` from now on, since the loop runs the calls of all async bolts of a worker. Return the function
    that does stop the loop."""
    stop = loop.stop

    def refuse() -> NoReturn:
        raise RuntimeError(
            "loop.stop() would stop the calls of all async bolts of this worker: return from execute() instead"
        )

    vars(loop)["stop"] = refuse
    return stop


def release(loop: asyncio.AbstractEventLoop) -> None:
    """Let asyncio itself stop a protected loop."""
    vars(loop).pop("stop", None)


class AsyncThread:
    """An asyncio loop in a thread of its own, started with the first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.stop_loop: Callable[[], None] | None = None

    def submit(self, calls: Calls) -> None:
        """Start these calls on the loop, all with one wake-up."""
        import asyncio  # only when needed: loading it takes longer than the start of a small topology

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self.stop_loop = protect(self.loop)
            name = f"{self.name}-asyncio"
            self.thread = threading.Thread(target=self.serve, args=(self.loop,), name=name, daemon=True)
            self.thread.start()
        self.loop.call_soon_threadsafe(self.start, calls)

    def start(self, calls: Calls) -> None:
        """Make an asyncio task of each call, and keep a reference to the task until it has ended."""
        import asyncio

        for call in calls:
            task = asyncio.ensure_future(call())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the thread."""
        import asyncio

        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            release(loop)
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def stop(self) -> None:
        """Cancel the calls that are still running, and end the thread."""
        if self.loop is not None and self.thread is not None and self.stop_loop is not None:
            self.loop.call_soon_threadsafe(self.stop_loop)
            self.thread.join(STOP_SECONDS)

    def step(self) -> bool:
        """Do nothing: the loop drives itself."""
        return False

    def next_time(self) -> float | None:
        """Return None: the loop wakes itself."""
        return None


def canceller() -> Callable[[], None]:
    """In a coroutine of a driver: return a function that cancels it, and may be called in any thread."""
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def cancel() -> None:
        loop.call_soon_threadsafe(task.cancel)

    return cancel


def in_main_thread() -> bool:
    """Return whether the caller runs in the process's main thread."""
    return threading.current_thread() is threading.main_thread()


def end_fork(error: BaseException) -> NoReturn:
    """End a forked process whose call raised an error, such as SystemExit, with the status that Python would use."""
    status = 1
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    else:
        traceback.print_exception(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


def end_raising_fork(process: int, error: BaseException) -> None:
    """End this process if its pid is not `process`: then user code forked it, and the forked process has raised an error."""
    if os.getpid() != process:
        end_fork(error)


def end_returned_fork(process: int) -> None:
    """End this process if its pid is not `process`: then user code forked it, and the forking call has returned to Squall."""
    if os.getpid() != process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
