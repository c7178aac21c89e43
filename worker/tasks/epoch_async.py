"""A task of an async bolt in a topology with epochs: several calls at a time, each all or nothing.

What a call has recorded is carried out when it has returned, and dropped if it raised. At a marker no call is under way: those
that began before it end first, and tuples behind it wait. A rewind cancels the calls of the object that it replaces.
Must not know: links, trackers, coordinators, how the asyncio loop is driven.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from topology_api import Bolt
from topology_api.tuples import SETTLED, Tuple
from worker.epochs.parking import Parked
from worker.state.table import NONE
from worker.tasks import parked_verdicts
from worker.tasks.async_bolt import AsyncBoltTask, AsyncCall, Recorder
from worker.tasks.bolt import make_tuple
from worker.tasks.emitter import NOTHING
from worker.tasks.keeping import KeepingTask
from worker.tasks.parked_tuples import batch_of
from worker.tasks.runners import Calls, canceller
from worker.tasks.special_batches import AgainBatch, MarkerBatch


class EpochAsyncTask(AsyncBoltTask, KeepingTask):
    """One task of an asynchronous bolt in a topology with epochs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: What cancels the calls that run.
        self.running: dict[int, Callable[[], None]] = {}
        self.attach(("reset_timeout",), Bolt, KeepingRecorder(self))

    # Markers.

    @property
    def marker_is_next(self) -> bool:
        """Whether a marker is the next in the inbox: no call begins."""
        return bool(self.inbox) and isinstance(self.inbox[0], MarkerBatch)

    @property
    def marker_waits(self) -> bool:
        return not self.in_flight and super().marker_waits

    @property
    def may_clear(self) -> bool:
        """Whether tuples before a marker may be parked, and no call is under way that began before it."""
        return not self.in_flight and parked_verdicts.may_clear(self)

    # Calls.

    def may_start(self, now: float) -> bool:
        return not (self.marker_is_next or self.reached) and super().may_start(now)

    async def execute_call(self, call: AsyncCall) -> None:
        self.running[id(call)] = canceller()
        try:
            await super().execute_call(call)
        finally:
            self.running.pop(id(call), None)

    def conclude(self, call: AsyncCall) -> None:
        """Carry out the records of a call that returned, and ack its tuple; or park the tuple."""
        del self.in_flight[id(call)]
        self.leave_batch(call.batch)
        tup = call.tup
        self.executed += 1
        self.work.calls.add(max(0.0, call.seconds))
        self.work.seconds += max(0.0, call.seconds) / self.max_concurrency
        self.table.begin(NONE)
        self.awaited = isinstance(call.batch, AgainBatch) and call.batch.awaited
        if call.error is None:
            if self.auto_anchor:
                self.emitter.anchor = tup
            try:
                for name, args, kwargs in call.records:
                    getattr(self, name)(*args, **kwargs)
            except BaseException as error:
                call.error = error
            self.emitter.anchor = NOTHING
        if self.observer is not None:
            self.observer.executed(tup)
        if call.error is not None:
            self.undo()
            self.raised(tup, call.error)
        else:
            self.commit()
            if tup._root != SETTLED:
                if self.auto_ack:
                    self.ack_checked(tup)
                else:
                    self.hold(tup)
        self.awaited = False
        self.table.end()

    # Parked tuples.

    def parked_due(self) -> bool:
        return self.may_try and super().parked_due()

    @property
    def may_try(self) -> bool:
        """Whether a call may begin that tries a parked tuple again."""
        most = self.max_concurrency if self.probing is None else 1
        return len(self.in_flight) < most and not self.marker_is_next

    def try_parked(self) -> None:
        """Begin calls for the parked tuples that are due."""
        calls: Calls = []
        while self.parked_due() and (parked := parked_verdicts.next_try(self, self.now())) is not None:
            if (call := self.retry_of(parked)) is not None:
                calls.append(call)
        if calls:
            self.runner.submit(calls)

    def retry_of(self, parked: Parked) -> Any:
        """Return the call that tries a parked tuple again; None: the tuple was given up instead."""
        batch = batch_of(self, parked)
        tup = make_tuple(batch, 0)
        self.tries[id(tup)] = parked
        if self.mark is not None and self.mark.refuses(self, tup):
            return None
        call = AsyncCall(tup, self.now(), batch)
        batch.position = 1
        self.under_way[id(batch)] = 1
        self.in_flight[id(call)] = call
        if self.observer is not None:
            self.observer.executing(call.tup)
        return lambda: self.execute_call(call)

    # Running.

    def wants_run(self) -> bool:
        if (self.marker_waits and not self.reached) or self.may_clear:
            return True
        return self.overdue() or super().wants_run()

    def next_deadline(self) -> float | None:
        return super().next_deadline() if self.may_try else self.next_look()

    def run(self) -> None:
        self.emitter.open_for(threading.get_ident())
        if self.notices:
            self.heed()
        self.look_at_held()
        if self.may_clear:
            parked_verdicts.clear_way(self)
        if not self.take_marker():
            self.try_parked()
            super().run()
            self.forget_rest()

    def idle(self) -> bool:
        return super().idle() and KeepingTask.idle(self)

    def close(self) -> None:
        for cancel in list(self.running.values()):
            cancel()
        super().close()


class KeepingRecorder(Recorder):
    """A recorder whose task may hold tuples."""

    task: EpochAsyncTask

    def reset_timeout(self, tup: Tuple) -> None:
        super().reset_timeout(tup)
        self.task.renew(tup)
