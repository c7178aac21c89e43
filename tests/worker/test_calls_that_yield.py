"""What a long call of a threaded task emits leaves while it runs; `emit` waits where the loop would not begin another call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from squall.clock import ManualClock
from squall.values import TaskRow
from topology_api import Bolt, EmitError, Fields, Spout, Topology, TopologyBuilder, Tuple
from topology_api.options import defaults
from worker.loop.plan import WorkerPlan
from worker.loop.snapshot import SHOWN_SECONDS, load_of
from worker.loop.threaded_tasks import VISIT_SECONDS
from worker.loop.worker import Worker
from worker.tasks.runners import AsyncThread, Job
from worker.tasks.yielding import LONG_SECONDS

CAP = 30.0
TIMEOUT = 10.0
#: How far the clock moves at each step of the worker.
STEP = 0.01
#: What the call gets, and what has happened so far.
REQUESTS: SimpleQueue[str] = SimpleQueue()
EVENTS: list[str] = []
BLOCKED: SimpleQueue[str] = SimpleQueue()
#: The tuples that `Reads` holds, by value.
HELD: dict[str, Tuple] = {}


class Consumes(Spout):
    """Emits each request. Its `next_tuple` returns at the request "return" only."""

    threaded = True
    outputs = Fields("text")
    #: Whether the next call of `ack` waits for a word in `BLOCKED`.
    blocks = False

    def next_tuple(self) -> float:
        try:
            while (text := REQUESTS.get(timeout=CAP)) != "return":
                self.blocks = text == "ack blocks"
                try:
                    self.emit((text,), message_id=text)
                    EVENTS.append(f"emitted {text}")
                except Exception:
                    EVENTS.append("caught")
        finally:
            EVENTS.append("over")
        return 3600.0

    def ack(self, message_id: object) -> None:
        if self.blocks:
            EVENTS.append("ack begins")
            BLOCKED.get(timeout=CAP)
            self.blocks = False
        EVENTS.append(f"acked {message_id}")

    def fail(self, message_id: object, failure: object) -> None:
        EVENTS.append(f"failed {message_id}")

    def activate(self) -> None:
        EVENTS.append("activated")

    def close(self) -> None:
        EVENTS.append("closed")


class Reads(Bolt):
    """Holds tuples whose text begins with "hold", and fails the first attempt at those that begin with "fail"."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        text = tup["text"]
        EVENTS.append(f"read {text}")
        if text.startswith("hold"):
            HELD[text] = tup
        elif text.startswith("fail") and EVENTS.count(f"read {text}") == 1:
            self.fail(tup)
        else:
            self.ack(tup)

    def tick(self) -> None:
        for tup in HELD.values():
            self.ack(tup)
        HELD.clear()


class Polls(Spout):
    """Each call waits a moment for the next message, as a client does, and emits it."""

    threaded = True
    outputs = Fields("text")

    def open(self, context: object) -> None:
        self.moment, self.emits = threading.Event(), 0

    def next_tuple(self) -> float:
        self.moment.wait(0.001)
        self.emits += 1
        EVENTS.append("polled")
        self.emit((str(self.emits),))
        return 0.0


class Once(Spout):
    """Emits one tuple."""

    outputs = Fields("text")

    def next_tuple(self) -> None:
        self.emit(("once",), message_id="once")
        self.finish()

    def ack(self, message_id: object) -> None:
        EVENTS.append(f"acked {message_id}")


class Repeats(Bolt):
    """Emits each request in one call."""

    threaded = True
    outputs = Fields("text")

    def execute(self, tup: Tuple) -> None:
        while (text := REQUESTS.get(timeout=CAP)) != "return":
            self.emit((text,))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    while not REQUESTS.empty():
        REQUESTS.get()
    EVENTS.clear()
    HELD.clear()


def consumer() -> Topology:
    builder = TopologyBuilder("consumer")
    builder.set_spout("consumes", Consumes())
    builder.set_bolt("reads", Reads()).shuffle_grouping("consumes")
    return builder.build()


def poller() -> Topology:
    builder = TopologyBuilder("poller")
    builder.set_spout("polls", Polls())
    builder.set_bolt("reads", Reads()).shuffle_grouping("polls")
    return builder.build()


def repeater() -> Topology:
    builder = TopologyBuilder("repeater")
    builder.set_spout("once", Once())
    builder.set_bolt("repeats", Repeats()).shuffle_grouping("once")
    builder.set_bolt("reads", Reads()).shuffle_grouping("repeats")
    return builder.build()


