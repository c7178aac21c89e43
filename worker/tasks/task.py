"""The common base of spout tasks and bolt tasks: an instance of a user's class, its context, its emitter, its counters.

A task never uses a link, another task's tracker or its own clock. It leaves results in its buffers (XORs, failures, timeout
resets, reports, executed batches), and the worker collects these results after each run. So the worker's loop or the task's own
thread can run the task without a lock: during a run no other thread touches the task.
Must not know: links, other tasks, threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from squall.daemon.inside import is_worker
from squall.transport.frames import Batch
from topology_api import Bolt, Context, Failure, Spout
from topology_api.topology import ComponentSpec
from topology_api.tuples import Tuple
from topology_api.wording import is_error
from worker.errors.reports import ErrorReport, make_report, short_line
from worker.tasks.emitter import Emitter
from worker.tasks.metrics import TaskMetrics
from worker.tasks.runners import TaskStopped, end_fork, in_main_thread
from worker.tasks.work_time import WorkTime

if TYPE_CHECKING:
    from worker.tasks.marked_calls import MarkedCalls

#: The reference count of a dictionary that only its instance uses: the three references are those of the instance, of the
#: variable and of the argument of getrefcount.
REFERENCES = 3


class TaskLimits(msgspec.Struct, frozen=True):
    """The sizes of queues and runs of one task; see `worker.loop.plan.limits_of`."""

    #: The most tuples in a frame.
    frame: int
    #: The most frames in flight to one destination task.
    window: int
    #: When an outbox reaches this size, the sending task is no longer run.
    high: int
    #: Emissions after which a run ends.
    emits: int


class TaskSetup(msgspec.Struct, frozen=True):
    """The parts from which every kind of task is made."""

    spec: ComponentSpec
    instance: Any
    context: Context
    limits: TaskLimits
    now: Callable[[], float]


#: The most tuples executed before the clock is read.
MOST_IN_A_ROW = 128
#: Seconds after which a run ends, so that one task does not delay the others.
RUN_SECONDS = 0.003
#: The user's methods in which `emit` may wait, besides those that get input or provide it.
MAY_YIELD = frozenset(("tick", "end_of_input"))


class Pace:
    """The number of calls before the clock is read again: many fast calls, or a single slow one."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 8

    def took(self, calls: int, seconds: float) -> None:
        """Adapt to a run of this many calls that took `seconds`."""
        if seconds > RUN_SECONDS:
            self.count = max(1, int(calls * RUN_SECONDS / seconds))
        elif calls >= self.count:
            self.count = min(MOST_IN_A_ROW, 2 * self.count)


