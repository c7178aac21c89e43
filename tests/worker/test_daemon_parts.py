"""The parts of a worker process that need no process: its lease, the calls it watches, its heartbeat, its orders."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from squall.cluster.counters import WorkerCounters
from squall.error_reports import ErrorReport
from squall.worker_files import (
    COUNTERS,
    EXIT_HUNG,
    EXIT_STOPPED,
    LEASE,
    ORDERS,
    PULSE,
    BadFile,
    read_pulse,
    write,
)
from tests.worker.daemon_components import Notes, Numbers, lone_spout, one_bolt
from tests.worker.fake_supervisor import orders_for, ship
from worker.calls import Call, Calls, all_stacks, user_frame
from worker.error_lines import ErrorLines
from worker.heartbeat import Flags, Heartbeat
from worker.lease import Lease
from worker.reports import OURS, ErrorLog
from worker.startup import begin, check_orders, find_orders, own_place, plan_of, seed_of


class Over(Exception):
    """What the process ends by, in these tests."""


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


# The lease.


def lease_of(folder: Path, clock: Clock, seconds: float = 10.0) -> Lease:
    def over(away: float) -> None:
        raise Over(away)

    return Lease(str(folder), seconds, over, clock.now)


def test_the_lease_lasts_from_the_last_new_number_that_was_seen(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    write(tmp_path, LEASE, {"number": 1})
    clock.time = 109.0
    lease.look()
    clock.time = 118.9
    lease.look()  # the same number
    assert lease.now() == 118.9
    clock.time = 119.0
    with pytest.raises(Over) as over:
        lease.now()
    assert over.value.args == (10.0,)


def test_a_lease_that_is_over_is_not_renewed_by_a_new_number(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    clock.time = 111.0
    write(tmp_path, LEASE, {"number": 2})
    with pytest.raises(Over):
        lease.look()
    with pytest.raises(Over):
        lease.now()


def test_a_lease_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path / "gone", clock)
    clock.time = 105.0
    lease.look()
    clock.time = 110.0
    with pytest.raises(Over):
        lease.look()


def test_new_orders_change_the_length_of_the_lease_that_runs(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    lease.set_seconds(20.0)
    clock.time = 119.0
    assert lease.now() == 119.0
    lease.set_seconds(5.0)
    with pytest.raises(Over):
        lease.now()


# Calls.


class Stack:
    """A frame of user code below one of ours; each `call` is another one."""

    def __init__(self) -> None:
        namespace: dict[str, Any] = {}
        exec(compile("def serve(call):\n    return call()\n", f"{OURS[0]}stand_in.py", "exec"), namespace)
        self.serve: Callable[[Callable[[], FrameType]], FrameType] = namespace["serve"]

    def call(self) -> FrameType:
        def execute() -> FrameType:
            return sys._getframe()

        return self.serve(execute)


def a_task(number: int, hang_secs: float = 60.0, kind: str = "bolt", **more: Any) -> Any:
    values = {
        "id": number,
        "spec": SimpleNamespace(id="count", kind=kind),
        "threaded": False,
        "jobs": 0,
        "busy_since": 0.0,
        "hang_secs": hang_secs,
        "opened": True,
        "closed": False,
        "emitter": SimpleNamespace(owner=threading.get_ident()),
    }
    return SimpleNamespace(**{**values, **more})


def a_worker(*tasks: Any) -> Any:
    return SimpleNamespace(
        tasks={task.id: task for task in tasks},
        running=None,
        inline=False,
        async_bolts=[],
        timers=SimpleNamespace(report_every=float("inf")),
        plan=SimpleNamespace(topology=SimpleNamespace(name="words"), tasks=[(4, "count", 0)]),
    )


def watch(worker: Any, frame: Callable[[], FrameType | None]) -> Calls:
    return Calls(worker, lambda: {threading.get_ident(): found} if (found := frame()) else {})


def look(calls: Calls, *times: float) -> list[Call]:
    """What is running at the last of these times, having looked at each."""
    found: list[Call] = []
    for time in times:
        found = calls.look(time)
    return found


def test_a_call_that_goes_on_is_counted_from_look_to_look() -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    frame = Stack().call()
    calls = watch(worker, lambda: frame)
    (call,) = look(calls, 101.0, 102.0, 103.0)
    assert (call.name, call.seconds, call.hangs) == ("count[4]", 2.0, False)
    (call,) = look(calls, 104.0, 105.0, 106.0, 107.0)
    assert call.seconds == 6.0 and call.hangs


def test_a_job_of_many_slow_calls_is_no_call_that_hangs() -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    calls = watch(worker, Stack().call)
    for second in range(101, 200):
        (call,) = calls.look(float(second))
        assert call.seconds <= 2.0 and not call.hangs


def test_a_process_that_was_stopped_for_an_hour_has_no_call_of_an_hour() -> None:
    task = a_task(4, hang_secs=60, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    frame = Stack().call()
    (call,) = look(watch(worker, lambda: frame), 101.0, 102.0, 3702.0)
    assert call.seconds == 3.0 and not call.hangs


def test_what_does_not_run_is_not_watched_any_more() -> None:
    task = a_task(4, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    calls = watch(worker, lambda: None)
    assert len(look(calls, 101.0)) == 1
    worker.running = None
    assert not look(calls, 102.0)
    assert not calls.running


def test_tasks_with_threads_are_watched_beside_the_loops_and_the_longest_comes_first() -> None:
    loop, thread, idle = (
        a_task(4, busy_since=100.5),
        a_task(5, busy_since=100.0, threaded=True, jobs=1),
        a_task(6, threaded=True),
    )
    worker = a_worker(loop, thread, idle)
    worker.running = loop
    found = look(watch(worker, lambda: None), 100.9)
    assert [call.task.id for call in found] == [5, 4]


def test_no_user_frame_is_found_where_none_is() -> None:
    assert user_frame(None) is None
    frame = Stack().call()
    assert user_frame(frame) is frame
    assert user_frame(sys._getframe()) is None  # nothing of ours called this test


def test_all_stacks_name_each_thread_but_the_one_that_asks() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="a-thread-of-the-test")
    thread.start()
    try:
        text = all_stacks()
    finally:
        over.set()
        thread.join()
    assert "Thread a-thread-of-the-test:" in text
    assert "test_all_stacks_name_each_thread" not in text


def test_a_record_of_a_tasks_own_logger_is_placed_by_its_name() -> None:
    calls = Calls(a_worker())

    def place(logger: str) -> str:
        return calls.place(logging.LogRecord(logger, logging.INFO, "", 0, "text", None, None))

    assert place("squall.words.count.0") == "count[4]"
    assert place("squall.words.count.7") == ""


# The heartbeat.


class Words:
    """Stands for the process's last words."""

    def end(self, status: int, reason: str, details: str = "") -> None:
        raise Over(status, reason, details)


