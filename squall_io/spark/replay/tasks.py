"""Runs one task of a component over all of its input, with the worker's own task object but without a worker.

A task: `prepare`, `execute` for every tuple, one `tick` if the bolt ticks, `end_of_input`, `cleanup`. The topology's groupings
route the task's emissions. A task that runs a second time must do the same as the first time. So time stands still
(`Context.now`): the interval of a batch bolt never elapses, and only the number of tuples ends a batch. For the same reason,
coroutines apply their effects in the order of their tuples. No more coroutines run at once than the bolt allows.

Trees serve one purpose: a root identifies the source row of a tuple, so that an error can name it.
Must not know: Spark, Arrow.
"""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import Final

from squall_io.spark.replay import records
from squall_io.spark.replay.plan import ReplayPlan
from squall_io.spark.replay.portions import decode_portion, is_portion
from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.replay.records import Record, Totals
from squall_io.spark.replay.sending import Sender, add_output
from topology_api import Failure, SquallError
from topology_api.tuples import Tuple
from worker.errors.reports import ErrorReport, describe
from worker.loop.build import TaskEnvironment, build_task
from worker.loop.timers import tick_interval
from worker.routing.outbox import Outbox
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask
from worker.tasks.runners import AsyncThread
from worker.tasks.task import TaskLimits

#: A run ends after this many emissions, to bound the tuples that wait to be sent.
_EMITS: Final = 8192
#: How many calls of a run come one after another without a look at the clock, which a replay has no use for. (A look for each
#: 128 calls, as in a worker, takes 40 ns a call.)
_CALLS: Final = 1 << 20
#: The worker's own thresholds of garbage collection: thousands of tuples are made and dropped, without cycles to collect.
_COLLECTIONS: Final = (10_000, 10, 10)


