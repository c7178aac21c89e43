"""A task of a bolt that executes tuple by tuple.

A run executes due ticks, then batches from the inbox in order, for a bounded time and a bounded number of emissions. Once every
source task has sent its end mark, a run calls `end_of_input`. For each row of a batch the task makes a `Tuple`, calls the
user's `execute`, and keeps the XOR if the tuple is acked. Two functions do this work: `run_basic` is the hot loop, for Storm's
basic bolts (the common case: the runtime anchors and acks); `run_general` is for everything else (rich bolts, tuples of several
trees, hooks). A run ends early when its task has emitted as many tuples as its outboxes may hold, so that no queue grows past
its limit plus the emissions of one user call.
Must not know: links, trackers, threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from squall.transport.frames import COUNTS, OPEN, Batch
from squall.transport.id_columns import IdColumn, view_of
from squall.transport.row_columns import RowColumns
from topology_api import Bolt, EmitError, FailTuple, Failure
from topology_api.tuples import SETTLED, Source, Tuple
from topology_api.wording import is_error
from worker.errors.reports import failure_text
from worker.tasks import failing
from worker.tasks.emitter import NOTHING, BoltEmitter, short
from worker.tasks.probing import Probing
from worker.tasks.task import RUN_SECONDS, Task, TaskSetup
from worker.tracking.ack_batch import AckBatch

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    leave_out = untrack = cast("Any", None)


class BoundedInputs:
    """The source tasks that have not sent their end mark: the bolt task still waits for them.

    A mark follows all tuples of its sender on the same link. There are no marks on the inner edges of a cycle, since no task
    could send the first mark: there the cycle's coordinator detects that the cycle is quiet (`worker.loop.cycles`).
    """

    __slots__ = ("open", "phase", "phases_wanted")

    def __init__(self, sources: Iterable[int], in_cycle: bool = False) -> None:
        self.open = set(sources)
        #: How many times the task's cycle was found quiet.
        self.phase = 0
        #: How many times the cycle has to be found quiet before `end_of_input`.
        self.phases_wanted = 1 if in_cycle else 0

    def ended(self, source: int) -> None:
        """Record the end mark of a source task."""
        self.open.discard(source)

    def renew(self, before: Iterable[int], sources: Iterable[int]) -> None:
        """Change the source tasks: wait for new tasks, and no longer for removed tasks."""
        now = set(sources)
        self.open = (self.open & now) | (now - set(before))

    @property
    def outside_ended(self) -> bool:
        """Whether all source tasks outside the task's cycle have ended."""
        return not self.open

    @property
    def all_ended(self) -> bool:
        """Whether `end_of_input` is due: the sources have ended, and the task's cycle was quiet once."""
        return not self.open and self.phase >= self.phases_wanted

    @property
    def may_pass_on(self) -> bool:
        """Whether the task may send its own end marks: its cycle was quiet again after `end_of_input`."""
        return not self.open and (self.phases_wanted == 0 or self.phase >= 2)


