"""Topologies whose state is at a path, with several spouts: a tuple that fails is tried as often as its own spout says."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from tests.rewinding_spout import FromPosition
from topology_api import (
    Bolt,
    Fields,
    Replay,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
    ValueState,
)

ONCE, FIVE_TIMES = (
    Replay(max_attempts=1),
    Replay(max_attempts=5, first_delay=0.1, max_delay=0.1),
)


class One(FromPosition):
    """Emits its name once."""

    outputs = Fields("name")

    def __init__(self, name: str, replay: Replay | None, tracked: bool = True) -> None:
        self.name, self.replay, self.tracked = name, replay, tracked

    def next_tuple(self) -> float | None:
        if not self.at:
            self.at = 1
            self.emit((self.name,), message_id=self.name if self.tracked else None)
        return 1.0


class Passes(Bolt):
    outputs = Fields("name")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["name"],))


class Fails(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("never")


class FailsLater(StatefulBolt):
    key = "name"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.timer_after(0.1, name="later")

    def on_timer(self, name: str, time: float) -> None:
        raise ValueError("never")


def attempts(builder: TopologyBuilder, folder: Path, workers: int = 1) -> dict[tuple[str, str], int]:
    """Run a topology; return of each dead letter its bolt and the name, with its attempts."""
    conf = {
        "topology.state.path": f"file://{folder}",
        "topology.on.outage": "give-up",
        "topology.epoch.secs": 0.2,
        "topology.workers": workers,
    }
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf)
        cluster.advance(60)
        letters = cluster.dead_letters("each")
    return {(letter.component, str(letter.values[0])): letter.attempts for letter in letters}


def spouts(
    one: Replay | None = ONCE, five: Replay | None = FIVE_TIMES, tracked: bool = True
) -> TopologyBuilder:
    builder = TopologyBuilder("each")
    builder.set_spout("one", One("one", one, tracked))
    builder.set_spout("five", One("five", five, tracked))
    return builder


def test_a_bolt_follows_the_spout_that_it_reads(tmp_path: Path) -> None:
    builder = spouts()
    builder.set_bolt("of one", Fails()).shuffle_grouping("one")
    builder.set_bolt("of five", Fails()).shuffle_grouping("five")
    assert attempts(builder, tmp_path) == {("of one", "one"): 1, ("of five", "five"): 5}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_bolt_that_several_spouts_reach_knows_the_spout_of_a_tuple(tmp_path: Path, workers: int) -> None:
    builder = spouts()
    builder.set_bolt("pass", Passes()).shuffle_grouping("one").shuffle_grouping("five")
    builder.set_bolt("fail", Fails()).shuffle_grouping("pass")
    assert attempts(builder, tmp_path, workers) == {("fail", "one"): 1, ("fail", "five"): 5}


def test_a_tuple_without_message_id_has_the_most_attempts_that_a_spout_before_its_bolt_gives(
    tmp_path: Path,
) -> None:
    builder = spouts(tracked=False)
    builder.set_bolt("direct", Fails()).shuffle_grouping("one").shuffle_grouping("five")
    builder.set_bolt("pass", Passes()).shuffle_grouping("one").shuffle_grouping("five")
    builder.set_bolt("fail", Fails()).shuffle_grouping("pass")
    found = attempts(builder, tmp_path)
    assert found == {("direct", "one"): 1, ("direct", "five"): 5, ("fail", "one"): 5, ("fail", "five"): 5}


def test_a_spout_that_does_not_replay_gives_one_attempt(tmp_path: Path) -> None:
    builder = spouts(one=None)
    builder.set_bolt("fail", Fails()).shuffle_grouping("one").shuffle_grouping("five")
    assert attempts(builder, tmp_path) == {("fail", "one"): 1, ("fail", "five"): 5}


def test_attempts_without_end_are_the_most(tmp_path: Path) -> None:
    builder = spouts(
        one=FIVE_TIMES, five=Replay(max_attempts=None, first_delay=0.1, max_delay=0.5), tracked=False
    )
    builder.set_bolt("pass", Passes()).shuffle_grouping("one").shuffle_grouping("five")
    builder.set_bolt("fail", Fails()).shuffle_grouping("pass")
    assert attempts(builder, tmp_path) == {}


def test_a_timer_has_the_most_attempts_that_a_spout_before_its_bolt_gives(tmp_path: Path) -> None:
    builder = spouts()
    builder.set_bolt("of one", FailsLater()).fields_grouping("one", "name")
    builder.set_bolt("of both", FailsLater()).fields_grouping("one", "name").fields_grouping("five", "name")
    found = attempts(builder, tmp_path)
    assert found == {("of one", "one"): 1, ("of both", "one"): 5, ("of both", "five"): 5}


def test_a_tuple_keeps_the_attempts_of_its_spout_when_the_cluster_starts_again(tmp_path: Path) -> None:
    def topology() -> TopologyBuilder:
        few = Replay(max_attempts=3, first_delay=5.0, max_delay=5.0)
        builder = spouts(one=few, five=Replay(max_attempts=None, max_delay=5.0))
        builder.set_bolt("pass", Passes()).shuffle_grouping("one").shuffle_grouping("five")
        builder.set_bolt("fail", Fails()).shuffle_grouping("pass")
        return builder

    with LocalCluster(simulated_time=True) as cluster:
        conf = {"topology.state.path": f"file://{tmp_path}", "topology.on.outage": "give-up"}
        cluster.submit(topology().build(), conf)
        cluster.advance(4)
    assert attempts(topology(), tmp_path) == {("fail", "one"): 3}
