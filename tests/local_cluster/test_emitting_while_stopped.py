"""Promise 1 at the end of a task: spouts that emit from `ack` and `fail` while their task is being stopped.

`fail` is called for every open tree then, and a spout with replays of its own emits from it. An accepted emission gets its
final call; one that can get none is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import Bolt, Context, EmitError, Failure, Fields, Spout, Topology, TopologyBuilder, Tuple

TAKEN: list[Any] = []
SETTLED: list[Any] = []
REFUSED: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    for notes in (TAKEN, SETTLED, REFUSED):
        notes.clear()
    yield


class Stubborn(Spout):
    """Storm's way: emits a failed tuple again, and for every acked one a new one; for ever. `caught`: records refusals."""

    outputs = {"default": Fields("number"), "unread": Fields("number")}
    replay = None

    def __init__(self, caught: bool = True, stream: str = "default") -> None:
        self.caught = caught
        self.stream = stream

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < 5:
            self.send()

    def send(self) -> None:
        self.number += 1
        try:
            self.emit((self.number,), message_id=self.number, stream=self.stream)
        except EmitError as error:
            REFUSED.append(str(error))
            if not self.caught:
                raise
            return
        TAKEN.append(self.number)

    def ack(self, message_id: object) -> None:
        SETTLED.append(message_id)
        self.send()

    def fail(self, message_id: object, failure: Failure) -> None:
        SETTLED.append(message_id)
        self.send()


class Keep(Bolt):
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        pass


def topology(spout: Spout) -> Topology:
    builder = TopologyBuilder("stubborn", conf={"topology.max.spout.pending": 50})
    builder.set_spout("numbers", spout)
    builder.set_bolt("keep", Keep()).shuffle_grouping("numbers")
    return builder.build()


def test_emissions_of_fail_in_a_stopping_task_are_refused_and_all_others_get_a_final_call() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Stubborn()))
        cluster.advance(1)
        assert TAKEN == [1, 2, 3, 4, 5]
    assert Counter(TAKEN) == Counter(SETTLED)
    assert len(REFUSED) == 5
    assert all("is being stopped" in text for text in REFUSED)


def test_emissions_of_ack_in_a_stopping_task_get_a_final_call_too() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            topology(Stubborn(stream="unread"))
        )  # each emission is acked at once, and leads to another
        cluster.advance(0.001)
    assert len(TAKEN) > 5
    assert Counter(TAKEN) == Counter(SETTLED)


def test_a_final_call_is_given_without_acking_too() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Stubborn()), conf={"topology.acking": False})
        cluster.advance(0.001)
    assert len(TAKEN) > 5
    assert Counter(TAKEN) == Counter(SETTLED)


def test_a_refusal_of_a_stopped_task_is_not_reported_as_a_user_error() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Stubborn(caught=False)))
        cluster.advance(1)
        cluster.kill("stubborn", wait_secs=0)
        cluster.advance(1)
        status = cluster.last_status("stubborn")
    assert len(REFUSED) == 5
    assert status.components["numbers"].errors == 0
    assert status.components["numbers"].failed == 5
