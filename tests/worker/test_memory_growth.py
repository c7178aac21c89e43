"""Which task's calls make a worker's memory grow: the task that leaks is named, whatever the others do."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from worker.loop.memory_growth import LEAST, Memory, MemoryGrowth, growth_between
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.work_time import WorkTime

MB = 2**20


class Process:
    """A process on a clock of its own, whose tasks use time and memory."""

    def __init__(self) -> None:
        self.time = 100.0
        self.resident = 50 * MB
        self.readings = 0
        self.growth = MemoryGrowth(self.read, Random(7))

    def read(self) -> Memory:
        self.readings += 1
        return Memory(self.resident)

    def task(self, number: int, **more: Any) -> Any:
        values = {"id": number, "threaded": False, "jobs": 0, "busy_since": 0.0, **more}
        return SimpleNamespace(now=lambda: self.time, work=WorkTime(0.0), **values)

    def run(self, task: Any, seconds: float, grows: int = 0) -> None:
        def job() -> None:
            self.time += seconds
            self.resident += grows
            task.work.seconds += seconds

        self.growth.begin(task, job)()


def test_a_task_that_leaks_is_named_beside_a_slow_and_a_busy_one() -> None:
    process = Process()
    leaking, slow, busy = (process.task(number) for number in (1, 2, 3))
    for turn in range(3000):
        process.run(leaking, 0.0003, MB if turn % 10 == 3 else 0)
        process.run(slow, 0.3 if turn % 100 == 7 else 0.00001)
        process.run(busy, 0.003)
    process.growth.share_out([leaking, slow, busy], None, process.time)
    grown = process.resident - 50 * MB
    assert grown == 300 * MB
    assert process.growth.of(1) == pytest.approx(grown, rel=0.35)
    assert process.growth.of(2) == process.growth.of(3) == 0


def test_a_busy_process_is_measured_a_hundred_times_a_second() -> None:
    process = Process()
    tasks = [process.task(number) for number in range(4)]
    for _ in range(20_000):
        for task in tasks:
            process.run(task, 0.0001)
    assert process.time == pytest.approx(108.0, rel=0.01)
    assert process.readings < 2 * 100 * 8 * 1.5


def test_what_a_quiet_task_leaks_is_measured_run_by_run() -> None:
    process = Process()
    quiet, other = process.task(1), process.task(2)
    for _ in range(40):
        process.run(quiet, 0.001, 2 * MB)
        process.run(other, 0.001, -MB)
        process.time += 1.0
    process.growth.share_out([quiet, other], None, process.time)
    assert process.growth.of(1) == 40 * MB  # no more than the process has
    assert process.growth.of(2) == 0


def test_a_task_that_becomes_quiet_is_measured_again_soon() -> None:
    process = Process()
    task = process.task(1)
    for _ in range(10_000):
        process.run(task, 0.00001)
    for _ in range(30):
        process.time += 3.0
        process.growth.share_out([task], None, process.time)
        process.run(task, 0.001, MB)
    process.growth.share_out([task], None, process.time)
    assert process.growth.of(1) == pytest.approx(30 * MB, rel=0.2)


def test_what_another_thread_touches_is_not_this_ones() -> None:
    before = Memory(10 * MB, own_pages=5, all_pages=100)
    assert growth_between(before, Memory(12 * MB, 5, 612)) == 0
    assert growth_between(before, Memory(12 * MB, 517, 612)) == 2 * MB
    assert growth_between(before, Memory(12 * MB, 5, 100)) == 2 * MB  # this system does not count pages


def test_a_long_call_is_charged_while_it_runs() -> None:
    process = Process()
    task = process.task(1, jobs=1, busy_since=100.0)
    process.run(process.task(2), 0.001)

    def job() -> None:
        for _ in range(5):
            process.time += 1.0
            process.resident += 10 * MB
            process.growth.share_out([task], task, process.time)
            assert process.growth.of(1) == process.resident - 50 * MB

    process.growth.begin(task, job)()
    assert process.growth.of(1) == 50 * MB


def test_a_long_call_of_a_sink_beside_its_thread_is_charged_too() -> None:
    process = Process()
    outside = SimpleNamespace(busy=True, since=100.0)
    sink = process.task(1, outside=outside)
    process.run(sink, 0.001)
    process.time, process.resident = 105.0, process.resident + 40 * MB
    process.growth.share_out([sink], None, process.time)
    assert process.growth.of(1) == 40 * MB
    outside.busy = False
    process.time, process.resident = 110.0, process.resident + 40 * MB
    process.growth.share_out([sink], None, process.time)
    assert process.growth.of(1) == 40 * MB


def test_asynchronous_tasks_share_what_no_run_has() -> None:
    process = Process()
    small, large = (AsyncBoltTask.__new__(AsyncBoltTask) for _ in range(2))
    for number, task in enumerate((small, large)):
        for name, value in vars(process.task(number)).items():
            setattr(task, name, value)
        process.run(task, 0.0)
    small.work.seconds, large.work.seconds = 0.1, 0.3
    process.resident += 40 * MB
    process.growth.share_out([small, large], None, process.time + 1.0)
    assert (process.growth.of(0), process.growth.of(1)) == (10 * MB, 30 * MB)


def test_growth_outside_of_calls_is_nobodys() -> None:
    process = Process()
    task = process.task(1)
    process.run(task, 0.001)
    process.resident += 100 * MB
    process.growth.share_out([task], None, process.time)
    assert process.growth.of(1) == 0 and process.growth.of(99) == 0
    assert LEAST == MB
