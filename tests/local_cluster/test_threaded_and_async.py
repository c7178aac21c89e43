"""Code that blocks: threaded tasks and coroutines run beside the worker's loop, and block no other task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import (
    JOURNAL,
    Journal,
    Numbers,
    Pass,
    advance_until,
    chain,
    message_ids,
    run_to_the_end,
)
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    EmitError,
    FailTuple,
    Failure,
    Fields,
    Replay,
    Spout,
    Stream,
    TopologyBuilder,
    Tuple,
)

#: Enough for the slowest machine; a passing test never waits for it.
CAP = 60.0


class Gate:
    """Calls wait inside until it is opened; it knows how many are inside, and the greatest number so far."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opened = threading.Event()
        self.inside = 0
        self.most = 0

    def enter(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1

    def reset(self) -> None:
        self.opened.clear()
        self.inside = self.most = 0


GATE = Gate()
FEED: SimpleQueue[int] = SimpleQueue()


@pytest.fixture(autouse=True)
def journal() -> Iterator[Journal]:
    JOURNAL.clear()
    GATE.reset()
    while not FEED.empty():
        FEED.get_nowait()
    yield JOURNAL
    GATE.opened.set()  # no call stays inside


class SlowAndFast(Spout):
    """Emits `slow` tuples for the blocking calls, and others until all of those are acked."""

    outputs = {"slow": Fields("number"), "fast": Fields("number")}
    replay = None

    def __init__(self, slow: int) -> None:
        self.slow = slow

    def open(self, context: Context) -> None:
        self.next = 0
        self.left = self.slow

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        self.next += 1
        if self.next <= self.slow:
            return self.emit((self.next,), message_id=self.next, stream="slow")
        return self.emit((self.next,), message_id="fast", stream="fast")

    def ack(self, message_id: object) -> None:
        self.left -= message_id != "fast"
        JOURNAL.note("ack", message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        JOURNAL.note("fail", message_id, failure)
        self.finish()


class BlocksInThread(Bolt):
    """Each call blocks until the gate is opened."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        GATE.enter()
        assert GATE.opened.wait(CAP)
        GATE.leave()


class BlocksInCoroutine(Bolt):
    """Each coroutine waits until the gate is opened."""

    def __init__(self, max_concurrency: int = 100) -> None:
        self.max_concurrency = max_concurrency

    async def execute(self, tup: Tuple) -> None:
        GATE.enter()
        while not GATE.opened.is_set():
            await asyncio.sleep(0.001)
        GATE.leave()


class Opens(Bolt):
    """Opens the gate after it has executed ten tuples while `calls` calls were inside."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def prepare(self, context: Context) -> None:
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        if GATE.inside == self.calls:
            self.seen += 1
            if self.seen == 10:
                JOURNAL.note("opened", GATE.inside)
                GATE.opened.set()


@pytest.mark.parametrize(
    ("bolt", "tasks", "calls"),
    [(BlocksInThread(), 20, 20), (BlocksInCoroutine(), 1, 100), (BlocksInCoroutine(25), 4, 100)],
    ids=["20 threads", "100 coroutines of a task", "25 coroutines of each of 4 tasks"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_blocking_calls_run_concurrently_while_other_bolts_run_on(
    bolt: Bolt, tasks: int, calls: int, workers: int
) -> None:
    builder = TopologyBuilder("blocking", {"topology.workers": workers})
    spout = builder.set_spout("spout", SlowAndFast(calls))
    builder.set_bolt("blocks", bolt, parallelism=tasks).shuffle_grouping(spout, stream="slow")
    builder.set_bolt("opens", Opens(calls)).shuffle_grouping(spout, stream="fast")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("blocking", timeout=CAP)
    assert JOURNAL.of("opened") == [(calls,)]
    assert GATE.most == calls
    assert JOURNAL.of("fail") == []


@pytest.mark.parametrize("limit", [1, 7])
def test_no_more_coroutines_than_max_concurrency_run_at_once(limit: int) -> None:
    builder = TopologyBuilder("limited")
    spout = builder.set_spout("spout", SlowAndFast(30))
    builder.set_bolt("blocks", BlocksInCoroutine(limit)).shuffle_grouping(spout, stream="slow")
    builder.set_bolt("opens", Opens(limit)).shuffle_grouping(spout, stream="fast")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("limited", timeout=CAP)
        assert cluster.status("limited").components["blocks"].executed == 30
    assert GATE.most == limit


# Threads.


class OneThread(Bolt):
    """Records in which thread each of its calls runs."""

    threaded = True
    outputs = Fields("number")
    tick_interval = 0.005

    def prepare(self, context: Context) -> None:
        self.index = context.index
        self.note("prepare")

    def note(self, call: str) -> None:
        JOURNAL.note("thread", self.index, threading.get_ident(), call)

    def execute(self, tup: Tuple) -> None:
        self.note("execute")
        self.emit((tup["number"],))

    def tick(self) -> None:
        self.note("tick")
        JOURNAL.note("ticked")

    def end_of_input(self) -> None:
        self.note("end_of_input")

    def cleanup(self) -> None:
        self.note("cleanup")


def test_all_calls_of_a_threaded_task_run_in_one_thread_of_its_own() -> None:
    builder = TopologyBuilder("threads")
    builder.set_spout("numbers", FromQueue())
    builder.set_bolt("one", OneThread(), parallelism=3).shuffle_grouping("numbers")
    builder.set_bolt("pass", Pass()).shuffle_grouping("one")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        for number in range(30):
            FEED.put(number)
        JOURNAL.wait_for("ticked", 3)
        FEED.put(-1)
        cluster.wait("threads", timeout=CAP)
    threads: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    calls: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for index, thread, call in JOURNAL.of("thread"):
        threads[index].add(thread)
        calls[index].append(call)
    assert [len(idents) for idents in threads.values()] == [1, 1, 1]
    assert len(set.union(*threads.values())) == 3
    for made in calls.values():
        assert (made[0], made[-1]) == ("prepare", "cleanup")
        assert made.count("execute") == 10
        assert made.count("end_of_input") == 1
    assert sorted(number for _, number, _ in JOURNAL.of("execute")) == list(range(30))


class FromQueue(Spout):
    """A threaded spout that blocks on a queue; -1 ends it."""

    threaded = True
    outputs = Fields("number")
    replay: Replay | None = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def note(self, call: str) -> None:
        JOURNAL.note("spout thread", threading.get_ident(), call)

    def open(self, context: Context) -> None:
        self.note("open")

    def next_tuple(self) -> None:
        self.note("next_tuple")
        try:
            number = FEED.get(timeout=0.05)
        except Empty:
            return None
        if number < 0:
            return self.finish()
        return self.emit((number,), message_id=number)

    def ack(self, message_id: object) -> None:
        self.note("ack")
        JOURNAL.note("ack", message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        self.note("fail")
        JOURNAL.note("fail", message_id, failure)

    def activate(self) -> None:
        self.note("activate")
        JOURNAL.note("activate")

    def deactivate(self) -> None:
        self.note("deactivate")
        JOURNAL.note("deactivate")

    def close(self) -> None:
        self.note("close")


class RefusesOdd(Bolt):
    """Fails odd numbers."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] % 2:
            raise FailTuple("odd")


def test_all_calls_of_a_threaded_spout_run_in_one_thread_of_its_own() -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("spout", FromQueue(), RefusesOdd()))
        for number in range(10):
            FEED.put(number)
        JOURNAL.wait_for("ack", 5)
        JOURNAL.wait_for("fail", 5)
        cluster.deactivate("spout")
        JOURNAL.wait_for("deactivate")
        cluster.activate("spout")
        JOURNAL.wait_for("activate")
        FEED.put(-1)
        cluster.wait("spout", timeout=CAP)
    calls = [call for _, call in JOURNAL.of("spout thread")]
    assert len({thread for thread, _ in JOURNAL.of("spout thread")}) == 1
    assert (calls[0], calls[-1]) == ("open", "close")
    between = calls[calls.index("deactivate") : calls.index("activate")]
    assert "next_tuple" not in between
    assert message_ids(JOURNAL.of("ack")) == [0, 2, 4, 6, 8]
    assert message_ids(JOURNAL.of("fail")) == [1, 3, 5, 7, 9]


class ThreadedBatches(BatchBolt):
    """Writes batches in a thread of its own, slowly."""

    threaded = True
    batch_size = 10
    batch_interval = 1000.0

    def prepare(self, context: Context) -> None:
        JOURNAL.note("thread", threading.get_ident())

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        JOURNAL.note("thread", threading.get_ident())
        JOURNAL.note("batch", [tup["number"] for tup in tups])
        if any(tup["number"] == 13 for tup in tups):
            raise FailTuple("unlucky")


def test_a_threaded_batch_bolt_acks_and_fails_whole_batches_in_its_thread() -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("batches", Numbers(35), ThreadedBatches()))
        cluster.wait("batches", timeout=CAP)
    batches = [numbers for (numbers,) in JOURNAL.of("batch")]
    assert batches == [[*range(10)], [*range(10, 20)], [*range(20, 30)], [*range(30, 35)]]
    assert message_ids(JOURNAL.of("fail")) == list(range(10, 20))
    assert message_ids(JOURNAL.of("ack")) == [*range(10), *range(20, 35)]
    assert len(set(JOURNAL.of("thread"))) == 1


# Coroutines.


class Odd(Bolt):
    """Fails odd numbers after a while, emits the others: some before, some after waiting."""

    outputs = {"default": Fields("number"), "direct": Stream(Fields("number"), direct=True)}

    async def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        self.emit((number,))
        await asyncio.sleep(0.01 * (number % 3))
        if number % 2:
            raise ValueError(f"{number} is odd")
        self.emit((number,))


@pytest.mark.parametrize("simulated", [False, True])
def test_a_coroutine_emits_anchored_and_its_tuple_is_acked_when_it_ends(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("odd", Numbers(10), Odd(), Pass()))
        if simulated:
            run_to_the_end(cluster, "odd")
        cluster.wait("odd", timeout=CAP)
        status = cluster.status("odd")
    assert message_ids(JOURNAL.of("ack")) == [0, 2, 4, 6, 8]
    assert message_ids(JOURNAL.of("fail")) == [1, 3, 5, 7, 9]
    assert {failure.component for _, _, failure in JOURNAL.of("fail")} == {"bolt1"}
    assert all("is odd" in failure.error for _, _, failure in JOURNAL.of("fail"))
    executed = sorted(number for _, number, _ in JOURNAL.of("execute"))
    assert [number for number in executed if number % 2 == 0] == sorted([0, 2, 4, 6, 8] * 2)
    totals = status.components["bolt1"]
    assert (totals.executed, totals.acked, totals.failed, totals.errors) == (10, 5, 5, 5)


def test_the_ack_waits_for_emissions_of_a_coroutine() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(chain("order", Numbers(5), Sleeps(0.5), Sleeps(2.0)))
        run_to_the_end(cluster, "order")
    assert [time for _, time in JOURNAL.of("ack")] == pytest.approx([2.5] * 5, abs=0.01)


class Sleeps(Bolt):
    """Sleeps `seconds`, then emits."""

    outputs = Fields("number")

    def __init__(self, seconds: float, at_once: int = 100) -> None:
        self.seconds = seconds
        self.max_concurrency = at_once

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.seconds)
        self.emit((tup["number"],))


class EmitsLate(Bolt):
    """Starts a task that outlives its call, and emits from it."""

    outputs = Fields("number")

    async def execute(self, tup: Tuple) -> None:
        self.task = asyncio.create_task(self.later(tup))

    async def later(self, tup: Tuple) -> None:
        await asyncio.sleep(0.01)
        for name, args in (("emit", ((1,),)), ("ack", (tup,)), ("fail", (tup,))):
            try:
                getattr(self, name)(*args)
            except EmitError as error:
                JOURNAL.note("refused", name, str(error))


@pytest.mark.parametrize("simulated", [False, True])
def test_emitting_or_acking_after_the_end_of_a_coroutine_is_an_error(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("late", Numbers(1, finishes=False), EmitsLate(), Pass()))
        if simulated:
            advance_until(cluster, lambda: len(JOURNAL.of("refused")) == 3, 5.0)
        JOURNAL.wait_for("refused", 3)
        JOURNAL.wait_for("ack", 1)
    assert [name for name, _ in JOURNAL.of("refused")] == ["emit", "ack", "fail"]
    for name, text in JOURNAL.of("refused"):
        assert f"{name}() was called after" in text
        assert "'bolt1' (task 2)" in text
    assert message_ids(JOURNAL.of("ack")) == [0]
    assert JOURNAL.of("execute") == []


class WrongEmit(Bolt):
    """Emits a wrong number of values: the error is raised at that line, inside the coroutine."""

    outputs = Fields("number")

    async def execute(self, tup: Tuple) -> None:
        try:
            self.emit((1, 2))
        except EmitError as error:
            JOURNAL.note("wrong", str(error))


def test_a_wrong_emit_raises_inside_the_coroutine() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(chain("wrong", Numbers(1), WrongEmit(), Pass()))
        run_to_the_end(cluster, "wrong")
    ((text,),) = JOURNAL.of("wrong")
    assert "1 field(s)" in text
    assert message_ids(JOURNAL.of("ack")) == [0]


class CleansUpAfterwards(Bolt):
    """Its calls wait for ever; they are cancelled before cleanup is called."""

    async def execute(self, tup: Tuple) -> None:
        JOURNAL.note("inside", tup["number"])
        try:
            await asyncio.Event().wait()
        finally:
            JOURNAL.note("cancelled", tup["number"])

    def cleanup(self) -> None:
        JOURNAL.note("cleanup")


@pytest.mark.parametrize("simulated", [False, True])
def test_coroutines_that_still_run_are_cancelled_before_cleanup(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("cancelled", Numbers(3, finishes=False), CleansUpAfterwards()))
        if simulated:
            cluster.advance(1.0)
        JOURNAL.wait_for("inside", 3)
    kinds = [kind for kind in JOURNAL.kinds() if kind in ("cancelled", "cleanup")]
    assert kinds == ["cancelled"] * 3 + ["cleanup"]
    assert {failure.reason for _, _, failure in JOURNAL.of("fail")} == {"stopped"}
