"""The parts of a worker process that need no process: its lease, its watch over calls, its orders."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from squall.values import Incarnation, TaskRow
from squall.worker_files import (
    KEYS,
    LEASE,
    ORDERS,
    BadFile,
    write,
)
from tests.worker.daemon_components import Notes, Numbers, lone_spout, one_bolt
from tests.worker.daemon_stand_ins import Clock, Over, Stack, a_task, a_worker, lease_of, watch
from tests.worker.fake_supervisor import PAIR, orders_for, ship
from worker.loop.build import TaskEnvironment
from worker.loop.completion import Completion
from worker.loop.peers import Peers
from worker.process.call_watch import CallWatch, UserCall, all_stacks, task_name, user_frame
from worker.process.daemon import Daemon
from worker.process.heartbeat import Heartbeat
from worker.process.lease import Lease
from worker.process.startup import begin, check_orders, find_orders, own_place, plan_of, seed_of

# The lease.


def test_the_lease_counts_from_the_last_new_number(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    write(tmp_path, LEASE, {"number": 1})
    clock.time = 109.0
    lease.renew()
    clock.time = 118.9
    lease.renew()  # the same number
    assert lease.now() == 118.9
    clock.time = 119.0
    with pytest.raises(Over) as over:
        lease.now()
    assert over.value.args == (10.0,)


def test_an_expired_lease_is_not_renewed_by_a_new_number(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    clock.time = 111.0
    write(tmp_path, LEASE, {"number": 2})
    with pytest.raises(Over):
        lease.renew()
    with pytest.raises(Over):
        lease.now()


def test_an_unreadable_lease_renews_nothing(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path / "gone", clock)
    clock.time = 105.0
    lease.renew()
    clock.time = 110.0
    with pytest.raises(Over):
        lease.renew()


def test_new_orders_change_the_length_of_the_running_lease(tmp_path: Path) -> None:
    clock = Clock()
    lease = lease_of(tmp_path, clock)
    lease.set_seconds(20.0)
    clock.time = 119.0
    assert lease.now() == 119.0
    lease.set_seconds(5.0)
    with pytest.raises(Over):
        lease.now()


# CallWatch.


def look(calls: CallWatch, *times: float) -> list[UserCall]:
    """The running call at the last of these times, after a check at each."""
    found: list[UserCall] = []
    for time in times:
        found = calls.watch(time)
    return found


def test_a_call_that_goes_on_is_timed_from_check_to_check() -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    frame = Stack().call()
    calls = watch(worker, lambda: frame)
    (call,) = look(calls, 101.0, 102.0, 103.0)
    assert (task_name(call.task), call.seconds, call.hangs) == ("count[4]", 2.0, False)
    (call,) = look(calls, 104.0, 105.0, 106.0, 107.0)
    assert call.seconds == 6.0 and call.hangs


def test_a_job_of_many_slow_calls_does_not_count_as_hung() -> None:
    task = a_task(4, hang_secs=5, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    calls = watch(worker, Stack().call)
    for second in range(101, 200):
        (call,) = calls.watch(float(second))
        assert call.seconds <= 2.0 and not call.hangs


def test_a_process_that_was_stopped_for_an_hour_has_no_call_of_an_hour() -> None:
    task = a_task(4, hang_secs=60, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    frame = Stack().call()
    (call,) = look(watch(worker, lambda: frame), 101.0, 102.0, 3702.0)
    assert call.seconds == 3.0 and not call.hangs


def test_an_ended_call_is_not_watched_any_more() -> None:
    task = a_task(4, busy_since=100.0)
    worker = a_worker(task)
    worker.running = task
    calls = watch(worker, lambda: None)
    assert len(look(calls, 101.0)) == 1
    worker.running = None
    assert not look(calls, 102.0)
    assert not calls.running


def test_tasks_with_threads_are_watched_beside_the_loops_and_the_longest_call_comes_first() -> None:
    loop, thread, idle = (
        a_task(4, busy_since=100.5),
        a_task(5, busy_since=100.0, threaded=True, jobs=1),
        a_task(6, threaded=True),
    )
    worker = a_worker(loop, thread, idle)
    worker.running = loop
    found = look(watch(worker, lambda: None), 100.9)
    assert [call.task.id for call in found] == [5, 4]


def test_a_call_of_a_sink_beside_its_thread_is_watched_as_another_one() -> None:
    frame, other = Stack().call(), Stack().call()
    outside = SimpleNamespace(busy=True, since=100.0, ident=7)
    task = a_task(5, hang_secs=5, busy_since=100.5, threaded=True, jobs=1, outside=outside)
    here = task.emitter.owner
    calls = CallWatch(a_worker(task), lambda: {here: frame, 7: other})
    found = look(calls, *(100.0 + second for second in range(1, 9)))
    assert [(call.thread, call.mark, call.hangs) for call in found] == [(7, other, True), (here, frame, True)]
    outside.since = 108.0  # it reports progress
    assert [(call.thread, call.hangs) for call in look(calls, 109.0)] == [(here, True), (7, False)]
    outside.busy = False
    assert [call.thread for call in look(calls, 110.0)] == [here]


def test_no_user_frame_is_found_where_there_is_none() -> None:
    assert user_frame(None) is None
    frame = Stack().call()
    assert user_frame(frame) is frame
    assert user_frame(sys._getframe()) is None  # no code of Squall's called this test


def test_all_stacks_include_each_thread_but_the_calling_one() -> None:
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


def test_a_record_of_a_tasks_own_logger_is_attributed_by_its_name() -> None:
    worker = a_worker()
    calls = CallWatch(worker)

    def place(logger: str) -> str:
        return calls.place(logging.LogRecord(logger, logging.INFO, "", 0, "text", None, None))

    assert place("squall.words.count.0") == "count[4]"
    assert place("squall.words.count.7") == ""
    worker.plan = SimpleNamespace(tasks_by_logger={"squall.words.count.7": "count[9]"})
    assert place("squall.words.count.7") == "count[9]", "a task of another assignment"


# Orders.


def test_the_plan_follows_the_orders_with_their_number_of_tasks(tmp_path: Path) -> None:
    topology = one_bolt(Notes(tmp_path), tmp_path)
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"), placed={"w1": [1], "w2": [2]})
    more = replace(
        orders,
        tasks=(*orders.tasks, TaskRow(3, "bolt", 1)),
        placements=(orders.placements[0], replace(orders.placements[1], tasks=(2, 3))),
    )
    write(tmp_path, ORDERS, more)
    write(tmp_path, KEYS, PAIR, 0o600)
    orders, _, topology = begin(str(tmp_path))
    plan = plan_of(orders, topology, str(tmp_path))
    assert topology.component("bolt").parallelism == 2
    assert (plan.worker, dict(plan.worker_of)) == ("w1", {1: "w1", 2: "w2", 3: "w2"})
    assert (plan.incarnation, plan.linked) == ((1, 0), False)
    assert plan.own_tasks == [(1, "numbers", 0)]


def test_no_two_processes_of_a_worker_draw_the_same_numbers(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, tmp_path)
    assert seed_of(orders) != seed_of(orders)
    given = replace(orders, seed=5)
    assert seed_of(given) == seed_of(given)
    assert seed_of(given) != seed_of(replace(given, incarnation=Incarnation(1, 1)))


def test_a_worker_has_its_place_by_the_version_that_placed_it(tmp_path: Path) -> None:
    orders = orders_for(lone_spout(Numbers(tmp_path, 1)), tmp_path)
    place = own_place(orders)
    assert place is not None and place.tasks == (1,)
    restarted = replace(orders, incarnation=Incarnation(1, 3))
    assert own_place(restarted) == place
    assert own_place(replace(orders, incarnation=Incarnation(2, 0))) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"asked": "sing"}, "'sing'"),
        ({"lease_secs": 0.0}, "a lease of 0.0 s"),
        ({"tasks": ()}, "differ in [1]"),
        ({"placements": "twice"}, "placed twice: [1]"),
    ],
)
def test_contradictory_orders_are_refused_with_the_place(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    orders = orders_for(lone_spout(Numbers(tmp_path, 1)), tmp_path)
    if change.get("placements") == "twice":
        change = {"placements": (*orders.placements, replace(orders.placements[0], worker="w2"))}
    with pytest.raises(BadFile) as error:
        check_orders(replace(orders, **change), "there")
    assert problem in str(error.value) and "there" in str(error.value)


def test_a_component_missing_from_the_bundle_is_named(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    orders = orders_for(topology, ship(topology, tmp_path / "bundle"))
    write(tmp_path, ORDERS, replace(orders, tasks=(TaskRow(1, "elsewhere", 0),)))
    assert find_orders(str(tmp_path)).tasks == ((1, "elsewhere", 0),)
    write(tmp_path, KEYS, PAIR, 0o600)
    with pytest.raises(Exception, match="elsewhere"):
        begin(str(tmp_path))


def test_a_worker_without_keys_does_not_start(tmp_path: Path) -> None:
    topology = lone_spout(Numbers(tmp_path, 1))
    write(tmp_path, ORDERS, orders_for(topology, ship(topology, tmp_path / "bundle")))
    with pytest.raises(BadFile, match=r"there is no keys\.json .* would accept frames from strangers"):
        begin(str(tmp_path))


# All of them.


@pytest.mark.parametrize("part", [Completion, Daemon, Heartbeat, Lease, Peers, TaskEnvironment])
def test_a_part_with_a_life_equals_only_itself_and_shows_no_fields(part: type) -> None:
    half_made: object = object.__new__(part)
    assert part.__name__ in repr(half_made)
    assert half_made != object.__new__(part)