class Running:
    """A worker with all tasks of a topology, on a clock that moves by `STEP` at each step."""

    def __init__(self, topology: Topology, **conf: object) -> None:
        self.clock = ManualClock()
        self.woken = threading.Event()
        rows = tuple(TaskRow(number, each.id, 0) for number, each in enumerate(topology.components, 1))
        plan = WorkerPlan(
            worker="w1",
            topology=topology,
            tasks=rows,
            worker_of={row[0]: "w1" for row in rows},
            conf={
                **defaults(),
                "topology.message.timeout.secs": TIMEOUT,
                **{name.replace("_", "."): value for name, value in conf.items()},
            },
            component_confs={},
            directory="",
        )
        self.worker = Worker(
            plan, self.clock, lambda name, frame: None, AsyncThread("consumer"), self.woken.set
        )
        self.worker.start()
        self.worker.set_active(True)

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + CAP
        while not done():
            assert time.monotonic() < end, (EVENTS, self.worker.errors)
            self.clock.move_to(self.clock.now() + STEP)
            if not self.worker.step():
                self.woken.wait(0.001)
                self.woken.clear()

    def until_event(self, *events: str) -> None:
        self.until(lambda: all(event in EVENTS for event in events))

    def until_inside(self) -> None:
        """Step until the call has begun, and the loop has visited it."""
        calls = self.worker.threads.calls[1]
        self.until(lambda: calls.inside and calls.looks)

    def until_it_waits(self) -> None:
        """Step until the call waits in `emit`."""
        self.until(lambda: self.worker.tasks[1].yielded and not self.worker.tasks[1].jobs)

    def let_go(self) -> None:
        """Make the bolt ack what it holds."""
        bolt = self.worker.tasks[2]
        bolt.tick_due = True  # type: ignore[attr-defined]
        self.worker.queue(bolt)  # type: ignore[arg-type]

    def reported(self) -> list[str]:
        return [error.text for log in self.worker.errors.values() for error in log.kept]


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    run = Running(*getattr(request, "param", (consumer(),)))
    yield run
    REQUESTS.put("return")
    run.worker.stop()


def test_tuples_leave_while_the_call_runs(running: Running) -> None:
    for text in ("a", "b", "c"):
        REQUESTS.put(text)
        running.until_event(f"emitted {text}")
        emitted = running.clock.now()
        running.until_event(f"read {text}")
        assert running.clock.now() - emitted <= VISIT_SECONDS + 3 * STEP, (
            "a visit, a flush, and the bolt's run"
        )
    assert "over" not in EVENTS


@pytest.mark.parametrize("running", [[poller()]], indirect=True)
def test_tuples_of_short_calls_leave_between_two_of_them(running: Running) -> None:
    running.until_event("read 1", "read 2")
    assert EVENTS.index("read 2") < 50  # not when a frame is full


def test_a_call_is_shown_once_it_has_run_for_a_second(running: Running) -> None:
    running.until_inside()
    task = running.worker.tasks[1]
    running.clock.move_to(task.busy_since + SHOWN_SECONDS - STEP)
    assert load_of(task).call_since is None
    running.clock.move_to(task.busy_since + SHOWN_SECONDS)
    assert load_of(task).call_since == task.busy_since


def test_the_loop_sleeps_until_a_call_emits_and_is_woken_then(running: Running) -> None:
    running.until(lambda: running.worker.tasks[1].jobs == 1)
    running.until(lambda: running.worker.threads.next_time() is None)
    running.woken.clear()
    REQUESTS.put("a")
    assert running.woken.wait(CAP)
    running.until_event("read a")


def test_the_loop_sleeps_while_a_final_call_blocks(running: Running) -> None:
    REQUESTS.put("a")
    running.until_event("read a")
    running.clock.move_to(running.clock.now() + LONG_SECONDS)
    REQUESTS.put("ack blocks")
    running.until_event("ack begins")
    running.clock.move_to(running.clock.now() + LONG_SECONDS)
    running.worker.step()
    due = running.worker.next_time()
    assert due is None or due > running.clock.now(), "no busy loop"
    BLOCKED.put("go on")
    running.until_event("emitted ack blocks")


def test_acks_and_replays_come_inside_emit_once_the_call_is_long(running: Running) -> None:
    REQUESTS.put("a")
    REQUESTS.put("fail b")
    running.until_event("read a", "read fail b")
    running.clock.move_to(running.clock.now() + 5.0)
    REQUESTS.put("c")
    running.until_event("read c")
    assert EVENTS.index("acked a") < EVENTS.index("emitted c")
    running.clock.move_to(running.clock.now() + 5.0)
    REQUESTS.put("d")
    running.until(lambda: EVENTS.count("read fail b") == 2)
    assert "over" not in EVENTS


def test_a_tree_of_a_long_call_times_out(running: Running) -> None:
    REQUESTS.put("hold a")
    running.until_event("read hold a")
    running.worker.tasks[1].replay = None  # type: ignore[attr-defined]
    running.clock.move_to(running.clock.now() + 3 * TIMEOUT)
    REQUESTS.put("b")
    running.until_event("read b")
    running.clock.move_to(running.clock.now() + 1.0)
    REQUESTS.put("c")
    running.until_event("failed hold a")
    assert "over" not in EVENTS


