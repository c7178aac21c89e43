"""ScriptedSpout: a spout whose script is data, in every kind of local cluster."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import TICK, Pause, ScriptedSpout, complete_topology
from topology_api import (
    Bolt,
    Context,
    Failure,
    Fields,
    InvalidConfig,
    InvalidTopology,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)


class WhenSeen(Bolt):
    outputs = Fields("letter", "at")

    def prepare(self, context: Context) -> None:
        self.now = context.now
        self.start = context.now()

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["letter"], self.now() - self.start))


class FailsFirst(Bolt):
    """Fails each letter as often as its table says."""

    outputs = Fields("letter", "at")

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures = failures

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute(self, tup: Tuple) -> None:
        letter = tup["letter"]
        self.emit((letter, self.now()))
        if self.failures.get(letter, 0) > 0:
            self.failures[letter] -= 1
            raise ValueError(letter)


def topology_of(spout: Spout, bolt: Bolt, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder("scripted")
    builder.set_spout("script", spout, parallelism=parallelism)
    builder.set_bolt("bolt", bolt).shuffle_grouping("script")
    return builder.build()


def test_message_ids_are_the_positions_in_the_script_pauses_counted() -> None:
    script = [("a",), Pause(1), ("b",), ["c"]]
    done = complete_topology(topology_of(ScriptedSpout(Fields("letter"), script), WhenSeen()))
    assert done.emitted("script") == [("a",), ("b",), ("c",)]
    assert done.acked("script") == [0, 2, 3]
    assert done.failed("script") == []


def test_a_pause_is_as_long_as_it_says_and_costs_no_real_time() -> None:
    script = [Pause(0.5), ("a",), Pause(3600), ("b",), Pause(0), ("c",), Pause(86_400)]
    done = complete_topology(topology_of(ScriptedSpout("letter", script), WhenSeen()))
    assert done.emitted("bolt") == [("a", 0.5), ("b", 3600.5), ("c", 3600.5)]
    assert done.seconds == pytest.approx(3600.5 + 86_400, abs=1e-3)


def test_an_empty_script_finishes_at_once() -> None:
    done = complete_topology(topology_of(ScriptedSpout("letter", []), WhenSeen()))
    assert done.emitted("script") == done.acked("script") == []


def test_a_stream_without_fields_carries_signals() -> None:
    builder = TopologyBuilder("signals")
    builder.set_spout("script", ScriptedSpout(Fields(), [(), ()]))
    done = complete_topology(builder.build())
    assert done.emitted("script") == [(), ()]
    assert done.acked("script") == [0, 1]


def test_of_several_tasks_only_the_first_plays_the_script() -> None:
    done = complete_topology(topology_of(ScriptedSpout("letter", [("a",), ("b",)]), WhenSeen(), 3))
    assert done.emitted("script") == [("a",), ("b",)]
    assert done.acked("script") == [0, 1]


def test_failed_tuples_are_replayed_by_the_default_policy() -> None:
    spout = ScriptedSpout("letter", [("a",), ("b",)])
    done = complete_topology(topology_of(spout, FailsFirst({"a": 2, "b": 3})))
    assert done.emitted("script") == [("a",), ("b",)]
    assert done.acked("script") == [0]
    [(message_id, failure)] = done.failed("script")
    assert (message_id, failure.reason, failure.attempts, failure.component) == (1, "failed", 3, "bolt")
    assert [at for letter, at in done.emitted("bolt") if letter == "b"] == pytest.approx([0, 1, 3])


def test_replay_can_be_switched_off_on_the_instance() -> None:
    spout = ScriptedSpout("letter", [("a",)])
    spout.replay = None
    done = complete_topology(topology_of(spout, FailsFirst({"a": 1})))
    [(message_id, failure)] = done.failed("script")
    assert (message_id, failure.attempts) == (0, 1)


class Echo(ScriptedSpout):
    """A subclass may observe its own acks and failures."""

    heard: list[tuple[Any, ...]] = []

    def ack(self, message_id: Any) -> None:
        self.heard.append(("ack", message_id))

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.heard.append(("fail", message_id))


def test_it_runs_in_a_local_cluster_on_real_time() -> None:
    Echo.heard.clear()
    with LocalCluster() as cluster:
        cluster.submit(topology_of(Echo("letter", [("a",), Pause(0.01), ("b",)]), WhenSeen()))
        cluster.wait("scripted", timeout=30)
        assert cluster.status("scripted").components["bolt"].executed == 2
    assert Echo.heard == [("ack", 0), ("ack", 2)]


def test_it_runs_in_a_local_cluster_on_simulated_time() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology_of(ScriptedSpout("letter", [("a",), Pause(10), ("b",)]), WhenSeen()))
        cluster.advance(9.9)
        assert cluster.status("scripted").components["bolt"].executed == 1
        cluster.advance(0.2)
        assert cluster.status("scripted").state == "COMPLETED"


@pytest.mark.parametrize("script", [None, 5, "abc", b"abc", {"a": 1}])
def test_a_script_that_is_no_list_is_refused(script: Any) -> None:
    with pytest.raises(InvalidTopology, match=r"the script is .*: give a list of value tuples and Pauses"):
        ScriptedSpout("a", script)


def test_a_script_that_does_not_fit_its_fields_is_refused_with_all_problems() -> None:
    with pytest.raises(InvalidTopology) as caught:
        ScriptedSpout(Fields("a", "b"), [(1, 2), (1,), "xy", Pause(1), TICK])
    assert len(caught.value.problems) == 3
    assert "position 1" in caught.value.problems[0]
    assert "'a', 'b'" in caught.value.problems[0]
    assert "position 2" in caught.value.problems[1]
    assert "(value,)" in caught.value.problems[1]
    assert "TICK" in caught.value.problems[2]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1s", None, True])
def test_a_pause_of_invalid_length_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidConfig, match="seconds"):
        Pause(seconds)


def test_pauses_and_tick_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pause(2.5))) == Pause(2.5)
    assert pickle.loads(pickle.dumps(TICK)) is TICK
    assert repr(TICK) == "TICK"
