"""A task of a bolt whose `execute` is `async def`: up to `max_concurrency` calls at a time on the worker's asyncio loop.

The asyncio loop and the worker's loop exchange calls in batches: a run submits new calls and collects calls that have ended.
The emissions, acks and fails of a call are recorded, and carried out when the call ends; then its tuple is acked or failed.
Must not know: links, trackers, how the asyncio loop is driven.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from squall.transport.frames import Batch
from topology_api import Bolt, EmitError, FailTuple
from topology_api.tuples import SETTLED, Tuple
from worker.tasks.bolt import BoltTask, make_tuple, trees_of
from worker.tasks.emitter import NOTHING
from worker.tasks.marked_coroutine import marked
from worker.tasks.runners import AsyncDriver, Calls, end_returned_fork
from worker.tasks.task import RUN_SECONDS


class AsyncCall:
    """One call of `execute`: its tuple, its records so far, and its end."""

    __slots__ = ("batch", "coroutine", "ended", "error", "records", "seconds", "started", "tup")

    def __init__(self, tup: Tuple, started: float, batch: Batch) -> None:
        self.tup = tup
        self.batch = batch
        self.started = started
        self.records: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.error: BaseException | None = None
        self.ended = False
        self.seconds = 0.0
        #: The user's coroutine, while it runs.
        self.coroutine: Any = None


#: The call to which the running coroutine belongs.
CURRENT: contextvars.ContextVar[AsyncCall | None] = contextvars.ContextVar("squall_async_call", default=None)


class AsyncBoltTask(BoltTask):
    """One task of an asynchronous bolt."""

    def __init__(self, *args: Any, runner: AsyncDriver, wake: Callable[[], None]) -> None:
        super().__init__(*args)
        self.runner = runner
        self.wake = wake
        self.max_concurrency = int(self.instance.max_concurrency)
        self.in_flight: dict[int, AsyncCall] = {}
        self.over: deque[AsyncCall] = deque()
        #: For each batch (its `id`): how many of its calls have not ended.
        self.under_way: dict[int, int] = {}
        self.attach(("emit", "emit_direct", "ack", "fail", "reset_timeout"), Bolt, Recorder(self))

    def wants_run(self) -> bool:
        if self.notices:
            return True
        startable = bool(self.inbox) and (self.may_start(self.now()) or self.inbox[0].ended)
        ends = self.end_due and not self.end_called and self.idle()
        return bool(startable or self.over or self.tick_due or ends)

    def may_start(self, now: float) -> bool:
        """Return whether a call may be started now. While the task is down, one probe at a time is."""
        most = self.max_concurrency if self.probing is None else 1
        return len(self.in_flight) < most and self.may_execute(now)

    def run(self) -> None:
        """Conclude the calls that have ended, then start new ones."""
        emitter = self.emitter
        emitter.open_for(threading.get_ident())
        if self.notices:
            self.heed()
        enough = emitter.emitted + self.limits.emits
        self.tick_if_due(bool(self.inbox or self.over))
        while self.over and emitter.emitted < enough and not self.crashing():
            self.conclude(self.over.popleft())
        calls: Calls = []
        now = self.now()
        until = now + RUN_SECONDS
        while self.inbox and self.may_start(now) and now < until:
            self.take_call(calls)
            now = self.now()
        while self.inbox and self.inbox[0].ended:
            self.take_call(calls)
        if calls:
            self.runner.submit(calls)
        self.finish_if_due(enough)

    def take_call(self, calls: Calls) -> None:
        """Make a call for the oldest tuple in the inbox, or process an end mark."""
        batch = self.inbox[0]
        if batch.ended:
            self.inputs.ended(batch.source.task)
        elif batch.rows:
            tup = make_tuple(batch, batch.position)
            batch.position += 1
            if self.mark is None or not self.mark.refuses(self, tup):
                call = AsyncCall(tup, self.now(), batch)
                self.under_way[id(batch)] = self.under_way.get(id(batch), 0) + 1
                self.in_flight[id(call)] = call
                if self.observer is not None:
                    self.observer.executing(tup)
                calls.append(lambda: self.execute_call(call))
        if batch.ended or batch.position >= len(batch.rows):
            self.inbox.popleft()
            if id(batch) not in self.under_way:
                self.done.append(batch)

    async def execute_call(self, call: AsyncCall) -> None:
        """Run the user's coroutine to its end, on the asyncio loop."""
        CURRENT.set(call)
        try:
            call.coroutine = self.execute(call.tup)
            mark = self.mark  # read once: the loop may clear it at any moment
            if mark is None:
                await call.coroutine
            else:
                await marked(call.coroutine, mark, call.tup)
        except BaseException as error:  # a cancelled call has not executed its tuple either
            call.error = error
        finally:
            end_returned_fork(self.process)
            call.ended, call.coroutine = True, None
            call.seconds = self.now() - call.started
            self.over.append(call)
            self.wake()

    def conclude(self, call: AsyncCall) -> None:
        """Carry out the records of a call, and ack or fail its tuple."""
        del self.in_flight[id(call)]
        self.leave_batch(call.batch)
        tup = call.tup
        self.executed += 1
        self.work.calls.add(max(0.0, call.seconds))
        self.work.seconds += max(0.0, call.seconds) / self.max_concurrency
        if self.auto_anchor:
            self.emitter.anchor = tup
        try:
            for name, args, kwargs in call.records:
                getattr(self, name)(*args, **kwargs)
        except BaseException as error:
            call.error = call.error or error
        self.emitter.anchor = NOTHING
        if self.observer is not None:
            self.observer.executed(tup)
        if call.error is not None:
            self.raised(tup, call.error)
            return
        if self.auto_ack and tup._root != SETTLED:
            BoltTask.ack(self, tup)

    def leave_batch(self, batch: Batch) -> None:
        """Note that one of this batch's calls has ended. The batch is confirmed only when its last call ends: if this process
        dies, the sender knows which tuples were not executed."""
        if left := self.under_way.pop(id(batch)) - 1:
            self.under_way[id(batch)] = left
        elif batch.position >= len(batch.rows):
            self.done.append(batch)

    def awaits_probe(self) -> bool:
        return not self.in_flight and not self.blocked

    def idle(self) -> bool:
        return not self.in_flight

    def buffered(self) -> int:
        return len(self.in_flight)

    def waiting_roots(self) -> set[int]:
        roots = super().waiting_roots()
        oldest = self.now() - self.hang_secs
        for call in list(self.in_flight.values()):
            if call.started >= oldest:
                roots.update(trees_of(call.tup))
        return roots

    def holds_trees(self) -> bool:
        return super().holds_trees() or bool(self.waiting_roots())


