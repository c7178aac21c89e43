"""Timers whose calls raise, in topologies whose state is at a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import complete_topology
from tests.local_cluster.words_with_state import Words
from topology_api import (
    Bolt,
    Fields,
    ListState,
    Replay,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


def one_bolt(spout: Any, bolt: Bolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    builder.set_bolt("bolt", bolt).fields_grouping("words", "word")
    return builder.build()


class Alarm(StatefulBolt):
    """A timer of its fails until it is cancelled, set again, or passes."""

    key = ("word",)
    seen = ValueState(int, default=0)
    fired = ListState(float)

    def __init__(self, then: str) -> None:
        self.then = then

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        if self.seen.value == 1:
            self.timer_after(0.05, name="alarm")
        elif self.seen.value == 6:
            if self.then == "cancel":
                self.cancel_timer(name="alarm")
            elif self.then == "set":
                self.timer_after(3.0, name="alarm")

    def on_timer(self, name: str, time: float) -> None:
        if self.seen.value < 20:
            raise ValueError("not yet")
        self.fired.append(time)


@pytest.mark.parametrize(("then", "fires"), [("cancel", False), ("set", True), ("wait", True)])
def test_a_timer_that_has_failed_is_restored_as_it_is(tmp_path: Path, then: str, fires: bool) -> None:
    for total, seconds in ((42, 2.0), (200, 60.0)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(one_bolt(Words(total, 100), Alarm(then)), conf_at(tmp_path))
            cluster.advance(seconds)
            found = cluster.state("words", "bolt", "w0")
    assert found["seen"] == 29
    assert len(found["fired"]) == fires


class NeverRings(Alarm):
    """The timer of one key always fails."""

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        if self.seen.value == 1:
            self.timer_after(0.05, name="alarm")

    def on_timer(self, name: str, time: float) -> None:
        if self.current_key == "w3":
            raise ValueError("never")
        self.fired.append(time)


def test_a_timer_that_always_fails_is_one_dead_letter_also_if_its_worker_is_started_again(
    tmp_path: Path,
) -> None:
    spout = Words(42)
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    for seconds in (2.0, 4.0, 30.0):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(one_bolt(spout, NeverRings("")), conf_at(tmp_path))
            cluster.advance(seconds)
            letters = cluster.dead_letters("words")
            assert [len(cluster.state("words", "bolt", f"w{at}")["fired"]) for at in (2, 3)] == [1, 0]
            if letters:
                break
    assert seconds == 4.0, "the failures before the restart count"
    [letter] = letters
    assert (letter.component, letter.fields, letter.values[:2]) == (
        "bolt",
        ("key", "timer", "time"),
        ("w3", "alarm"),
    )
    assert (letter.failure.attempts, letter.failure.error) == (3, "ValueError: never")


class Few(Words):
    """Ends after its last word."""

    def next_tuple(self) -> float | None:
        if self.at >= self.count:
            self.finish()
        return super().next_tuple()


class Bells(StatefulBolt):
    """Sets many timers, and one more in each of their calls."""

    key = ("word",)
    outputs = Fields("name")
    seen = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        for number in range(1_000):
            self.timer_after(0.0, name=str(number))
        self.timer_after(600.0, name="late")

    def on_timer(self, name: str, time: float) -> None:
        self.emit((name,))
        self.timer_after(0.0, name=f"after {name}")


@pytest.mark.parametrize("kept", [True, False])
def test_all_timers_that_are_due_when_the_input_ends_fire(tmp_path: Path, kept: bool) -> None:
    run = complete_topology(one_bolt(Few(1), Bells()), conf=conf_at(tmp_path) if kept else {})
    fired = [name for (name,) in run.emitted("bolt")]
    assert fired[:1_000] == list(map(str, range(1_000)))
    assert "late" not in fired


class Broken(StatefulBolt):
    """Its timer always fails."""

    key = ("word",)
    seen = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.seen.value += 1
        self.timer_after(0.0, name="alarm")

    def on_timer(self, name: str, time: float) -> None:
        raise ValueError("never")


@pytest.mark.parametrize("outage", ["give-up", "wait"])
def test_a_timer_that_fails_when_the_input_has_ended_becomes_a_dead_letter(
    tmp_path: Path, outage: str
) -> None:
    spout = Few(1)
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(one_bolt(spout, Broken()), conf_at(tmp_path, **{"topology.on.outage": outage}))
        cluster.advance(30.0)
        assert cluster.last_status("words").state == "COMPLETED"
        [letter] = cluster.dead_letters("words")
    assert (letter.values[:2], letter.failure.attempts) == (("w0", "alarm"), 3)


def test_a_timer_that_fails_when_the_input_has_ended_may_still_pass(tmp_path: Path) -> None:
    class Passes(Broken):
        outputs = Fields("tries")
        tries = 0

        def on_timer(self, name: str, time: float) -> None:
            self.tries += 1
            if self.tries < 3:
                raise ValueError("not yet")
            self.emit((self.tries,))

    run = complete_topology(one_bolt(Few(1), Passes()), conf=conf_at(tmp_path))
    assert run.emitted("bolt") == [(3,)]