class Task:
    """One task of a component. Subclasses: `SpoutTask`, `BoltTask` and its kinds."""

    emitter: Emitter

    def __init__(self, setup: TaskSetup) -> None:
        self.spec = setup.spec
        self.instance = setup.instance
        self.context = setup.context
        self.limits = setup.limits
        self.now = setup.now
        self.id = self.context.task
        self.process = os.getpid()
        self.pace = Pace()
        self.work = WorkTime(setup.now())
        self.inbox: deque[Batch] = deque()
        #: Whether open/prepare has returned.
        self.opened = False
        #: Whether close/cleanup has been called.
        self.closed = False
        #: The number of jobs of this task that have not ended.
        self.jobs = 0
        #: The time since which the task has had such jobs.
        self.busy_since = 0.0
        #: What the running call waits for (the call reports this with `Context.progress`); "": unknown.
        self.waits_for = ""
        #: Whether the worker is stopping; if so, results of a running call are discarded.
        self.stopped = False
        #: Whether an outbox has no room; if so, the task is not run.
        self.blocked = False
        #: Whether everything is done: end_of_input has run (or the spout has finished), and the end marks have been sent.
        self.ended = False
        self.executed = self.acked = self.failed = 0
        #: Whether the first error of the user's code ends the topology (`topology.on.error: crash`).
        self.crash_on_error = self.context.conf["topology.on.error"] == "crash"
        self.hang_secs = float(self.context.conf["topology.bolt.hang.secs"])  # type: ignore[arg-type]
        #: Whether the task runs in its own thread.
        self.threaded = bool(self.instance.threaded)
        #: The calls of a task in its own thread; see `worker.tasks.yielding`.
        self.calls: Any = None
        #: Whether such a call waits in `emit`: the task has no job, but the call is not over.
        self.yielded = False
        self.metrics = TaskMetrics()
        self.observer: Any = None
        #: The number of emissions when the outboxes were last flushed.
        self.flushed_at = 0
        self.queued = False
        #: What the worker's loop wants done before the next run, in the task's own thread; a later notice of a key replaces an
        #: earlier one.
        self.notices: dict[tuple[str, int], Callable[[], None]] = {}
        # Results of a run, for the worker.
        self.done: list[Batch] = []
        self.failures: list[tuple[int, Failure]] = []
        self.reports: list[ErrorReport] = []
        self.abandoned: ErrorReport | None = None
        #: Ends the process, after a MemoryError in a call with these tuples; None: it ends the topology.
        self.on_out_of_memory: Callable[[Task, ErrorReport, Sequence[Tuple]], None] | None = None
        #: Marks running calls, one tuple at a time, after a worker has died in one; see `worker.loop.call_marks`.
        self.mark: MarkedCalls | None = None

    # Methods that the user's instance gets, unless its class overrides them.

    @property
    def emit(self) -> Callable[..., None]:
        """The emitter's own method, so that an emission costs no further call, except in a task's own thread."""
        return self.emitter.emit if self.calls is None else self.calls.emit

    @property
    def emit_direct(self) -> Callable[..., None]:
        """Like `emit`, on a direct stream."""
        return self.emitter.emit_direct if self.calls is None else self.calls.emit_direct

    @property
    def busy(self) -> bool:
        """Whether the task has a job that has not ended, so that no other thread may touch the task."""
        return self.jobs > 0

    def hung(self) -> bool:
        """Return whether a user's call has been running for longer than `topology.bolt.hang.secs`."""
        return self.jobs > 0 and self.now() - self.busy_since > self.hang_secs

    def goes_on(self, why: str | None) -> None:
        """Implement `Context.progress`: the running call reports that it is not hung.

        `why`: what the call waits for (None: unchanged). Outside of a job `why` is ignored, since nothing would clear it.
        """
        self.busy_since = self.now()
        if why is not None and self.jobs:
            self.waits_for = short_line(str(why))

    def attach(self, names: tuple[str, ...], base: type[Spout] | type[Bolt], core: object) -> None:
        """Give the instance its runtime methods, except those that its class overrides: the overrides reach the runtime through
        super().
        """
        attributes = own_dictionary(self.instance)
        attributes["_squall_task"] = core
        for name in names:
            if getattr(type(self.instance), name) is getattr(base, name):
                attributes[name] = getattr(core, name)

    def call(self, name: str, *args: Any, tuple_text: str | None = None) -> bool:
        """Call a user's method; return whether it returned. An error that it raises is reported."""
        began, mark = self.now(), self.mark
        if mark is not None:
            mark.enter_other()
        try:
            method = getattr(self.instance, name)
            if self.calls is not None and name in MAY_YIELD:
                method = self.calls.outside(method)
            method(*args)
        except BaseException as error:
            self.report(name, error, tuple_text)
            return False
        finally:
            self.work.seconds += self.now() - began
            if mark is not None:
                mark.leave_other()
        return True

    def report(
        self,
        call: str,
        error: BaseException,
        tuple_text: str | None = None,
        tups: Sequence[Tuple] = (),
    ) -> ErrorReport:
        """Report an error of the user's code. Ctrl-C in the main thread is not such an error, and is raised.

        `tups`: the tuples in the call.
        """
        if is_error(error, KeyboardInterrupt) and in_main_thread() and not is_worker():
            raise error
        if os.getpid() != self.process:
            end_fork(error)
        context = self.context
        report = make_report(context.topology, self.spec.id, self.id, call, error, tuple_text, self.now())
        if is_error(error, TaskStopped):  # not an error of the user's
            return report
        self.reports.append(report)
        if is_error(error, MemoryError) and self.opened:
            if self.on_out_of_memory is not None:
                self.on_out_of_memory(self, report, tups)
            self.crash_on_error = True
        return report

    def start(self) -> None:
        """Call `open` or `prepare`. If it raises, the task is abandoned."""
        name = "open" if self.spec.kind == "spout" else "prepare"
        self.emitter.open_for(threading.get_ident())
        if not self.call(name, self.context):
            self.abandoned = self.reports[-1]
            return
        self.opened = True
        if self.observer is not None:
            self.observer.opened(self.context)

    def close(self) -> None:
        """Call `close` or `cleanup`, once; the task may not emit afterwards."""
        if self.closed or not self.opened:
            return
        self.closed = True
        name = "close" if self.spec.kind == "spout" else "cleanup"
        self.emitter.close_for(f"its {name}() is running or has run")
        self.call(name)
        if self.observer is not None:
            self.observer.closed()

    def heed(self) -> None:
        """Do what the worker's loop wants done before a run."""
        while self.notices:
            _, notice = self.notices.popitem()  # in one step: the loop may add notices meanwhile
            notice()

    def run(self) -> None:
        """Do the due work, for a bounded time."""
        raise AssertionError("every kind of task has its own run")

    def at_rest(self) -> bool:
        """Return whether the task is idle: no job, no input, and nothing unsent."""
        return not (self.jobs or self.inbox or self.emitter.dirty)

    def waiting(self) -> int:
        """Return the number of tuples that wait in the inbox."""
        return sum(len(batch) - batch.position for batch in list(self.inbox))

    def waiting_roots(self) -> set[int]:
        """Return the trees whose tuples wait here, unexecuted or unsent, except the trees of a hung call.

        This only reads, so it may be called during a run.
        """
        roots: set[int] = set()
        for batch in list(self.inbox)[1 if self.hung() else 0 :]:
            roots |= batch.waiting_roots(batch.position)
        for box in list(self.emitter.dirty):
            roots |= box.waiting_roots()
        return roots

    def holds_trees(self) -> bool:
        """Return whether `waiting_roots` could return anything.

        This is called before each sleep, so it stops at the first tree that it finds.
        """
        return any(any(islice(batch.roots, batch.position, None)) for batch in list(self.inbox)) or any(
            any(box.roots) for box in list(self.emitter.dirty)
        )


def own_dictionary(instance: Any) -> dict[str, Any]:
    """Replace the dictionary of a user's instance with a copy whose keys are not shared, and return the copy.

    An unpickled instance shares its dictionary's keys with other instances of its class, and then Python 3.11 and 3.12 do not
    specialise attribute accesses (measured, `self.counts[word] = self.counts.get(word, 0) + 1`: 170 instead of 120 ns).
    A dictionary with other references is not replaced.
    """
    attributes = vars(instance)
    if type(attributes) is dict and sys.getrefcount(attributes) <= REFERENCES:
        try:
            object.__setattr__(instance, "__dict__", {**attributes})
        except (AttributeError, TypeError):  # a class that defines its own __dict__
            return attributes
    return vars(instance)  # type: ignore[no-any-return] # typeshed gives vars() of an untyped instance the type Any
