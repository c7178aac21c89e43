"""Bolts that ack their tuples themselves, in topologies whose state is at a path: what they hold survives, and counts once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.keeping_words import Gathers
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Forward,
    Newest,
    Pass,
    Words,
    counts,
    expected,
    snapshots_at,
    words,
)
from topology_api import Bolt, Context, InvalidConfig, Replay, Topology, TopologyBuilder, Tuple


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.2, **more}


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(at, marks=pytest.mark.soak) for at in range(2, 30))]
)
def test_what_a_bolt_holds_counts_once_however_often_the_cluster_starts_again(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    held = 0
    for start in range(4):
        conf = conf_at(
            tmp_path,
            **{
                "topology.epoch.secs": 0.4,
                "topology.queue.size": draw.choice([16, 4096]),
                "topology.workers": draw.choice([1, 2, 3]),
            },
        )
        topology = words(
            Words(250, 100), Gathers(draw.choice([3, 50]), 0.1), Count(0.1), draw.choice([1, 2, 3, 5])
        )
        with LocalCluster(simulated_time=True, seed=draw.getrandbits(32)) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(5 if start == 3 else draw.uniform(0.5, 1.5))
            if start == 3:
                assert counts(cluster) == expected(list(range(250)))
                assert cluster.dead_letters("words") == []
        held += sum(len(snapshot.held) for snapshot in snapshots_at(tmp_path / "words"))
    assert held, "no snapshot held anything"


def test_a_tuple_that_its_bolt_always_fails_is_one_dead_letter_and_the_call_stands(tmp_path: Path) -> None:
    spout = Words(100)
    spout.replay = Replay(max_attempts=3, first_delay=0.01, max_delay=0.1)
    poison = frozenset({3, 50})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, Gathers(poison=poison), Count()), conf_at(tmp_path))
        cluster.advance(5)
        assert counts(cluster) == expected([number for number in range(100) if number not in poison])
        letters = cluster.dead_letters("words")
        assert sorted(letter.values[1] for letter in letters) == [3, 50]
        assert {(letter.failure.component, letter.failure.attempts) for letter in letters} == {("pass", 3)}
        assert {letter.failure.error for letter in letters} == {"not now"}


class Raises(Gathers):
    """Raises once in the middle of settling: what it settled before has not happened."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.raised = False

    def settle(self) -> None:
        for tup in self.own:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            self.ack(tup)
            if tup["number"] == 12 and not self.raised:
                self.raised = True
                raise OSError("once")
        self.own = []

    def execute(self, tup: Tuple) -> None:
        self.own.append(tup)


def test_what_a_call_that_raises_has_acked_is_still_held(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(40, 100), Raises(), Count(), 1), conf_at(tmp_path))
        cluster.advance(5)
        assert counts(cluster) == expected(list(range(40)))


class Forgets(Pass):
    """Never settles one tuple, and settles it too late if it is asked to."""

    auto_ack = False
    tick_interval = 1.0

    def __init__(self, resets: bool = False) -> None:
        super().__init__()
        self.resets = resets
        self.age = 0

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.late: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 5:
            self.late.append(tup)
            return
        self.emit((tup["word"], tup["number"]))
        self.ack(tup)

    def tick(self) -> None:
        self.age += 1
        for tup in self.late if self.age < 9 else ():
            if self.resets:
                self.reset_timeout(tup)
        if self.age >= 9:
            for tup in self.late:
                self.ack(tup)
            self.late = []


@pytest.mark.parametrize(
    "spout", [Words(20), Forward(20), Finite(20)], ids=["goes on", "no position", "ends"]
)
def test_a_tuple_that_a_bolt_forgets_is_a_dead_letter_that_names_it(tmp_path: Path, spout: Any) -> None:
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 5, "topology.epoch.secs": 0.5})
    rest = [number for number in range(20) if number != 5]
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(spout, Forgets(), Count()), conf)
        cluster.advance(3)
        assert cluster.dead_letters("words") == []
        assert counts(cluster) == expected(rest)
        cluster.advance(4)
        [letter] = cluster.dead_letters("words")
        assert (letter.component, letter.values, letter.fields) == ("pass", ("w5", 5), ("word", "number"))
        status = cluster.last_status("words")
        assert "held for longer than 5 s" in (letter.failure.error or "")
        assert any("pass[" in error.text and "has forgotten" in error.text for error in status.errors)
        cluster.advance(4)  # its late ack does nothing
        assert [error.call for error in cluster.last_status("words").errors] == [""]
        assert len(cluster.dead_letters("words")) == 1
        if isinstance(spout, Finite):
            assert cluster.last_status("words").state == "COMPLETED"


