"""Calls of an `async def execute` that end while the worker sleeps are acked, and the topology goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from local_cluster import LocalCluster
from topology_api import Bolt, Fields, Spout, Topology, TopologyBuilder


class Numbers(Spout):
    outputs = Fields("number")

    def open(self, context: Any) -> None:
        self.numbers = iter(range(10))

    def next_tuple(self) -> None:
        number = next(self.numbers, None)
        if number is None:
            self.finish()
        else:
            self.emit((number,), message_id=number)


class Await(Bolt):
    max_concurrency = 2

    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.001)


def topology() -> Topology:
    builder = TopologyBuilder("awaits")
    numbers = builder.set_spout("numbers", Numbers())
    builder.set_bolt("await", Await()).shuffle_grouping(numbers)
    return builder.build()


def test_calls_that_end_while_the_worker_sleeps_are_acked_in_real_time() -> None:
    with LocalCluster() as cluster:
        cluster.submit(topology())
        cluster.wait("awaits", timeout=30)
        assert cluster.status("awaits").components["numbers"].acked == 10


def test_calls_that_end_while_the_worker_sleeps_are_acked_in_simulated_time() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology())
        cluster.advance(1)
        cluster.wait("awaits")
        assert cluster.status("awaits").components["numbers"].acked == 10