class Loop:
    """Stands for the loop."""

    round_began: float | None = None
    must_end_by: float | None = None

    def __init__(self) -> None:
        self.counted = WorkerCounters({}, ())
        self.looked = 0
        self.signs: list[bool] = []

    def look_at_orders(self) -> None:
        self.looked += 1

    def counters(self) -> WorkerCounters:
        return self.counted

    def send_signs(self, held: bool) -> None:
        self.signs.append(held)


class Beating:
    """A heartbeat without a thread."""

    def __init__(self, folder: Path, *tasks: Any) -> None:
        self.clock = Clock()
        self.folder = folder
        self.loop = Loop()
        self.worker = a_worker(*tasks)
        frame = Stack().call()
        self.calls = watch(self.worker, lambda: frame)
        lease = lease_of(folder, self.clock, 1000.0)
        self.heart = Heartbeat(
            str(folder),
            (3, 1),
            None,
            Flags(1, "run", 3),
            lease,
            self.calls,
            self.loop,
            Words(),  # type: ignore[arg-type]
        )

    def beat(self, *times: float) -> None:
        for time in times:
            self.clock.time = time
            self.heart.beat()


def test_a_pulse_says_what_the_loop_said_and_names_the_counters(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.beat(100.0)
    beating.loop.counted = WorkerCounters({}, (), 7)
    beating.beat(101.0)  # another reading, the same counters
    first = read_pulse(tmp_path)
    assert first is not None
    assert (first.number, first.incarnation, first.orders, first.version, first.counters) == (
        2,
        (3, 1),
        1,
        3,
        1,
    )
    (tmp_path / COUNTERS).unlink()
    beating.heart.tell(Flags(2, "drain", 3, drained=True))
    beating.beat(101.1)
    second = read_pulse(tmp_path)
    assert second is not None
    assert (second.number, second.orders, second.asked, second.drained) == (3, 2, "drain", True)
    assert not (tmp_path / COUNTERS).exists()


def test_a_pulse_that_cannot_be_written_is_told_of_once_and_again_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    beating = Beating(folder)
    beating.beat(100.0, 101.0, 102.0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    folder.mkdir()
    with caplog.at_level(logging.WARNING):
        beating.beat(103.0)
    assert "pulses can be written again; 3 could not" in caplog.text
    assert (folder / PULSE).exists() and (folder / COUNTERS).exists()


def test_a_bolt_that_hangs_ends_the_process_with_all_stacks(tmp_path: Path) -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    beating = Beating(tmp_path, task)
    beating.worker.running = task
    beating.beat(101.0, 102.0, 103.0, 104.0, 105.0, 106.0)
    with pytest.raises(Over) as over:
        beating.beat(107.0)
    status, reason, details = over.value.args
    assert status == EXIT_HUNG
    assert reason == "a call of count[4] has not returned for 6 s (topology.bolt.hang.secs: 5)"
    assert details.startswith("All threads of process")


@pytest.mark.parametrize("change", [{"kind": "spout"}, {"opened": False}, {"closed": True}])
def test_other_calls_that_take_long_are_told_of_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0, **change)
    beating = Beating(tmp_path, task)
    beating.worker.running = task
    beating.beat(*map(float, range(101, 120)))
    task.busy_since = 200.0
    beating.beat(*map(float, range(201, 220)))
    assert caplog.text.count("a call of count[4] has been running for 6 s") == 2


def test_while_the_loop_is_in_a_call_the_peers_get_signs_of_life_and_what_waits_when_that_is_due(
    tmp_path: Path,
) -> None:
    beating = Beating(tmp_path)
    beating.worker.timers.report_every = 1.0
    for time, began in (
        (100.0, None),
        (100.0, 99.9),
        (100.5, 99.9),
        (101.0, 99.9),
        (101.5, 99.9),
        (102.0, 99.9),
    ):
        beating.clock.time, beating.loop.round_began = time, began
        beating.heart.look()
    assert beating.loop.signs == [False, True, False, True]


def test_orders_that_came_without_a_signal_are_found(tmp_path: Path) -> None:
    write(tmp_path, ORDERS, {"number": 1})
    beating = Beating(tmp_path)
    beating.heart.look()
    assert beating.loop.looked == 0
    write(tmp_path, ORDERS, {"number": 2})
    beating.heart.look()
    beating.heart.look()
    assert beating.loop.looked == 1


def test_a_worker_told_twice_to_end_is_ended_when_its_call_does_not_return(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.loop.must_end_by = 102.0
    beating.heart.look()
    beating.clock.time = 102.0
    with pytest.raises(Over) as over:
        beating.heart.look()
    assert over.value.args[0] == EXIT_STOPPED


def test_further_errors_alone_are_told_soon_and_not_at_once(tmp_path: Path) -> None:
    beating = Beating(tmp_path)
    beating.beat(100.0)
    flags = beating.heart.flags
    beating.heart.tell(replace(flags, errors=5))
    assert 100.0 < beating.heart.next_beat < 101.0
    beating.heart.tell(replace(flags, errors=6, ended=True))
    assert beating.heart.next_beat <= 100.0


# Errors of user code in the log.


def report(number: int, text: str, time: float) -> ErrorReport:
    return ErrorReport("words", "count", number, "execute", text, "a.py:1", (), None, time)


def test_each_error_is_written_once_and_one_that_is_seen_again_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, written = ErrorLog(), ErrorLines()
    assert written.look({"count": log}, 0.0) == 0
    for _ in range(3):
        log.add(report(1, "one", 1.0))
    assert written.look({"count": log}, 1.0) == 3
    log.add(report(1, "one", 2.0))
    log.add(report(1, "two", 3.0))
    log.add(report(2, "two", 3.0))
    assert written.look({"count": log}, 3.0) == 6
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "count[1] of topology 'words': execute() raised one",
        "count[1] of topology 'words': execute() raised two",
        "count[2] of topology 'words': execute() raised two",
    ]


def test_a_flood_of_errors_is_cut_and_the_next_minute_says_how_many_there_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, written = ErrorLog(), ErrorLines()
    for number in range(100):
        log.add(report(1, f"error {number}", float(number)))
        written.look({"count": log}, 10.0)
    assert len(caplog.records) == 21
    assert caplog.messages[-1] == "errors are only counted from here on, for up to 60 s"
    caplog.clear()
    log.add(report(1, "another", 200.0))
    assert written.look({"count": log}, 71.0) == 101
    assert caplog.messages[0] == "80 errors of user code before this one are only counted"
    assert "raised another" in caplog.messages[1]


# Orders.


def test_the_plan_has_what_the_orders_say_and_as_many_tasks(tmp_path: Path) -> None:
    topology = one_bolt(Notes(tmp_path), tmp_path)
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"), placed={"w1": [1], "w2": [2]})
    more = replace(
        orders,
        tasks=(*orders.tasks, (3, "bolt", 1)),
        placements=(orders.placements[0], replace(orders.placements[1], tasks=(2, 3))),
    )
    write(tmp_path, ORDERS, more)
    start = begin(str(tmp_path))
    plan = plan_of(start.orders, start.topology, str(tmp_path))
    assert start.topology.component("bolt").parallelism == 2
    assert (plan.worker, dict(plan.worker_of)) == ("w1", {1: "w1", 2: "w2", 3: "w2"})
    assert (plan.incarnation, plan.linked) == ((1, 0), False)
    assert plan.own_tasks == [(1, "numbers", 0)]


def test_no_two_processes_of_a_worker_draw_the_same_numbers(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, tmp_path)
    assert seed_of(orders) != seed_of(orders)
    given = replace(orders, seed=5)
    assert seed_of(given) == seed_of(given)
    assert seed_of(given) != seed_of(replace(given, incarnation=(1, 1)))


def test_a_worker_has_its_place_by_the_version_that_placed_it(tmp_path: Path) -> None:
    orders = orders_for(lone_spout(Numbers(tmp_path, 1)), tmp_path)
    place = own_place(orders)
    assert place is not None and place.tasks == (1,)
    restarted = replace(orders, incarnation=(1, 3))
    assert own_place(restarted) == place
    assert own_place(replace(orders, incarnation=(2, 0))) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"asked": "sing"}, "'sing'"),
        ({"lease_secs": 0.0}, "a lease of 0.0 s"),
        ({"tasks": ()}, "differ in [1]"),
        ({"placements": "twice"}, "placed twice: [1]"),
    ],
)
def test_orders_that_contradict_themselves_say_where(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    orders = orders_for(lone_spout(Numbers(tmp_path, 1)), tmp_path)
    if change.get("placements") == "twice":
        change = {"placements": (*orders.placements, replace(orders.placements[0], worker="w2"))}
    with pytest.raises(BadFile) as error:
        check_orders(replace(orders, **change), "there")
    assert problem in str(error.value) and "there" in str(error.value)


def test_a_component_that_the_bundle_does_not_have_is_named(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"))
    write(tmp_path, ORDERS, replace(orders, tasks=((1, "elsewhere", 0),)))
    assert find_orders(str(tmp_path)).tasks == ((1, "elsewhere", 0),)
    with pytest.raises(Exception, match="elsewhere"):
        begin(str(tmp_path))
