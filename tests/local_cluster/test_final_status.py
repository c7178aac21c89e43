"""The status of trees that failed for good, and of a topology that is gone."""

from __future__ import annotations

import pytest

from local_cluster import LocalCluster
from nimbus.lifecycle.states import IllegalTransition
from squall.settings import Overrides
from topology_api import (
    Bolt,
    Context,
    Fields,
    NoSuchTopology,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)


class Three(Spout):
    """Emits 0, 1 and 2, then rests."""

    outputs = Fields("number")
    replay = Replay(max_attempts=2, first_delay=1.0)

    def __init__(self) -> None:
        self.left = [0, 1, 2]

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.pop(0)
            self.emit((number,), message_id=number)


class RefusesOne(Bolt):
    """Raises for 1, keeps 2, acks the others."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 1:
            raise ValueError("one is refused")
        if tup["number"] != 2:
            self.ack(tup)


def topology() -> Topology:
    builder = TopologyBuilder("three")
    builder.set_spout("numbers", Three())
    builder.set_bolt("refuse", RefusesOne()).shuffle_grouping("numbers")
    return builder.build()


def test_a_spout_counts_its_failures_by_reason_and_keeps_the_first_one() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology())
        cluster.advance(2.0)
        spout = cluster.status("three").components["numbers"]
        assert (spout.acked, spout.failed, spout.pending) == (1, 1, 1)
        assert spout.failures == {"failed": 1}
        assert spout.first_failure.startswith(
            "message id 1: failed in refuse[2] after 2 attempts: ValueError: one is refused ("
        )
        assert spout.first_failure.endswith(", in execute)")


def test_the_final_status_of_a_killed_topology_is_available_when_it_is_gone() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology())
        cluster.advance(2.0)
        cluster.kill("three", wait_secs=5)
        cluster.advance(6.0)
        with pytest.raises(NoSuchTopology):
            cluster.status("three")
        status = cluster.last_status("three")
        assert (status.state, status.workers) == ("KILLED", 0)
        spout = status.components["numbers"]
        assert (spout.emitted, spout.acked, spout.failed, spout.pending) == (3, 1, 2, 0)
        assert spout.failures == {"failed": 1, "stopped": 1}


def test_the_final_status_of_an_unknown_topology_is_an_error() -> None:
    with LocalCluster(simulated_time=True) as cluster, pytest.raises(NoSuchTopology):
        cluster.last_status("three")


def test_only_the_latest_ended_topologies_are_remembered() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        for number in range(6):
            cluster.submit(topology(), name=f"three-{number}")
            cluster.kill(f"three-{number}", wait_secs=0)
            cluster.advance(1.0)
        assert cluster.last_status("three-5").state == "KILLED"
        with pytest.raises(NoSuchTopology):
            cluster.last_status("three-0")


def test_settings_of_a_single_component_can_be_given_with_submit() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(), Overrides(components={"numbers": {"topology.max.spout.pending": 1}}))
        cluster.advance(1.5)
        spout = cluster.status("three").components["numbers"]
        assert (spout.emitted, spout.pending) == (3, 1)
        assert spout.idle == "pending limit"


class Ends(Three):
    def next_tuple(self) -> None:
        self.finish()


def test_a_spout_without_tasks_says_whether_it_has_finished_or_was_never_opened() -> None:
    builder = TopologyBuilder("ends")
    builder.set_spout("numbers", Ends())
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(), active=False)
        assert cluster.status("three").components["numbers"].idle == "inactive"
        cluster.submit(builder.build())
        cluster.advance(1.0)
        assert cluster.status("ends").state == "COMPLETED"
        assert cluster.status("ends").components["numbers"].idle == "finished"


class WaitsForServer(Spout):
    """Waits for a server until the time is 3."""

    outputs = Fields("number")

    def open(self, context: Context) -> None:
        self.context = context

    def next_tuple(self) -> float | None:
        if self.context.now() < 3.0:
            self.context.progress("waiting for the server")
        else:
            self.context.progress("")
        return 1.0


@pytest.mark.parametrize("threaded", [False, True])
def test_what_a_spout_waits_for_is_shown_between_its_calls(threaded: bool) -> None:
    builder = TopologyBuilder("away")
    spout = WaitsForServer()
    spout.threaded = threaded
    builder.set_spout("numbers", spout)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(1.5)
        assert cluster.status("away").components["numbers"].idle == "waiting for the server"
        cluster.advance(3.0)
        assert cluster.status("away").components["numbers"].idle == "source empty"


def test_a_topology_that_is_given_up_fails_with_the_given_reason() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology())
        cluster.advance(1)
        cluster.fail("three", "refuse[2] can never be opened")
        cluster.advance(1)
        status = cluster.status("three")
        assert (status.state, status.error, status.workers) == ("FAILED", "refuse[2] can never be opened", 0)
        assert status.components["numbers"].failures["stopped"] == 1
        with pytest.raises(TopologyFailed, match="can never be opened"):
            cluster.wait("three")
        with pytest.raises(IllegalTransition):
            cluster.fail("three", "again")
        with pytest.raises(NoSuchTopology):
            cluster.fail("four", "it is not there")