class BoltTask(Task):
    """One task of a bolt."""

    emitter: BoltEmitter
    #: The name of the user's method that gets input.
    method = "execute"
    #: Whether `run` measures the time of the calls.
    timed_by_run = True

    def __init__(self, setup: TaskSetup, emitter: BoltEmitter, inputs: BoundedInputs) -> None:
        super().__init__(setup)
        self.emitter = emitter
        self.inputs = inputs
        self.xors = AckBatch()
        #: Trees whose timeout the bolt reset.
        self.timeout_resets: list[int] = []
        #: Resets the timeout of trees at once, for calls that run beside the worker's loop; None: after the run.
        self.reset_now: Callable[[list[int]], None] | None = None
        self.auto_ack = bool(self.instance.auto_ack)
        self.auto_anchor = bool(self.instance.auto_anchor)
        self.execute: Callable[[Tuple], Any] = self.instance.execute
        self.tick_due = False
        #: Whether `tick` was called in the previous run.
        self.ticked = False
        #: Whether `end_of_input` is due.
        self.end_due = False
        #: Whether `end_of_input` has been called.
        self.end_called = False
        #: The spout tasks that wait for a success after a failure here -> root id of the last failure.
        self.failed_for: dict[int, int] = {}
        #: The probes while the task is down; None: it executes its input.
        self.probing: Probing | None = None
        #: What spout tasks know of the failures since the last success (spout task -> tuples), and whether that showed the task
        #: to be down.
        self.claims: dict[int, int] = {}
        self.is_down = False
        self.waits_for_stores = self.context.conf["topology.on.outage"] == "wait"
        #: The time of the first failure since the last success, and the error of the last one.
        self.failing_since = 0.0
        self.last_error: str | None = None
        #: Called with each tuple that fails, while the tuple still has its trees.
        self.on_failure: Callable[[Tuple, Failure], None] | None = None
        self.attach(("emit", "emit_direct", "ack", "fail", "reset_timeout"), Bolt, self)

    # Methods that the user's instance gets.

    def ack(self, tup: Tuple) -> None:
        """Implement `Bolt.ack`: the tuple is processed."""
        self.check_open(tup, "ack")
        self.ack_checked(tup)

    def ack_checked(self, tup: Tuple) -> None:
        """Ack a tuple that was neither acked nor failed."""
        if self.failed_for or self.probing is not None:
            self.succeeded(tup._root)
        self.acked += 1
        self.xors.add_tuple(tup)
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.acked(tup)

    def fail(self, tup: Tuple, reason: str | FailTuple | None = None) -> None:
        """Implement `Bolt.fail`: the trees of the tuple fail."""
        self.check_open(tup, "fail")
        text = None if reason is None else str(reason)
        kind = COUNTS if isinstance(reason, FailTuple) else OPEN
        self.give_up(tup, Failure("failed", self.spec.id, self.id, text, kind))

    def reset_timeout(self, tup: Tuple) -> None:
        """Implement `Bolt.reset_timeout`: the timeout of the tuple's trees starts again."""
        self.check_open(tup, "reset the timeout of")
        if self.reset_now is not None:
            self.reset_now(trees_of(tup))
        else:
            self.timeout_resets += trees_of(tup)

    def check_open(self, tup: Tuple, what: str) -> None:
        """Check that the tuple was neither acked nor failed, and that this thread may ack or fail it."""
        self.check_settled(tup, what)
        if self.emitter.owner != threading.get_ident():
            self.emitter.refuse()

    def check_settled(self, tup: Tuple, what: str) -> None:
        """Check that the tuple was neither acked nor failed."""
        if not isinstance(tup, Tuple):
            raise EmitError(
                f"{self.emitter.where()} cannot {what} {short(tup)}: it is not a tuple that execute() got"
            )
        if tup._root == SETTLED:
            raise EmitError(
                f"{self.emitter.where()} cannot {what} {short(tup)}: it was acked or failed already"
            )

    def give_up(self, tup: Tuple, failure: Failure) -> None:
        """Fail all trees of a tuple."""
        self.failed += 1
        shown = failure if failure.attempts == OPEN else replace(failure, attempts=0)
        if self.on_failure is not None:
            self.on_failure(tup, shown)
        if failure.attempts == OPEN:
            failing.failed(self, trees_of(tup), failure.error)
        self.failures += [(root, failure) for root in trees_of(tup)]
        if self.is_down and failure.attempts == OPEN:
            failing.tell_down(self, trees_of(tup))
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.failed(tup, shown)

    def raised(self, tup: Tuple, error: BaseException) -> bool:
        """Handle an error that the user's code raised while it executed `tup`; return whether the error ends the topology."""
        text = failure_text(error)
        if not is_error(error, FailTuple):
            self.report(self.method, error, short(tup, 200), (tup,))
        if tup._root != SETTLED:
            kind = COUNTS if is_error(error, FailTuple) else OPEN
            self.give_up(tup, Failure("failed", self.spec.id, self.id, text, kind))
        return self.crashing()

    def succeeded(self, root: int) -> None:
        """Report the first success after a failure to the spout tasks that know of the failure; end a pause.

        `root`: a tree of the tuple that succeeded.
        """
        failing.succeeded(self, root)

    def pause_for(self, root: int) -> None:
        """Pause, at the request of a spout task that considers this task down. `root`: a root id of that task.

        A task that has not failed since its last success, or not in this process, does not pause: it reports its next success.
        """
        if not failing.expect(self, root, self.now(), None):
            failing.go_down(self)

    def may_execute(self, now: float) -> bool:
        """Return whether input may be executed now: the task is not down, or a probe is due."""
        return self.probing is None or now >= self.probing.due

    # Running.

    def wants_run(self) -> bool:
        """Return whether a run has anything to do."""
        if self.yielded:
            return not self.blocked
        if self.notices or self.tick_due:
            return True
        if self.probing is not None and self.now() < self.probing.due:
            return False
        return bool(self.inbox or (self.end_due and not self.end_called))

    def run(self) -> None:
        """Run ticks, input and the end of input, as much as fits into one run; or let the call that yielded go on."""
        if self.yielded:
            self.calls.resumes = True
            return
        emitter = self.emitter
        self.open_here()
        enough = emitter.emitted + self.limits.emits
        self.tick_if_due(bool(self.inbox))
        now = self.now()
        until = now + RUN_SECONDS
        while (
            self.inbox
            and emitter.emitted < enough
            and now < until
            and not self.crashing()
            and self.may_execute(now)
        ):
            executed = self.executed
            self.take_input(enough - emitter.emitted)
            started, now = now, self.now()
            self.pace.took(self.executed - executed, now - started)
            if self.timed_by_run:
                self.work.took(self.executed - executed, now - started)
        self.finish_if_due(enough)

    def tick_if_due(self, input_waits: bool) -> None:
        """Call `tick` if it is due. While input waits, two consecutive runs do not both tick: a tick may use up a run's
        emissions.
        """
        self.ticked = self.tick_due and not (self.ticked and input_waits)
        if self.ticked:
            self.tick_due = False
            self.call("tick")

    def take_input(self, most_emits: int) -> None:
        """Execute a part of the oldest batch."""
        batch = self.inbox[0]
        if batch.ended:
            self.inputs.ended(batch.source.task)
        else:
            most = self.pace.count if self.probing is None else 1
            stop = min(len(batch.rows), batch.position + most)
            mark = self.mark  # read once: the loop may clear it at any moment
            if mark is None:
                self.executed += self.execute_rows(batch, stop, most_emits)
            elif stop > batch.position:
                self.executed += mark.execute_next(self, batch, most_emits)
        if batch.ended or batch.position >= len(batch.rows):
            self.inbox.popleft()
            self.done.append(batch)

    def execute_rows(self, batch: Batch, stop: int, most_emits: int) -> int:
        """Execute rows of a batch; return how many."""
        if not (self.auto_ack and self.auto_anchor) or self.observer is not None or batch.more:
            return run_general(self, batch, stop, most_emits)
        acked, failed = self.acked, self.failed
        done = run_basic(self, batch, stop, most_emits)
        self.acked = acked + done - (self.failed - failed)  # the hot loop acks without counting
        return done

    def open_here(self) -> None:
        """Allow this thread to emit, and do what the worker's loop wants done."""
        self.emitter.open_for(threading.get_ident())
        if self.notices:
            self.heed()

    def crashing(self) -> bool:
        """Return whether an error of this run ends the topology (`topology.on.error: crash`)."""
        return self.crash_on_error and bool(self.reports)

    def finish_if_due(self, enough: int) -> None:
        """Call `end_of_input` if it is due, all earlier input is done, and this run may still emit."""
        waits = self.inbox or self.emitter.emitted >= enough or not self.idle()
        if self.end_due and not self.end_called and not waits:
            self.finish_input()

    def finish_input(self) -> None:
        """Call `end_of_input`, once."""
        self.emitter.anchor = NOTHING
        self.end_called = True
        self.call("end_of_input")

    def awaits_probe(self) -> bool:
        """Return whether no call is running, so that a task that is down may be tried when its pause is over."""
        return not (self.busy or self.blocked or self.yielded)

    def idle(self) -> bool:
        """Return whether all tuples taken from the inbox have been executed."""
        return True

    def at_rest(self) -> bool:
        return super().at_rest() and not (self.buffered() or self.yielded)

    def buffered(self) -> int:
        """Return the number of tuples that were taken from the inbox but not executed yet."""
        return 0

    def request_flush(self) -> bool:
        """Make the next run execute the gathered tuples; return whether there are any."""
        return False