def test_emit_waits_at_the_pending_limit_and_short_calls_get_no_final_call(running: Running) -> None:
    running.worker.tasks[1].max_pending = 2  # type: ignore[attr-defined]
    running.until_inside()
    for text in ("hold a", "hold b", "c", "hold d", "e"):
        REQUESTS.put(text)
    running.until_event("read hold b")
    running.until_it_waits()
    assert "emitted c" not in EVENTS
    running.let_go()
    running.until_event("read c", "read hold d", "read e")
    assert not [event for event in EVENTS if event.startswith("acked")]
    assert running.clock.now() < LONG_SECONDS
    running.clock.move_to(LONG_SECONDS + 1.0)
    REQUESTS.put("f")
    running.until_event("acked hold a", "acked c", "read f")
    assert EVENTS.index("acked hold a") < EVENTS.index("emitted f")


def test_a_call_that_waits_gets_its_final_calls_when_it_becomes_long(running: Running) -> None:
    running.worker.tasks[1].max_pending = 1  # type: ignore[attr-defined]
    running.until_inside()
    for text in ("a", "hold b", "c"):
        REQUESTS.put(text)
    running.until_event("read hold b")
    running.until_it_waits()
    assert running.worker.next_time() is not None
    running.until_event("acked a")
    assert running.clock.now() >= LONG_SECONDS
    assert "emitted c" not in EVENTS


def test_emit_waits_while_the_topology_is_inactive(running: Running) -> None:
    running.until_inside()
    running.worker.set_active(False)
    REQUESTS.put("a")
    running.until_it_waits()
    assert "emitted a" not in EVENTS
    running.worker.set_active(True)
    running.until_event("read a")
    assert EVENTS[0] == "activated", "activate() is called inside emit"


def test_a_call_that_begins_after_its_first_visit_looks_at_what_the_loop_wants(running: Running) -> None:
    runner = running.worker.threads.runner
    submit, late = runner.submit, SimpleQueue[tuple[int, Job]]()

    def hold(task: int, job: Job) -> None:
        if running.worker.tasks[task].opened:
            late.put((task, job))
        else:
            submit(task, job)

    runner.submit = hold  # type: ignore[method-assign]
    running.until(lambda: not late.empty())
    running.until(lambda: running.worker.threads.next_time() is None)
    runner.submit = submit  # type: ignore[method-assign]
    submit(*late.get())
    running.until_inside()
    running.worker.set_active(False)
    REQUESTS.put("a")
    running.until_it_waits()
    assert EVENTS == []


def test_a_drain_ends_while_the_call_waits_and_the_stop_ends_the_call(running: Running) -> None:
    REQUESTS.put("a")
    running.until_event("read a")
    running.worker.drain()
    REQUESTS.put("b")
    running.until(lambda: running.worker.drained)
    running.worker.stop()
    running.until_event("over", "closed")
    assert "acked a" in EVENTS
    assert not {"emitted b", "caught", "failed a"} & set(EVENTS), EVENTS
    assert running.reported() == []


def test_a_call_that_emits_after_the_stop_ends_too(running: Running) -> None:
    running.until_inside()
    stopping = threading.Thread(target=running.worker.stop)
    stopping.start()
    running.until(lambda: running.worker.tasks[1].stopped)
    REQUESTS.put("late")
    stopping.join(CAP)
    assert EVENTS[-2:] == ["over", "closed"]
    assert "emitted late" not in EVENTS


@pytest.mark.parametrize("running", [(repeater(),)], indirect=True)
def test_a_bolts_tuples_leave_while_its_call_runs_and_its_input_is_acked_afterwards(running: Running) -> None:
    for text in ("a", "b"):
        REQUESTS.put(text)
        running.until_event(f"read {text}")
    for _ in range(20):
        running.worker.step()
    assert "acked once" not in EVENTS
    REQUESTS.put("return")
    running.until_event("acked once")


@pytest.mark.parametrize("running", [(repeater(),)], indirect=True)
def test_a_bolts_call_that_is_stopped_acks_nothing_and_is_no_error(running: Running) -> None:
    REQUESTS.put("a")
    running.until_event("read a")
    stopping = threading.Thread(target=running.worker.stop)
    stopping.start()
    running.until(lambda: running.worker.tasks[2].stopped)
    REQUESTS.put("b")
    stopping.join(CAP)
    assert "acked once" not in EVENTS and "read b" not in EVENTS
    assert running.reported() == []


def test_another_thread_is_refused_at_once(running: Running) -> None:
    running.until_inside()
    with pytest.raises(EmitError, match="thread"):
        running.worker.tasks[1].instance.emit(("x",))
