"""A task of a `BatchBolt`: gathers tuples and executes them as a batch.

A batch is executed when it is full, when its interval has passed, when the worker requests a flush while the input is empty,
and at the end of the input. The tuples of a batch are acked together. If `execute_batch` raises they fail together, or, with
`topology.on.outage: wait`, are executed again in halves, apart from other tuples, until a single tuple fails: only that tuple
fails. When calls have failed for `DOWN_SECS` and none has succeeded, the task pauses as if it were down.
Must not know: links, trackers, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

from squall.transport.frames import COUNTS, OPEN
from topology_api import FailTuple, Failure
from topology_api.tuples import SETTLED, Tuple
from topology_api.wording import is_error
from worker.errors.reports import failure_text
from worker.tasks import failing
from worker.tasks.bolt import BoltTask, BoundedInputs, make_tuples, trees_of
from worker.tasks.emitter import NOTHING, BoltEmitter, short
from worker.tasks.task import RUN_SECONDS, TaskSetup
from worker.tracking.outages import DOWN_SECS, DOWN_TUPLES


class BatchBoltTask(BoltTask):
    """One task of a batch bolt."""

    method = "execute_batch"
    timed_by_run = False

    def __init__(self, setup: TaskSetup, emitter: BoltEmitter, inputs: BoundedInputs, *more: Any) -> None:
        """`more`: what further base classes of a subclass get."""
        super().__init__(setup, emitter, inputs, *more)
        self.execute_many: Callable[[list[Tuple]], None] = self.instance.execute_batch
        self.gathered: list[Tuple] = []
        #: The batch that execute_batch is executing.
        self.being_executed: list[Tuple] = []
        #: Whether any tuple so far was in a tree.
        self.tracked = False
        #: The time by which the gathered tuples have to be executed.
        self.deadline: float | None = None
        self.flush_requested = False
        #: Parts of batches that failed.
        self.parts: deque[list[Tuple]] = deque()
        #: How many calls have failed since the last success.
        self.failed_calls = 0
        #: How many of them executed parts of the present batch, or all of it.
        self.failed_parts = 0
        self.batch_size = int(self.instance.batch_size)
        self.batch_interval = float(self.instance.batch_interval)

    def wants_run(self) -> bool:
        if super().wants_run() or self.overdue():
            return True
        waits = bool(self.parts) or (
            bool(self.gathered) and (self.flush_requested or self.probing is not None)
        )
        return waits and self.may_execute(self.now())

    def overdue(self) -> bool:
        """Return whether the interval of the gathered tuples has passed, and they may be executed."""
        deadline = self.deadline  # read once: the task's own thread may clear it at any moment
        return deadline is not None and self.probing is None and self.now() >= deadline

    def next_deadline(self) -> float | None:
        """Return the time at which the gathered tuples have to be executed."""
        return self.deadline if self.probing is None else None

    def run(self) -> None:
        if self.yielded:
            super().run()
            return
        emitter = self.emitter
        self.open_here()
        enough = emitter.emitted + self.limits.emits
        if self.probing is not None and self.gathered:
            self.parts.append(self.gathered)
            self.gathered, self.deadline, self.flush_requested = [], None, False
        self.execute_parts(enough)
        if self.overdue():
            self.execute_gathered()
        if self.parts:  # input waits, so that its senders are slowed down
            self.tick_if_due(False)
        elif emitter.emitted < enough and not self.crashing():
            super().run()
        if (
            self.gathered
            and self.probing is None
            and not self.inbox
            and self.flush_requested
            and emitter.emitted < enough
        ):
            self.execute_gathered()

    def execute_parts(self, enough: float) -> None:
        """Execute parts of failed batches, for a bounded time; while the task is down, a single tuple as a probe."""
        until = self.now() + RUN_SECONDS
        while self.parts and self.emitter.emitted < enough and not self.crashing():
            now = self.now()
            if now >= until or not self.may_execute(now):
                return
            part = self.parts.popleft()
            if self.probing is not None and len(part) > 1:
                self.parts.appendleft(part[1:])
                part = part[:1]
            self.execute_batch(part)

    def take_input(self, most_emits: int) -> None:
        batch = self.inbox[0]
        if batch.ended:
            self.inputs.ended(batch.source.task)
        else:
            room = 1 if self.probing is not None else self.batch_size - len(self.gathered)
            stop = min(len(batch.rows), batch.position + room)
            if not self.gathered and stop > batch.position:
                self.deadline = self.now() + self.batch_interval
            self.tracked = self.tracked or any(batch.roots)
            self.gathered += make_tuples(batch, batch.position, stop)
            batch.position = stop
        if batch.ended or batch.position >= len(batch.rows):
            self.inbox.popleft()
            self.done.append(batch)
        if len(self.gathered) >= self.batch_size or (self.gathered and self.probing is not None):
            self.execute_gathered()

    def execute_gathered(self) -> None:
        """Execute the gathered tuples."""
        # The tuples are always in one of the two lists: the loop may call `waiting_roots` at any moment.
        tups = self.being_executed = self.gathered
        self.failed_parts = 0
        self.gathered, self.deadline, self.flush_requested = [], None, False
        mark = self.mark
        if tups and mark is not None:
            tups = self.being_executed = mark.apart(self, tups)
        if tups:
            self.execute_batch(tups)

    def execute_batch(self, tups: list[Tuple]) -> None:
        """Call the user's `execute_batch` with these tuples; ack them, fail them, or keep them in halves."""
        self.being_executed = tups
        self.emitter.anchor = NOTHING
        observer = self.observer
        failure = None
        if observer is not None:
            for tup in tups:
                observer.executing(tup)
        began = self.now()
        mark = self.mark
        if mark is not None:
            mark.enter(tups)
        try:
            self.execute_many(list(tups))  # a copy, which the user may change
        except BaseException as error:
            if not is_error(error, FailTuple):
                batch = f"a batch of {len(tups)} tuples, the first {short(tups[0], 150)}"
                self.report(self.method, error, batch, tups)
            kind = COUNTS if is_error(error, FailTuple) else OPEN
            failure = Failure("failed", self.spec.id, self.id, failure_text(error), kind)
        if mark is not None:
            mark.leave()
        self.work.took(1, self.now() - began)
        if failure is None and any(tup._root != SETTLED for tup in tups):
            self.failed_calls = self.failed_parts = 0
            if not self.failed_for and self.probing is None:
                self.claims.clear()
        failed = (
            [] if failure is None else [tup for tup in tups if tup._root != SETTLED]
        )  # the user settled the others
        halves = (
            self.waits_for_stores and failure is not None and failure.attempts == OPEN and len(failed) > 1
        )
        if halves:
            middle = (len(failed) + 1) // 2
            self.parts += [failed[:middle], failed[middle:]]
        self.being_executed = []
        self.executed += len(tups)
        if observer is not None:
            for tup in tups:
                observer.executed(tup)
        if failure is None:
            if self.auto_ack:
                self.ack_all(tups)
            return
        if not halves:
            for tup in failed:
                self.give_up(tup, failure)
        if failure.attempts == OPEN and self.waits_for_stores:
            self.count_failed_call(failure.error)

    def count_failed_call(self, error: str | None) -> None:
        """Count a failed call; pause if none has succeeded for long."""
        now = self.now()
        failing.begin(self, now)
        self.last_error = error
        self.failed_calls += 1
        self.failed_parts += 1
        # Parts are executed in turn, and nothing has succeeded meanwhile: both halves of a part failed, or one is left.
        at_least = (self.failed_parts + 1) // 2
        self.claims[failing.OWN] = max(at_least, self.claims.get(failing.OWN, 0))
        if self.failed_calls >= DOWN_TUPLES and now - self.failing_since >= DOWN_SECS:
            failing.pause(self)
        failing.judge(self)

    def ack_all(self, tups: list[Tuple]) -> None:
        """Ack the tuples that the user neither acked nor failed. A call for each tuple would keep the thread busy and delay the
        loop."""
        if self.failed_for or self.probing is not None:
            processed = next((tup for tup in tups if tup._root != SETTLED), None)
            if processed is not None:  # the user has not failed all tuples
                self.succeeded(processed._root)
        if self.observer is not None:
            for tup in tups:
                if tup._root != SETTLED:
                    self.ack(tup)
            return
        roots, xors = self.xors.roots, self.xors.xors
        for tup in tups:
            root = tup._root
            if root == SETTLED:
                continue
            self.acked += 1
            if tup._more:
                self.xors.add_tuple(tup)
            elif root > 0:
                roots.append(root)
                xors.append(tup._xor)
            tup._root = SETTLED

    def finish_input(self) -> None:
        if self.gathered:
            self.execute_gathered()  # end_of_input comes in the next run: the outboxes are flushed after each user call
        else:
            super().finish_input()

    def idle(self) -> bool:
        return not self.parts

    def buffered(self) -> int:
        return len(self.gathered) + sum(map(len, list(self.parts)))

    def request_flush(self) -> bool:
        if not self.gathered or self.inbox or self.flush_requested:
            return False
        self.flush_requested = True
        return True

    def waiting_roots(self) -> set[int]:
        roots = super().waiting_roots()
        kept = chain.from_iterable(list(self.parts))
        for tup in [*self.gathered, *kept, *([] if self.hung() else self.being_executed)]:
            roots.update(trees_of(tup))
        return roots

    def holds_trees(self) -> bool:
        held = self.gathered or self.being_executed or self.parts
        return (self.tracked and bool(held)) or super().holds_trees()
