"""`reset_timeout` in a call that runs beside the worker's loop takes effect while the call is still running."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from squall.clock import ManualClock
from squall.values import TaskRow
from topology_api import Bolt, Context, Failure, Spout, TopologyBuilder, Tuple
from topology_api.options import defaults
from worker.loop.plan import WorkerPlan
from worker.loop.worker import Worker
from worker.tasks.runners import AsyncThread

CAP = 30.0
TIMEOUT = 10.0
#: Requests to the call, and its answers.
REQUESTS: SimpleQueue[str] = SimpleQueue()
ANSWERS: SimpleQueue[str] = SimpleQueue()
FAILED: list[Failure] = []


class Two(Spout):
    """Emits two tuples."""

    outputs = ("number",)
    replay = None

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < 2:
            self.emit((self.next,), message_id=self.next)
            self.next += 1

    def fail(self, message_id: object, failure: Failure) -> None:
        FAILED.append(failure)


class HoldsInAThread(Bolt):
    """Keeps the first tuple; the call for the second one resets its timeout when it is asked to."""

    threaded = True
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 0:
            self.first = tup
            return
        ANSWERS.put("begun")
        while (request := REQUESTS.get(timeout=CAP)) != "end":
            self.reset_timeout(self.first)
            ANSWERS.put(request)
        self.ack(self.first)
        self.ack(tup)


class HoldsInACoroutine(HoldsInAThread):
    threaded = False

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        if tup["number"] == 0:
            self.first = tup
            return
        ANSWERS.put("begun")
        while (request := await asyncio.to_thread(REQUESTS.get, timeout=CAP)) != "end":
            self.reset_timeout(self.first)
            ANSWERS.put(request)
        self.ack(self.first)
        self.ack(tup)


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    for left in (REQUESTS, ANSWERS):
        while not left.empty():
            left.get()
    FAILED.clear()
    yield ManualClock()


def worker_of(bolt: Bolt, clock: ManualClock, woken: threading.Event) -> Worker:
    builder = TopologyBuilder("resets")
    builder.set_spout("two", Two())
    builder.set_bolt("holds", bolt).shuffle_grouping("two")
    plan = WorkerPlan(
        worker="w1",
        topology=builder.build(),
        tasks=(TaskRow(1, "two", 0), TaskRow(2, "holds", 0)),
        worker_of={1: "w1", 2: "w1"},
        conf={**defaults(), "topology.message.timeout.secs": TIMEOUT},
        component_confs={},
        directory="",
    )
    worker = Worker(plan, clock, lambda name, frame: None, AsyncThread("resets"), woken.set)
    worker.start()
    worker.set_active(True)
    return worker


@pytest.mark.parametrize("bolt", [HoldsInAThread(), HoldsInACoroutine()], ids=["threaded", "async"])
def test_the_timeout_starts_again_during_the_call(bolt: Bolt, clock: ManualClock) -> None:
    woken = threading.Event()
    worker = worker_of(bolt, clock, woken)

    def step_until(done: Callable[[], bool]) -> None:
        end = time.monotonic() + CAP
        while not done():
            assert time.monotonic() < end, worker.errors
            if not worker.step():
                woken.wait(0.01)

    try:
        step_until(lambda: not ANSWERS.empty())
        assert ANSWERS.get() == "begun"
        for request in ("first", "second", "third"):
            clock.move_to(clock.now() + TIMEOUT * 0.8)
            woken.clear()
            REQUESTS.put(request)
            assert ANSWERS.get(timeout=CAP) == request
            assert woken.is_set(), "the loop is woken for it"
            for _ in range(10):
                worker.step()
        assert FAILED == []
        REQUESTS.put("end")
        step_until(lambda: worker.tasks[1].acked == 2)
        assert FAILED == []
    finally:
        REQUESTS.put("end")
        worker.stop()
