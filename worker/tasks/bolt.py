"""A task of a bolt that executes tuple by tuple.

Its run: ticks that are due, then batches from the inbox in order, for a bounded time and a bounded number of emissions;
`end_of_input` once every source task has sent its end mark.
Must not know: links, trackers, threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from topology_api import Bolt, Context, EmitError, FailTuple, Failure
from topology_api.topology import ComponentSpec
from topology_api.tuples import SETTLED, Tuple
from worker.errors.reports import failure_text
from worker.tasks.bounded_inputs import BoundedInputs
from worker.tasks.emitter import NOTHING, BoltEmitter, short
from worker.tasks.executor import is_basic, run_batch
from worker.tasks.task import RUN_SECONDS, Task, TaskLimits, tuple_text
from worker.tracking.ack_batch import AckBatch


class BoltTask(Task):
    """One task of a bolt."""

    emitter: BoltEmitter
    #: The name of the user's method that gets input.
    method = "execute"

    def __init__(
        self,
        spec: ComponentSpec,
        task: int,
        instance: Any,
        context: Context,
        limits: TaskLimits,
        now: Callable[[], float],
        emitter: BoltEmitter,
        inputs: BoundedInputs,
    ) -> None:
        super().__init__(spec, task, instance, context, limits, now)
        self.emitter = emitter
        self.inputs = inputs
        self.xors = AckBatch()
        #: Trees whose timeout the bolt reset.
        self.timeout_resets: list[int] = []
        self.auto_ack = bool(instance.auto_ack)
        self.auto_anchor = bool(instance.auto_anchor)
        self.execute: Callable[[Tuple], Any] = instance.execute
        self.tick_due = False
        #: `tick` was called in the run before.
        self.ticked = False
        #: `end_of_input` is due; it has been called.
        self.end_due = False
        self.end_called = False
        #: Called with each tuple that fails, while it still has its trees.
        self.on_failure: Callable[[Tuple, Failure], None] | None = None
        self.attach(("emit", "emit_direct", "ack", "fail", "reset_timeout"), Bolt, self)

    # The methods of the user's instance.

    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """Implement `Bolt.emit` where the user's class overrides it."""
        self.emitter.emit(values, anchors=anchors, stream=stream)

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """Implement `Bolt.emit_direct` where the user's class overrides it."""
        self.emitter.emit_direct(task, values, anchors=anchors, stream=stream)

    def ack(self, tup: Tuple) -> None:
        """Implement `Bolt.ack`: the tuple is processed."""
        self.check_open(tup, "ack")
        self.acked += 1
        self.xors.add_tuple(tup)
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.acked(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        """Implement `Bolt.fail`: the trees of the tuple fail."""
        self.check_open(tup, "fail")
        text = None if reason is None else str(reason)
        self.give_up(tup, Failure("failed", self.spec.id, self.id, text, 0))

    def reset_timeout(self, tup: Tuple) -> None:
        """Implement `Bolt.reset_timeout`: the trees of the tuple get the whole timeout again."""
        self.check_open(tup, "reset the timeout of")
        if tup._root > 0:
            self.timeout_resets.append(tup._root)
            self.timeout_resets += [root for root, _ in tup._more]

    def check_open(self, tup: Tuple, what: str) -> None:
        """Check that the tuple was neither acked nor failed, and that this thread may do so."""
        if not isinstance(tup, Tuple):
            raise EmitError(
                f"{self.emitter.where()} cannot {what} {short(tup)}: it is no tuple that execute() got"
            )
        if tup._root == SETTLED:
            raise EmitError(
                f"{self.emitter.where()} cannot {what} {short(tup)}: it was acked or failed already"
            )
        if self.emitter.owner != threading.get_ident():
            self.emitter.refuse()

    def give_up(self, tup: Tuple, failure: Failure) -> None:
        """Fail all trees of a tuple."""
        self.failed += 1
        if self.on_failure is not None:
            self.on_failure(tup, failure)
        if tup._root > 0:
            self.failures.append((tup._root, failure))
            self.failures += [(root, failure) for root, _ in tup._more]
        tup._root = SETTLED
        if self.observer is not None:
            self.observer.failed(tup, failure)

    def raised(self, tup: Tuple, error: BaseException) -> bool:
        """Handle an error that the user's code raised while it executed `tup`; return whether it ends the topology."""
        text = failure_text(error)
        if not isinstance(error, FailTuple):
            self.report(self.method, error, tuple_text(tup))
        if tup._root != SETTLED:
            self.give_up(tup, Failure("failed", self.spec.id, self.id, text, 0))
        return self.crashing()

    # Running.

    def wants_run(self) -> bool:
        """Return whether there is something to do."""
        return bool(self.inbox or self.tick_due or (self.end_due and not self.end_called))

    def run(self) -> None:
        """Run ticks, input and the end of input; as much as fits into one run."""
        emitter = self.emitter
        emitter.open_for(threading.get_ident())
        enough = emitter.emitted + self.limits.emits
        self.tick_if_due(bool(self.inbox))
        now = self.now()
        until = now + RUN_SECONDS
        while self.inbox and emitter.emitted < enough and now < until and not self.crashing():
            executed = self.executed
            self.take_input(enough - emitter.emitted)
            started, now = now, self.now()
            self.pace.took(self.executed - executed, now - started)
        self.finish_if_due(enough)

    def tick_if_due(self, input_waits: bool) -> None:
        """Call `tick` if it is due; not in consecutive runs while input waits, since a tick may use up a run's emissions."""
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
            stop = min(len(batch.rows), batch.position + self.pace.count)
            acked, failed = self.acked, self.failed
            done = run_batch(self, batch, stop, most_emits)
            self.executed += done
            if is_basic(self, batch):  # the hot loop acks without counting
                self.acked = acked + done - (self.failed - failed)
        if batch.ended or batch.position >= len(batch.rows):
            self.inbox.popleft()
            self.done.append(batch)

    def crashing(self) -> bool:
        """Return whether an error of this run ends the topology (`topology.on.error: crash`)."""
        return self.crash_on_error and bool(self.reports)

    def finish_if_due(self, enough: int) -> None:
        """Call `end_of_input` when it is due, everything before it is done, and this run may still emit."""
        waits = self.inbox or self.emitter.emitted >= enough or not self.idle()
        if self.end_due and not self.end_called and not waits:
            self.finish_input()

    def finish_input(self) -> None:
        """Call `end_of_input`, once."""
        self.emitter.anchor = NOTHING
        self.end_called = True
        self.call("end_of_input")

    def idle(self) -> bool:
        """Return whether everything taken from the inbox has been executed."""
        return True

    def at_rest(self) -> bool:
        return super().at_rest() and not self.buffered()

    def buffered(self) -> int:
        """Return the number of tuples taken from the inbox and not executed yet."""
        return 0

    def request_flush(self) -> bool:
        """Have what is gathered executed in the next run; return whether there was anything."""
        return False
