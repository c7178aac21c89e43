"""Lets a call of a threaded task give its turn to the worker's loop inside `emit`, and lets its tuples leave while it runs.

A call may take long: a `next_tuple` that loops over a consumer may never return. So `emit` of a threaded task waits in the
cases in which the loop would not begin another call: the run has emitted enough, an outbox has no room, the spout is inactive,
drains or is at its pending limit. The call then *yields*: its job is over, so the loop flushes, delivers acks and expires trees
as after any job. The task's next run goes on with the call, after the spout's final calls and replays.

Between two emissions the loop may flush the outboxes. So the task's thread has a lock, except while it runs the user's code.
Must not know: links, the contents of trackers, other tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from topology_api import Bolt, Spout
from worker.tasks.batch_bolt import BatchBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.emitter import SpoutEmitter, ids_of, rows_of
from worker.tasks.runners import Job, TaskStopped, ThreadRunner
from worker.tasks.spout import SpoutTask

#: Seconds after which emissions get a new time.
STALE_SECONDS: Final = 0.05
#: Seconds after which a call of `next_tuple` is long: it yields for replays and for final calls, which follow a shorter call.
LONG_SECONDS: Final = 1.0
#: The least seconds between two of these turns.
TURN_SECONDS: Final = 0.1


class YieldingCalls:
    """The calls of one threaded task, in which `emit` may wait."""

    def __init__(self, task: SpoutTask | BoltTask, runner: ThreadRunner) -> None:
        self.task = task
        self.runner = runner
        self.lock = threading.RLock()
        #: Whether a call that may yield is running.
        self.inside = False
        #: When it began, and since when it has run without a wait; the calls of one short run count as one call.
        self.began = self.since = 0.0
        #: The call yields when the task has emitted this often: a run's share, or as many as the pending limit allows.
        self.enough = 0
        #: Whether an emission looks at the clock and at what the loop wants: the loop has visited the call, or stops the task.
        self.looks = False
        #: Whether the run that came while the call waited lets it go on.
        self.resumes = False
        self.stopped = False
        #: The job that came after the task was stopped; it follows the call.
        self.carried: Job | None = None
        #: Whether nothing wakes the loop for this task, so that the next emission has to.
        self.quiet = False
        #: When the loop flushes the outboxes of the running call, and what the task had emitted the last time.
        self.due = 0.0
        self.seen = 0
        if isinstance(task, SpoutTask):
            task.next_tuple = self.outside(task.next_tuple)
        elif isinstance(task, BatchBoltTask):
            task.execute_many = self.outside(task.execute_many)
        else:
            task.execute = self.outside(task.execute)
        self.emit = self.guarded(task.emitter.emit) if isinstance(task, BoltTask) else self.guarded_spout()
        self.emit_direct = self.guarded(task.emitter.emit_direct)
        task.calls = self
        if isinstance(task, SpoutTask):
            self.emit_many = self.guarded_many(task.emitter)
            task.attach(("emit", "emit_direct", "emit_many"), Spout, task)
        else:
            task.attach(("emit", "emit_direct"), Bolt, task)

    @property
    def long_from(self) -> float:
        """When the call is long."""
        return self.began + LONG_SECONDS

    def job(self, job: Job) -> Job:
        """Return a job of the task as its thread runs it."""
        return partial(self.run, job)

    def run(self, job: Job) -> None:
        """Run a job in the task's thread; if a call waits in `emit`, inside this call."""
        if self.task.yielded:
            if self.stopped:
                self.carried = job
                raise self.end()
            with self.lock:
                job()
            return
        following: Job | None = job
        while following is not None:
            with self.lock:
                self.began = self.since = self.task.busy_since
                self.set_share()
                following()
            following, self.carried = self.carried, None

    def stop(self) -> None:
        """Let the next emission of a running call end it."""
        self.stopped = self.looks = True

    def outside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the user's that runs without the lock, and may yield."""

        def run(*args: Any) -> Any:
            if self.stopped and isinstance(self.task, SpoutTask):
                return 0.0  # this run was requested before the stop
            self.inside = True
            self.lock.release()
            try:
                return call(*args)
            except TaskStopped:
                if isinstance(self.task, BoltTask):
                    raise  # the tuple fails
                return 0.0
            finally:
                self.lock.acquire()
                self.inside = False
                if self.since != self.began:
                    # The task adds the time of the whole call; the time until `since` has been added, except the waits.
                    self.task.work.seconds -= self.since - self.began
                    self.began = self.since

        return run

    def guarded(self, emit: Callable[..., None]) -> Callable[..., None]:
        """Return a method of the emitter's, `emit` or `emit_direct`, as the task's thread may call it."""
        emitter, lock = self.task.emitter, self.lock

        def run(*args: Any, **options: Any) -> None:
            if emitter.owner != threading.get_ident():
                emitter.refuse()  # at once: the thread that may emit has the lock for as long as a job takes
            if self.inside and (self.looks or emitter.emitted >= self.enough):
                self.before_emission()
            with lock:
                emit(*args, **options)
            if self.quiet:
                self.wake_loop()

        return run

    def guarded_spout(self) -> Callable[..., None]:
        """Return what `guarded` returns for a spout's `emit`. A call takes two thirds of the time, since its parameters are
        named: spouts of files emit each line with one.
        """
        emitter, here = self.task.emitter, threading.get_ident
        take, leave = self.lock.acquire, self.lock.release  # two thirds of the time of `with`
        emit: Callable[..., None] = emitter.emit

        def run(values: Any, *, message_id: Any = None, stream: str = "default") -> None:
            if emitter.owner != here():
                emitter.refuse()
            if self.inside and (self.looks or emitter.emitted >= self.enough):
                self.before_emission()
            take()
            try:
                emit(values, message_id=message_id, stream=stream)
            finally:
                leave()
            if self.quiet:
                self.wake_loop()

        return run

    def guarded_many(self, emitter: SpoutEmitter) -> Callable[..., None]:
        """Return a spout's `emit_many`: it may yield after each share of the task."""

        def run(rows: Any, *, message_ids: Any = None, stream: str = "default") -> None:
            if emitter.owner != threading.get_ident():
                emitter.refuse()
            rows = rows_of(rows)
            ids, at = ids_of(rows, message_ids), 0
            try:
                while at < len(rows):
                    if self.inside and (self.looks or emitter.emitted >= self.enough):
                        self.before_emission()
                    most = max(1, self.enough - emitter.emitted) if self.inside else len(rows)
                    part = rows if at == 0 and most >= len(rows) else rows[at : at + most]
                    with self.lock:
                        emitter.emit_many(part, message_ids=ids[at : at + most], stream=stream)
                    at += len(part)
                    if self.quiet:
                        self.wake_loop()
            except BaseException as error:
                error.emitted = at + getattr(error, "emitted", 0)  # type: ignore[attr-defined]
                raise

        return run

    def before_emission(self) -> None:
        """Yield if the call must not go on now."""
        task = self.task
        if task.yielded:  # `ack`, `fail` or `activate` emits inside the call
            return
        now = task.now()
        if isinstance(task, SpoutTask) and now - task.emitter.now >= STALE_SECONDS:
            with self.lock:
                task.set_time(now)
        if self.must_yield(now):
            self.give_turn()

    def wake_loop(self) -> None:
        """Wake the loop, which would not look at the outboxes by itself."""
        self.quiet = False
        self.due = 0.0
        self.runner.wake()

    def set_share(self) -> None:
        """Set how much the task may emit before it yields. Its pending trees do not end while it has a job."""
        task = self.task
        share = task.limits.emits
        if isinstance(task, SpoutTask) and task.max_pending is not None:
            share = max(1, min(share, task.max_pending - task.tracker.pending))
        self.enough = task.emitter.emitted + share

    def must_yield(self, now: float) -> bool:
        """Return whether the call has to wait, or holds up what the loop or the task has to do."""
        task = self.task
        if self.stopped or task.blocked or task.emitter.emitted >= self.enough:
            return True
        if isinstance(task, BoltTask):
            return False
        if not task.may_go_on():
            return True
        return now >= self.long_from and now - self.since >= TURN_SECONDS

    def give_turn(self) -> None:
        """Wait until a run of the task lets the call go on. Raise `TaskStopped` if the task is stopped."""
        task = self.task
        if self.stopped:
            raise self.end()
        task.work.seconds += task.now() - self.since
        task.yielded = True
        try:
            self.resumes = False
            while not self.resumes:
                job = self.runner.pass_turn()
                if job is None:
                    self.stopped = True
                    raise self.end()
                job()
        finally:
            task.yielded = False
            self.since = task.now()
            self.looks = True
            self.set_share()

    def end(self) -> TaskStopped:
        """Return the exception that ends the call."""
        return TaskStopped(f"{self.task.emitter.where()} cannot emit: its task is being stopped")