def trees_of(tup: Tuple) -> list[int]:
    """Return the trees that a tuple belongs to."""
    return [tup._root, *[root for root, _ in tup._more]] if tup._root > 0 else []


@cython.locals(tup=Tuple)
def make_tuple(batch: Batch, position: int) -> Tuple:
    """Return the tuple at one position of a batch."""
    tup = Tuple.__new__(Tuple)
    tup._values = batch.rows[position]
    tup._source = batch.source
    tup._root = batch.roots[position]
    tup._xor = batch.edges[position]
    tup._more = batch.more.get(position, ())
    if cython.compiled and leave_out(tup._values):
        untrack(tup)  # it may be kept for long, and the garbage collector would visit it in vain
    return tup


@cython.locals(
    batch=Batch,
    start=cython.Py_ssize_t,
    stop=cython.Py_ssize_t,
    source=Source,
    rows=RowColumns,
    roots=cython.longlong[::1],
    edges=cython.longlong[::1],
    at=cython.Py_ssize_t,
    tup=Tuple,
)
def make_tuples(batch: Batch, start: int, stop: int) -> list[Tuple]:
    """Return the tuples at these positions, as `make_tuple` does, but without a call for each."""
    source = batch.source
    rows, roots, edges = batch.rows, view_of(batch.roots), view_of(batch.edges)
    made = []
    for at in range(start, min(stop, len(rows))):
        tup = Tuple.__new__(Tuple)
        tup._values = rows.row(at) if cython.compiled else rows[at]
        tup._source = source
        tup._root = roots[at]
        tup._xor = edges[at]
        tup._more = ()
        if cython.compiled and leave_out(tup._values):
            untrack(tup)
        made.append(tup)
    for position, pairs in batch.more.items():
        if start <= position < stop:
            made[position - start]._more = pairs
    return made


