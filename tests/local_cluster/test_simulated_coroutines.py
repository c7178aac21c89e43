"""Coroutines in simulated time: their sleeps, timeouts and locks follow the simulation's clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL, Journal, Numbers, chain, run_to_the_end
from topology_api import Bolt, Context, Fields, Tuple


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


class Sleeps(Bolt):
    """Sleeps `seconds`, then emits."""

    outputs = Fields("number")

    def __init__(self, seconds: float, at_once: int = 100) -> None:
        self.seconds = seconds
        self.max_concurrency = at_once

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.seconds)
        self.emit((tup["number"],))


class Lonely(Bolt):
    """A coroutine of many short steps beside one that sleeps long."""

    async def execute(self, tup: Tuple) -> None:
        if tup["number"] == 0:
            await asyncio.sleep(500.0)
        for _ in range(100):
            await asyncio.sleep(0)
        JOURNAL.note("through", tup["number"])


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_in_simulated_time_the_sleeps_of_coroutines_take_simulated_time(at_once: int) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(chain("sleeps", Numbers(20), Sleeps(10.0, at_once)))
        run_to_the_end(cluster, "sleeps")
    assert max(time for _, time in JOURNAL.of("ack")) == pytest.approx(10.0 * max(1, 20 // at_once), abs=0.1)


def test_in_simulated_time_short_steps_do_not_wait_for_the_sleep_of_another_call() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(chain("lonely", Numbers(5), Lonely()))
        cluster.advance(1.0)
        assert sorted(JOURNAL.of("through")) == [(1,), (2,), (3,), (4,)]


class WaitsInTime(Bolt):
    """Uses asyncio's own tools: timeouts, locks, groups of tasks."""

    def prepare(self, context: Context) -> None:
        self.now = context.now
        self.lock: Any = None

    async def execute(self, tup: Tuple) -> None:
        self.lock = self.lock or asyncio.Lock()
        async with self.lock:
            try:
                await asyncio.wait_for(asyncio.sleep(100.0), timeout=3.0)
            except asyncio.TimeoutError:
                await asyncio.gather(asyncio.sleep(1.0), asyncio.sleep(2.0))
        JOURNAL.note("done", tup["number"], self.now())


def test_in_simulated_time_timeouts_locks_and_gather_work() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(chain("tools", Numbers(3), WaitsInTime()))
        run_to_the_end(cluster, "tools")
    assert [number for number, _ in JOURNAL.of("done")] == [0, 1, 2]
    assert [time for _, time in JOURNAL.of("done")] == pytest.approx([5.0, 10.0, 15.0], abs=0.01)