class Recorder:
    """Records an asynchronous bolt's emit, ack and other actions inside a call; outside of calls, carries them out at once."""

    def __init__(self, task: AsyncBoltTask) -> None:
        self.task = task

    def record(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Add a record to the running call; if no call is running (in prepare, tick, end_of_input), carry the action out
        now."""
        call = CURRENT.get()
        if call is None:
            getattr(self.task, name)(*args, **kwargs)
        elif call.ended:
            raise EmitError(
                f"{self.task.emitter.where()}: {name}() was called after its execute() had already ended; "
                "await what you start"
            )
        else:
            call.records.append((name, args, kwargs))

    def emit(self, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """Record `Bolt.emit`; the values are checked at once."""
        emitter = self.task.emitter
        output = emitter.output(stream)
        row = emitter.checked_row(output, values)
        for route in output.picked:
            route.check(row)
        self.record("emit", row, anchors=anchors, stream=stream)

    def emit_direct(self, task: int, values: Any, *, anchors: Any = None, stream: str = "default") -> None:
        """Record `Bolt.emit_direct`; the values are checked at once."""
        emitter = self.task.emitter
        output, _ = emitter.direct_output(stream, task)
        row = emitter.checked_row(output, values)
        self.record("emit_direct", task, row, anchors=anchors, stream=stream)

    def ack(self, tup: Tuple) -> None:
        """Record `Bolt.ack`."""
        self.record("ack", tup)

    def fail(self, tup: Tuple, reason: str | FailTuple | None = None) -> None:
        """Record `Bolt.fail`."""
        self.record("fail", tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        """Implement `Bolt.reset_timeout`. It takes effect during the call, which may last longer than the timeout."""
        call = CURRENT.get()
        if call is None:
            self.task.reset_timeout(tup)
        elif call.ended:
            self.record("reset_timeout", tup)  # raises
        else:
            self.task.check_settled(tup, "reset the timeout of")
            if self.task.reset_now is not None:
                self.task.reset_now(trees_of(tup))