@cython.locals(
    batch=Batch,
    stop=cython.Py_ssize_t,
    most_emits=cython.longlong,
    emitter=BoltEmitter,
    source=Source,
    start=cython.Py_ssize_t,
    rows=RowColumns,
    roots=cython.longlong[::1],
    edges=cython.longlong[::1],
    acked_roots=IdColumn,
    acked_xors=IdColumn,
    last=cython.longlong,
    xor=cython.longlong,
    root=cython.longlong,
    enough=cython.longlong,
    at=cython.Py_ssize_t,
    tup=Tuple,
)
def run_basic(task: BoltTask, batch: Batch, stop: int, most_emits: int) -> int:
    """Run the hot loop: emits are anchored to the tuple, which is acked when `execute` returns."""
    emitter = task.emitter
    execute = task.execute
    source = batch.source
    start = batch.position
    rows, roots, edges = batch.rows, view_of(batch.roots), view_of(batch.edges)
    # The columns are appended to directly, without AckBatch.add: this saves a call for each change of tree.
    acked_roots, acked_xors = task.xors.roots, task.xors.xors
    last = SETTLED if task.failed_for else 0
    xor = 0
    at = start - 1
    enough = emitter.emitted + most_emits
    for at in range(start, min(stop, len(rows))):
        tup = Tuple.__new__(Tuple)
        tup._values = rows.row(at) if cython.compiled else rows[at]
        tup._source = source
        tup._root = roots[at]
        tup._xor = edges[at]
        tup._more = ()
        emitter.anchor = tup
        try:
            execute(tup)
        except BaseException as error:
            if task.raised(tup, error):
                enough = 0
        root = tup._root  # changed if the tuple was acked, or failed, by the user or by an error
        if root == last:
            xor ^= tup._xor
        else:
            if last > 0:
                acked_roots.append(last)
                acked_xors.append(xor)
            elif last == SETTLED:  # the tuple before this one failed, and this one has succeeded
                task.succeeded(root)
            last = root
            xor = tup._xor
        tup._root = SETTLED
        if emitter.emitted >= enough:
            break
    if last > 0:
        acked_roots.append(last)
        acked_xors.append(xor)
    emitter.anchor = NOTHING
    batch.position = at + 1
    return at + 1 - start


def run_general(task: BoltTask, batch: Batch, stop: int, most_emits: int) -> int:
    """Run every other kind of bolt: with the bolt's own anchoring and acking, and observers around each execution."""
    emitter = task.emitter
    observer = task.observer
    enough = emitter.emitted + most_emits
    done = 0
    for position in range(batch.position, stop):
        tup = make_tuple(batch, position)
        if task.auto_anchor:
            emitter.anchor = tup
        if observer is not None:
            observer.executing(tup)
        error: BaseException | None = None
        try:
            task.execute(tup)
        except BaseException as raised:
            error = raised
        if observer is not None:
            observer.executed(tup)
        if error is not None:
            if task.raised(tup, error):
                enough = 0
            error = None  # break a reference cycle: the error's traceback refers to this frame
        emitter.anchor = NOTHING
        if task.auto_ack and tup._root != SETTLED:
            task.ack(tup)
        done += 1
        if emitter.emitted >= enough:
            break
    batch.position += done
    return done