def run_tasks(plan: ReplayPlan, arriving: Iterable[Record]) -> Iterator[Record]:
    """Run the tasks of these records. The records are sorted, so the records of one task are next to each other."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTIONS)
    try:
        for target, own in groupby(arriving, key=attrgetter("target")):
            yield from run_task(plan, target, own)
    finally:
        gc.set_threshold(*before)


def run_task(plan: ReplayPlan, target: int, arriving: Iterable[Record]) -> Iterator[Record]:
    """Run one task from beginning to end."""
    with tempfile.TemporaryDirectory(prefix="squall-replay-") as directory:
        run = TaskRun(plan, target, directory)
        try:
            for record in arriving:
                run.receive(record)
                yield from run.sender.pop_records()
            run.end()
        finally:
            run.close()
        run.sender.finish()
        yield from run.sender.pop_records()


def environment_of(
    plan: ReplayPlan, directory: str, calls: AsyncThread, wake: Callable[[], None]
) -> TaskEnvironment:
    """Return the environment of a task in a replay. (In a stream, a worker provides a task's environment.)"""
    return TaskEnvironment(plan.for_worker(directory), lambda: plan.now, wake, calls)


class SameEdges(Random):
    """The random numbers from which the plain core takes edge ids: here each id is 1. Trees are never completed here, and 1 is
    cheap."""

    def randbytes(self, n: int) -> bytes:
        return (b"\x01" + bytes(7)) * (n // 8)


class TaskRun:
    """One running task."""

    def __init__(self, plan: ReplayPlan, target: int, directory: str) -> None:
        component, _ = plan.place_of[target]
        self.plan = plan
        self.target = target
        self.totals = Totals(component, target)
        self.sender = Sender(plan, target, plan.heir_of(component), self.totals)
        self.task: BoltTask | None = None
        #: Whether nothing more is executed, since the task failed or too many tuples failed.
        self.given_up = False
        self.arrived = threading.Event()
        self.calls = AsyncThread(f"replay-{component}")
        self.environment = environment_of(plan, directory, self.calls, self.arrived.set)
        #: The last reported failure, and the report of its error.
        self.last_failure: tuple[Failure, ErrorReport | None] | None = None
        #: How many of the task's reports were passed on.
        self.noted = 0

    # Input.

    def receive(self, record: Record) -> None:
        """Process one record: the beginning, a note to pass on, or tuples."""
        if record.stream == records.BEGIN:
            self.begin()
        elif record.stream in (records.ERRORS, records.TOTALS):
            self.sender.put(self.sender.heir, record.stream, bytes(records.arrived(record)))
        elif not self.given_up:
            self.execute(record)

    def begin(self) -> None:
        """Create the task and prepare it."""
        component, index = self.plan.place_of[self.target]
        try:
            task = build_task(self.environment, self.target, component, index)
        except SquallError as error:
            return self.fail_for_good(str(error))
        assert isinstance(task, BoltTask)
        task.limits = TaskLimits(task.limits.frame, task.limits.window, task.limits.high, _EMITS)
        task.on_failure = self.failed
        task.emitter.random = SameEdges()
        for key in self.plan.outputs.values():
            if key.component == component:
                add_output(task.emitter.outputs[key.stream])
        self.task = task
        task.start()
        if task.abandoned is not None:
            task.reports.clear()
            return self.fail_for_good(task.abandoned.render())
        self.collect(task)

    def execute(self, record: Record) -> None:
        """Give the task a batch and run it until the batch is done."""
        if (task := self.task) is None:
            raise ReplayFailed(
                f"tuples reached task {self.target} of {self.totals.component!r} before it had begun"
            )
        key = self.plan.streams[record.stream]
        try:
            blob = records.arrived(record)
            tuples = decode_portion(blob) if is_portion(blob) else records.decode(blob)
        except Exception as error:  # in the user's own classes
            return self.fail_for_good(f"tuples of {str(key)!r} cannot be unpickled here: {describe(error)}")
        partition = records.sent_by_partition(record.sender)
        tasks = self.plan.tasks_of[key.component]
        sender = record.sender if partition is None else tasks[partition % len(tasks)]
        box = Outbox(self.environment.plan.source(key.component, sender, key.stream), self.target)
        box.fill(tuples)
        task.inbox.append(box.dequeue(tuples.size))
        self.run(task)

    # Running.

    def run(self, task: BoltTask) -> None:
        """Run the task while there is something to do."""
        while not self.given_up:
            if isinstance(task, AsyncBoltTask):
                self.await_calls(task)
            if not task.wants_run():
                return
            task.pace.count = _CALLS
            task.run()
            self.collect(task)

    def await_calls(self, task: AsyncBoltTask) -> None:
        """Wait until all running calls have ended, and put them into the order of their tuples."""
        while len(task.over) < len(task.in_flight):
            self.arrived.wait()
            self.arrived.clear()
        place = {number: at for at, number in enumerate(task.in_flight)}
        ended = sorted(task.over, key=lambda call: place[id(call)])
        task.over.clear()
        task.over.extend(ended)

    def collect(self, task: BoltTask, everything: bool = False) -> None:
        """Collect the results of a run: errors, and tuples to send. Acks for trackers are dropped."""
        task.xors.by_tracker(1)
        task.done.clear()
        task.failures.clear()
        task.timeout_resets.clear()
        crashed = task.crashing()
        self.report_errors(task.reports[self.noted :])
        task.reports.clear()
        self.noted = 0
        task.emitter.dirty = self.sender.drain(task.emitter.dirty, everything)
        if crashed:
            self.fail_for_good(f"topology.on.error is crash: {self.totals.first[-1]}")
        elif self.sender.too_many:
            self.given_up = True

    def end(self) -> None:
        """Finish at the end of input: run a last batch, a tick and `end_of_input`, and send everything."""
        if (task := self.task) is None or self.given_up:
            return
        if task.request_flush():
            self.run(task)
        if tick_interval(task):
            task.tick_due = True
            self.run(task)
        task.end_due = True
        self.run(task)

    def close(self) -> None:
        """Clean up, and report the counts."""
        if (task := self.task) is not None:
            task.close()
            totals = self.totals
            totals.executed, totals.failed = task.executed, task.failed
            totals.emitted = task.emitter.emitted
            totals.unsettled = task.executed - task.acked - task.failed
            self.collect(task, everything=True)
        self.calls.stop()

    # Errors.

    def fail_for_good(self, text: str) -> None:
        """Record that the task cannot continue, so the job has no result."""
        self.given_up = True
        self.totals.fatal = self.totals.fatal or text

    def failed(self, tup: Tuple, failure: Failure) -> None:
        """Report a failed tuple. It failed because of the error that was reported just before it, or because the user's code
        called `fail` or raised `FailTuple`."""
        task = self.task
        assert task is not None
        if self.last_failure is None or self.last_failure[0] is not failure:
            fresh = task.reports[self.noted :]
            self.report_errors(fresh[:-1])
            self.noted = len(task.reports)
            self.last_failure = failure, fresh[-1] if fresh else None
        report = self.last_failure[1]
        roots = [tup._root, *(root for root, _ in tup._more)]
        if report is None:
            self.sender.fail(task.method, tup._source, tup.values, roots, failure.error)
        else:
            self.sender.fail(report.call, tup._source, tup.values, roots, report.text, trace_of(report))

    def report_errors(self, reports: list[ErrorReport]) -> None:
        """Report errors without a failed tuple: for example of `tick`, or of a call whose tuple was already acked or failed."""
        for report in reports:
            self.sender.fail(report.call, None, report.tuple_text, [], report.text, trace_of(report))


def trace_of(report: ErrorReport) -> str:
    """Return the places that an error comes from, as lines."""
    return "\n".join(report.frames) or report.place
