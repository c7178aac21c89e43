"""Nothing is lost while a store is away, in topologies with state at a path: the rules are those of `test_stores_away`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall_io.files import FileSink
from tests.local_cluster.failing_stores import (
    CALLS,
    FEW_KINDS,
    KINDS,
    ONE_KIND,
    WAIT,
    Away,
    BreaksForAWhile,
    EmitsAndFails,
    Picky,
    Recorded,
    Store,
    Works,
    Writes,
    WritesBatchesPickily,
    away,
)
from tests.rewinding_spout import FromPosition
from topology_api import (
    Context,
    Fields,
    Replay,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)


class Source(FromPosition):
    """Emits 0 … count-1, one each `every` seconds."""

    outputs = Fields("value")

    def __init__(self, count: int, every: float, replay: Replay | None = None, ends: bool = True) -> None:
        self.count, self.every, self.ends = count, every, ends
        self.replay = replay or Replay()

    def next_tuple(self) -> float:
        if self.at < self.count:
            self.emit((self.at,), message_id=self.at)
            self.at += 1
        if self.at == self.count and self.ends:
            self.finish()
        return self.every if self.at < self.count else 5.0


def writing(bolt: Any, source: Source, tasks: int = 1, grouping: str = "shuffle") -> Topology:
    builder = TopologyBuilder("orders")
    builder.set_spout("source", source)
    declarer = builder.set_bolt("store", bolt, parallelism=tasks)
    if grouping == "shuffle":
        declarer.shuffle_grouping("source")
    else:
        declarer.fields_grouping("source", "value")
    return builder.build()


class Ran:
    """A topology that has ended."""

    def __init__(self, folder: Path, topology: Topology, most_secs: float = 2_000.0, **conf: Any) -> None:
        settings = {
            "topology.on.outage": "wait",
            "topology.state.path": f"file://{folder}/state",
            "topology.epoch.secs": 1.0,
            **conf,
        }
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology, settings)
            self.seconds = 0.0
            while cluster.last_status("orders").state == "ACTIVE":
                cluster.advance(5)
                self.seconds += 5.0
                assert self.seconds < most_secs, cluster.status("orders")
            status = cluster.last_status("orders")
            self.letters = cluster.dead_letters("orders")
            self.given_up = sorted(letter.values[0] for letter in self.letters)
            self.attempts = {letter.failure.attempts for letter in self.letters}
            assert status.state == "COMPLETED", status.errors
            self.acked = status.components["source"].acked


def run(folder: Path, kind: Any, works: Works, count: int, every: float, **more: Any) -> Ran:
    return Ran(folder, writing(kind(Store(works)), Source(count, every, **more)))


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_store_that_is_away_for_ten_minutes_loses_nothing_and_is_called_seldom(
    tmp_path: Path, kind: Any
) -> None:
    CALLS.clear()
    ran = Ran(tmp_path, writing(kind(Recorded(away(5.0, 605.0))), Source(500, 0.03)))
    assert (ran.given_up, ran.acked) == ([], 500)
    assert ran.seconds < 605.0 + 85.0
    probes = [value for value, now in CALLS if 20.0 < now < 605.0]
    assert 5 < len(probes) < 30
    assert max(Counter(probes).values()) == 1, "another tuple each time"


@pytest.mark.soak  # ten minutes, above
@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_store_that_is_away_for_ten_seconds_loses_nothing(tmp_path: Path, kind: Any) -> None:
    ran = run(tmp_path, kind, away(5.0, 15.0), 500, 0.03)
    assert (ran.given_up, ran.acked) == ([], 500)
    assert ran.seconds < 15.0 + 25.0


@pytest.mark.parametrize("kind", ONE_KIND)
def test_a_store_that_flaps_unevenly_loses_nothing_and_poison_ends(tmp_path: Path, kind: Any) -> None:
    poison = [50, 51, 52, 120]

    def works(value: Any, now: float) -> bool:
        return value not in poison and (now > 60.0 or now % 4.2 < 1.5)

    ran = run(tmp_path, kind, works, 900, 0.1)
    assert (ran.given_up, ran.acked) == (poison, 900)
    assert ran.seconds < 400.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_poison_tuple_is_given_up_after_three_attempts_and_costs_no_other(
    tmp_path: Path, kind: Any
) -> None:
    ran = run(tmp_path, kind, lambda value, _: value != 100, 300, 0.01)
    assert (ran.given_up, ran.attempts, ran.acked) == ([100], {3}, 300)


@pytest.mark.parametrize("kind", FEW_KINDS)
@pytest.mark.parametrize("poison", [[0], [19], [3, 4, 5, 19]])
def test_poison_ends_wherever_it_is(tmp_path: Path, kind: Any, poison: list[int]) -> None:
    ran = run(tmp_path, kind, lambda value, _: value not in poison, 20, 1.0)
    assert (ran.given_up, ran.acked) == (poison, 20)


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_the_only_tuple_of_a_finite_source_is_given_up_after_its_attempts(tmp_path: Path, kind: Any) -> None:
    ran = run(tmp_path, kind, lambda *_: False, 1, 0.0)
    assert (ran.given_up, ran.attempts) == ([0], {3})


def test_a_tuple_a_minute_survives_an_outage_of_ten_minutes(tmp_path: Path) -> None:
    ran = run(tmp_path, Writes, away(100.0, 700.0), 20, 60.0)
    assert (ran.given_up, ran.acked) == ([], 20)


def test_without_a_limit_a_tuple_is_tried_without_end(tmp_path: Path) -> None:
    replay = Replay(max_attempts=None, first_delay=1.0, max_delay=5.0)
    ran = run(tmp_path, Writes, lambda value, now: value != 3 or now > 300.0, 10, 1.0, replay=replay)
    assert (ran.given_up, ran.acked) == ([], 10)


@pytest.mark.parametrize("kind", [*KINDS[:4], WritesBatchesPickily])
def test_a_tuple_that_is_refused_for_good_is_given_up_in_an_outage_too(tmp_path: Path, kind: Any) -> None:
    ran = Ran(tmp_path, writing(kind(Picky(away(0.0, 100.0))), Source(40, 0.1)))
    assert (ran.given_up, ran.attempts, ran.acked) == ([30], {3}, 40)


class BreaksShortly(Writes):
    """Of its tasks the first fails until second 200."""

    def execute(self, tup: Tuple) -> None:
        if self.context.index == 0 and self.context.now() < 200.0:
            raise Away(f"no answer to {tup[0]}")


def test_shuffled_tuples_go_around_a_broken_task_and_those_that_are_parked_there_wait_for_it(
    tmp_path: Path,
) -> None:
    topology = writing(BreaksShortly(Store(lambda *_: True)), Source(3_000, 0.01), tasks=4)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology, {**WAIT, "topology.state.path": f"file://{tmp_path}/state"})
        cluster.advance(100)
        status = cluster.status("orders").components["store"]
        assert status.acked >= 3_000 - 5.0 / 0.01 / 4 - 20, (
            "what came in the 5 s until the verdict, and probes"
        )
        [down] = status.down
        assert (down.since < 1.0, down.error.startswith("Away: no answer to")) == (True, True)
        cluster.advance(200)
        assert cluster.last_status("orders").state == "COMPLETED"
        assert cluster.last_status("orders").components["store"].acked == 3_000
        assert cluster.dead_letters("orders") == []


def test_tuples_that_belong_to_a_broken_task_wait_for_it(tmp_path: Path) -> None:
    bolt = Writes(BreaksForAWhile(lambda *_: True))
    ran = Ran(tmp_path, writing(bolt, Source(1_000, 0.01), tasks=4, grouping="fields"))
    assert (ran.given_up, ran.acked) == ([], 1_000)
    assert 65.0 < ran.seconds < 140.0


def test_bolts_that_are_down_one_behind_the_other_with_little_room_go_on_afterwards(tmp_path: Path) -> None:
    """The first emits before it fails, and nothing of that leaves it."""
    builder = TopologyBuilder("orders", conf={"topology.queue.size": 64})
    builder.set_spout("source", Source(500, 0.01))
    builder.set_bolt("first", EmitsAndFails(Store(away(2.0, 60.0)))).shuffle_grouping("source")
    builder.set_bolt("store", Writes(Store(away(2.0, 60.0)))).shuffle_grouping("first")
    ran = Ran(tmp_path, builder.build())
    assert (ran.given_up, ran.acked) == ([], 500)


def test_what_fails_for_longer_than_a_tuple_is_tried_without_a_verdict_is_kept_if_its_task_is_down(
    tmp_path: Path,
) -> None:
    """An outage of an hour and a half of an endless source: the task is down, so the hour of the option does not count."""
    with LocalCluster(simulated_time=True) as cluster:
        source = Source(300, 0.02, ends=False)
        conf = {**WAIT, "topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 60}
        cluster.submit(writing(Writes(Store(away(2.0, 5_400.0))), source), conf)
        cluster.advance(5_300)
        assert cluster.dead_letters("orders") == []
        cluster.advance(300)
        assert cluster.status("orders").components["store"].acked == 300
        assert cluster.dead_letters("orders") == []


def test_two_tuples_that_fail_with_nothing_else_to_do_are_shown_and_given_up_after_their_time(
    tmp_path: Path,
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        source = Source(2, 0.1, ends=False)
        conf = {
            **WAIT,
            "topology.state.path": f"file://{tmp_path}/state",
            "topology.outage.give.up.secs": 300,
        }
        cluster.submit(writing(Writes(Store(lambda *_: False)), source), conf)
        cluster.advance(100)
        [tried] = cluster.status("orders").components["store"].undecided
        assert tried.tuples == 2 and tried.until == tried.since + 300
        assert tried.failure.startswith("store: Away: no answer to")
        cluster.advance(300)
        letters = cluster.dead_letters("orders")
        assert sorted(letter.values[0] for letter in letters) == [0, 1]
        assert all(9 <= letter.failure.attempts <= 13 for letter in letters)


def test_epochs_end_while_a_bolt_is_down_and_another_branch_shows_its_rows(tmp_path: Path) -> None:
    """What waits before the marker of an epoch is parked untried, and is in the snapshot: after a restart it is executed."""
    folder, conf = tmp_path / "rows", {**WAIT, "topology.epoch.secs": 1.0}
    conf["topology.state.path"] = f"file://{tmp_path}/state"

    def rows() -> list[int]:
        texts = [path.read_text() for path in folder.glob("[!_.]*")]
        return sorted(json.loads(line)["value"] for text in texts for line in text.splitlines())

    def topology(works: Works) -> Topology:
        builder = TopologyBuilder("orders")
        builder.set_spout("source", Source(200, 1.0))
        builder.set_bolt("store", Writes(Store(works))).shuffle_grouping("source")
        builder.set_bolt("rows", FileSink(folder, "jsonl")).shuffle_grouping("source")
        return builder.build()

    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(lambda *_: False), conf)
        cluster.advance(100)
        status = cluster.status("orders").components
        assert status["store"].down and status["store"].acked == 0
        assert status["source"].acked >= 90 and len(rows()) >= 90
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(lambda *_: True), conf)
        cluster.advance(300)
        assert cluster.last_status("orders").state == "COMPLETED"
        assert cluster.last_status("orders").components["store"].acked == 200
    assert rows() == list(range(200))


class Timed(StatefulBolt):
    """Sets a timer for each key, whose call needs the store too."""

    key = ("value",)
    seen = ValueState(int, default=0)

    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        self.store.write(tup[0], self.context)
        self.timer_after(1.0, name="later")

    def on_timer(self, name: str, time: float) -> None:
        self.store.write("timer", self.context)
        self.seen.value += 1


def test_timers_wait_while_their_task_is_down(tmp_path: Path) -> None:
    CALLS.clear()
    bolt = Timed(Recorded(away(5.0, 305.0)))
    with LocalCluster(simulated_time=True) as cluster:
        topology = writing(bolt, Source(500, 0.02, ends=False), grouping="fields")
        cluster.submit(topology, {**WAIT, "topology.state.path": f"file://{tmp_path}/state"})
        cluster.advance(500)
        assert cluster.status("orders").components["store"].acked == 500
        assert cluster.dead_letters("orders") == []
    calls = [now for value, now in CALLS if value == "timer"]
    assert not [now for now in calls if 15.0 < now < 305.0]
    assert len([now for now in calls if not 5.0 <= now < 305.0]) == 500
