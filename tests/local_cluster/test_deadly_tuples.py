"""A tuple that ends its worker's process becomes a dead letter after two counted deaths, and no other tuple is charged."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.rewinding_spout import FromPosition
from topology_api import (
    BatchBolt,
    Bolt,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)

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


class ExitsBesideOthers(Bolt):
    """Calls of several tasks run at once."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        time.sleep(0.2)
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


class Again(FromPosition):
    """The same numbers, for a topology with state."""

    outputs = Fields("number")

    def next_tuple(self) -> None:
        self.emit((self.at,), message_id=self.at)
        self.at += 1
        if self.at == COUNT:
            self.finish()


def deadly(bolt: Any, source: Spout, tasks: int = 1, **conf: Any) -> Topology:
    builder = TopologyBuilder("deadly", {"topology.on.outage": "wait", **conf})
    builder.set_spout("numbers", source)
    builder.set_bolt("store", bolt, parallelism=tasks).shuffle_grouping("numbers")
    return builder.build()


SEGFAULT = "died of SIGSEGV"
NO_MEMORY = "out of memory: store[2]: execute_batch() raised MemoryError"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bolt", "how", "workers"),
    [
        pytest.param(ExitsAt(), "ended with status 3", 1),
        pytest.param(CrashesAt(), SEGFAULT, 1, marks=pytest.mark.soak),
        pytest.param(NeedsMemoryAt(), NO_MEMORY, 1, marks=pytest.mark.soak),
        pytest.param(CrashesAt(), SEGFAULT, 2, marks=pytest.mark.soak),
        pytest.param(NeedsMemoryAt(), NO_MEMORY, 2, marks=pytest.mark.soak),
    ],
)
def test_a_deadly_tuple_is_given_up_and_costs_no_other(bolt: Any, how: str, workers: int) -> None:
    with LocalCluster(processes=True, supervisors=workers, slots=1) as cluster:
        cluster.submit(deadly(bolt, Forty()), conf={"topology.workers": workers})
        cluster.wait("deadly", CAP)
        status = cluster.status("deadly")
        [letter] = cluster.dead_letters("deadly")
    spout = status.components["numbers"]
    assert spout.failed == 1 and spout.failures == {"lost": 1}
    assert spout.acked >= COUNT - 1, "a spout whose own worker dies has emitted some tuples before"
    assert workers == 1 or spout.acked == COUNT - 1
    assert letter.values == (DEADLY,) and how in str(letter.failure.error)
    assert spout.first_failure is not None and how in str(spout.first_failure)
    assert any(how in note for note in status.notes)


@pytest.mark.slow
@pytest.mark.soak
def test_of_calls_that_ran_at_once_only_the_deadly_one_is_charged() -> None:
    with LocalCluster(processes=True, supervisors=1, slots=1) as cluster:
        cluster.submit(deadly(ExitsBesideOthers(), Forty(), tasks=4))
        cluster.wait("deadly", CAP)
        status = cluster.status("deadly")
        [letter] = cluster.dead_letters("deadly")
    assert letter.values == (DEADLY,) and status.components["numbers"].failures == {"lost": 1}
    deaths = sum("ended with status 3" in note for note in status.notes)
    assert deaths, status.notes


@pytest.mark.slow
@pytest.mark.soak
def test_with_state_at_a_path_it_is_a_dead_letter_of_its_bolt(tmp_path: Path) -> None:
    conf: dict[str, Any] = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.5}
    with LocalCluster(processes=True, supervisors=1, slots=1) as cluster:
        cluster.submit(deadly(ExitsAt(), Again(), **conf))
        cluster.wait("deadly", CAP)
        status = cluster.status("deadly")
        [letter] = cluster.dead_letters("deadly")
    assert (letter.component, letter.values) == ("store", (DEADLY,))
    assert letter.failure.reason == "lost" and str(letter.failure.error).startswith("ended with status 3")
    assert status.components["numbers"].acked == COUNT
