"""A tuple that ends its worker's process becomes a dead letter after two counted deaths, and no other tuple is charged."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import BatchBolt, Bolt, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple

CAP = 120.0
COUNT, DEADLY = 40, 17


class Forty(Spout):
    outputs = Fields("number")
    replay = Replay(max_attempts=3, first_delay=0.05, max_delay=0.1)

    def __init__(self) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        self.emit((self.number,), message_id=self.number)
        self.number += 1
        if self.number == COUNT:
            self.finish()


class ExitsAt(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup[0] == DEADLY:
            os._exit(3)


class CrashesAt(Bolt):
    async def execute(self, tup: Tuple) -> None:
        if tup[0] == DEADLY:
            ctypes.string_at(0)


class NeedsMemoryAt(BatchBolt):
    batch_size = 8
    batch_interval = 0.05

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if any(tup[0] == DEADLY for tup in tups):
            bytearray(1 << 60)


def deadly(bolt: Any) -> Topology:
    """Source and bolt are in a worker each."""
    conf = {"topology.workers": 2, "topology.on.outage": "wait", "topology.message.timeout.secs": 5}
    builder = TopologyBuilder("deadly", conf)
    builder.set_spout("numbers", Forty())
    builder.set_bolt("store", bolt).shuffle_grouping("numbers")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bolt", "how"),
    [
        pytest.param(ExitsAt(), "ended with status 3", marks=pytest.mark.soak),
        pytest.param(CrashesAt(), "died of SIGSEGV", marks=pytest.mark.soak),
        (NeedsMemoryAt(), "out of memory: store[2]: execute_batch() raised MemoryError"),
    ],
)
def test_a_deadly_tuple_is_given_up_and_costs_no_other(bolt: Any, how: str) -> None:
    with LocalCluster(processes=True, supervisors=2, slots=1) as cluster:
        cluster.submit(deadly(bolt))
        cluster.wait("deadly", CAP)
        status = cluster.status("deadly")
    spout = status.components["numbers"]
    assert (spout.acked, spout.failed) == (COUNT - 1, 1)
    assert spout.failures == {"lost": 1}
    assert spout.first_failure is not None and how in str(spout.first_failure)
    assert any(how in note for note in status.notes)