def test_a_tuple_whose_timeout_is_reset_is_not_forgotten(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 5, "topology.epoch.secs": 0.5})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(20), Forgets(resets=True), Count(), 1), conf)
        cluster.advance(15)
        status = cluster.last_status("words")
        assert (cluster.dead_letters("words"), status.errors) == ([], ())
        assert status.components["pass"].acked == 20


class AtEnd(Gathers):
    """Settles what it holds when its input ends. Its tuples are in no tree, so nothing else waits for them."""

    tick_interval = None  # type: ignore[assignment]

    def end_of_input(self) -> None:
        for tup in self.own:
            if tup["number"] % 10 == 3 and tup["number"] != 13:
                self.fail(tup, "at the end")
            elif tup["number"] != 13:
                self.emit((tup["word"], tup["number"]))
                self.ack(tup)

    def execute(self, tup: Tuple) -> None:
        if self.at_end or tup["number"] % 2 == 0:
            self.emit((tup["word"], tup["number"]))
            self.ack(tup)
        else:
            self.own.append(tup)

    @property
    def at_end(self) -> bool:
        return any(tup["number"] == 13 for tup in self.own)


class WithoutIds(Finite):
    def emit(self, values: Any, *, message_id: object = None, stream: str = "default") -> None:
        super().emit(values, stream=stream)


def test_what_end_of_input_settles_counts_and_what_it_leaves_is_a_dead_letter(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", WithoutIds(50))
    builder.set_bolt("pass", AtEnd()).shuffle_grouping("words")
    builder.set_bolt("total", Total(str(tmp_path / "total"))).shuffle_grouping("pass")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path / "state"))
        cluster.advance(5)
        assert cluster.last_status("words").state == "COMPLETED"
        [letter] = cluster.dead_letters("words")
        assert letter.values == ("w6", 13)
        assert "its input has ended" in (letter.failure.error or "")
    assert sorted(map(int, (tmp_path / "total").read_text().split())) == [at for at in range(50) if at != 13]


class Total(Bolt):
    """Writes the numbers that it got."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, context: Context) -> None:
        self.got: list[int] = []

    def execute(self, tup: Tuple) -> None:
        self.got.append(tup["number"])

    def end_of_input(self) -> None:
        Path(self.path).write_text(" ".join(map(str, self.got)))


class KeyedHolder(Gathers):
    """Settles the tuples of a word when it has a certain number of them: they must be in one task."""

    tick_interval = None  # type: ignore[assignment]

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.by_word: dict[str, list[Tuple]] = {}

    def execute(self, tup: Tuple) -> None:
        own = self.by_word.setdefault(tup["word"], [])
        own.append(tup)
        if len(own) == self.most:
            for each in self.by_word.pop(tup["word"]):
                self.emit((each["word"], each["number"]), anchors=each)
                self.ack(each)


def grouped(count: int, between: Bolt, parallelism: int) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(count))
    builder.set_bolt("pass", between, parallelism).fields_grouping("words", "word")
    builder.set_bolt("count", Count()).fields_grouping("pass", "word")
    builder.set_bolt("newest", Newest()).fields_grouping("count", "word")
    return builder.build()


def test_held_tuples_go_to_the_task_of_their_key_when_the_number_of_tasks_changes(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, **{"topology.message.timeout.secs": 1000})
    for total, tasks in ((7 * 4, 2), (7 * 6, 5), (7 * 8, 3), (7 * 10, 1)):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(grouped(total, KeyedHolder(most=10), tasks), conf)
            cluster.advance(2)
            if total < 70:
                assert cluster.status("words").components["count"].executed == 0
            else:
                assert counts(cluster) == expected(list(range(70)))


class StatefulRich(Count):
    auto_ack = False


def test_a_stateful_bolt_that_acks_itself_is_refused_with_the_reason(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster, pytest.raises(InvalidConfig) as caught:
        cluster.submit(words(Words(1), Pass(), StatefulRich()), conf_at(tmp_path))
    assert "component 'count' acks itself (auto_ack is False) and has state" in str(caught.value)
    assert "keep what waits in a ListState" in str(caught.value)
