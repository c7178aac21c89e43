"""A task of a `BatchBolt`: gathers tuples and executes them as a batch.

A batch is executed when it is full, when its interval has passed, when the worker requests a flush while the input is empty,
and at the end of the input. The tuples of a batch are acked together, and fail together if `execute_batch` raises.
Must not know: links, trackers, threads.
"""

from __future__ import annotations

import threading

from topology_api import FailTuple, Failure
from topology_api.tuples import SETTLED, Tuple
from worker.errors.reports import failure_text
from worker.tasks.bolt import BoltTask, BoundedInputs, make_tuples, trees_of
from worker.tasks.emitter import NOTHING, BoltEmitter, short
from worker.tasks.task import TaskSetup


class BatchBoltTask(BoltTask):
    """One task of a batch bolt."""

    method = "execute_batch"

    def __init__(self, setup: TaskSetup, emitter: BoltEmitter, inputs: BoundedInputs) -> None:
        super().__init__(setup, emitter, inputs)
        self.gathered: list[Tuple] = []
        #: The batch that execute_batch is executing.
        self.being_executed: list[Tuple] = []
        #: Whether any tuple so far was in a tree.
        self.tracked = False
        #: The time by which the gathered tuples have to be executed.
        self.deadline: float | None = None
        self.flush_requested = False
        self.batch_size = int(self.instance.batch_size)
        self.batch_interval = float(self.instance.batch_interval)

    def wants_run(self) -> bool:
        return super().wants_run() or self.overdue() or (self.flush_requested and bool(self.gathered))

    def overdue(self) -> bool:
        """Return whether the interval of the gathered tuples has passed."""
        deadline = self.deadline  # read once: the task's own thread may clear it at any moment
        return deadline is not None and self.now() >= deadline

    def run(self) -> None:
        emitter = self.emitter
        emitter.open_for(threading.get_ident())
        enough = emitter.emitted + self.limits.emits
        if self.overdue():
            self.execute_gathered()
        if emitter.emitted < enough and not self.crashing():
            super().run()
        if self.gathered and not self.inbox and self.flush_requested and emitter.emitted < enough:
            self.execute_gathered()

    def take_input(self, most_emits: int) -> None:
        batch = self.inbox[0]
        if batch.ended:
            self.inputs.ended(batch.source.task)
        else:
            room = self.batch_size - len(self.gathered)
            stop = min(len(batch.rows), batch.position + room)
            if not self.gathered and stop > batch.position:
                self.deadline = self.now() + self.batch_interval
            self.tracked = self.tracked or any(batch.roots)
            self.gathered += make_tuples(batch, batch.position, stop)
            batch.position = stop
        if batch.ended or batch.position >= len(batch.rows):
            self.inbox.popleft()
            self.done.append(batch)
        if len(self.gathered) >= self.batch_size:
            self.execute_gathered()

    def execute_gathered(self) -> None:
        """Call `execute_batch` with the gathered tuples; ack or fail them."""
        # The tuples are always in one of the two lists: the loop may call `waiting_roots` at any moment.
        tups = self.being_executed = self.gathered
        self.gathered, self.deadline, self.flush_requested = [], None, False
        if not tups:
            return
        self.emitter.anchor = NOTHING
        observer = self.observer
        failure = None
        if observer is not None:
            for tup in tups:
                observer.executing(tup)
        try:
            self.instance.execute_batch(list(tups))  # a copy, which the user may change
        except BaseException as error:
            if not isinstance(error, FailTuple):
                batch = f"a batch of {len(tups)} tuples, the first {short(tups[0], 150)}"
                self.report(self.method, error, batch)
            failure = Failure("failed", self.spec.id, self.id, failure_text(error), 0)
        self.being_executed = []
        self.executed += len(tups)
        if observer is not None:
            for tup in tups:
                observer.executed(tup)
        if failure is not None:
            for tup in tups:
                if tup._root != SETTLED:  # otherwise the user acked or failed the tuple
                    self.give_up(tup, failure)
        elif self.auto_ack:
            self.ack_all(tups)

    def ack_all(self, tups: list[Tuple]) -> None:
        """Ack the tuples that the user neither acked nor failed. A call for each tuple would keep the thread busy and delay the
        loop."""
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

    def buffered(self) -> int:
        return len(self.gathered)

    def request_flush(self) -> bool:
        if not self.gathered or self.inbox or self.flush_requested:
            return False
        self.flush_requested = True
        return True

    def waiting_roots(self) -> set[int]:
        roots = super().waiting_roots()
        for tup in [*self.gathered, *([] if self.hung() else self.being_executed)]:
            roots.update(trees_of(tup))
        return roots

    def holds_trees(self) -> bool:
        return (self.tracked and bool(self.gathered or self.being_executed)) or super().holds_trees()
