"""A call that writes what no snapshot can hold costs its own tuple, and all others count once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import (
    Bolt,
    BroadcastState,
    Fields,
    ListState,
    MapState,
    RewindableSpout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

ROWS = 60


class Lock:
    """Equal to all others, and cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class WordWithLock(str):
    """A key like its text, which cannot be pickled."""

    def __new__(cls, text: str) -> WordWithLock:
        made = super().__new__(cls, text)
        made.lock = threading.Lock()  # type: ignore[attr-defined]
        return made


class Numbers(RewindableSpout):
    """Emits (word, number): ten in a second, and number 35 is odd."""

    outputs = Fields("word", "number")

    def position(self) -> int:
        return self.at

    def rewind(self, position: int | None) -> None:
        self.at = position or 0

    def next_tuple(self) -> float:
        if self.at < ROWS:
            self.emit((f"w{self.at % 3}", self.at))
            self.at += 1
        return 0.1


class Odd(StatefulBolt):
    """Counts, and writes for number 35 what cannot be kept, by `how`."""

    key = "word"
    times = ValueState(int, default=0)
    text = ValueState(str)
    plain = ValueState(int)
    lists = ValueState(list[int], default=[])
    elements = ListState(list[int])
    items = MapState(str, int)
    by_number = MapState(str, dict[str, int])
    by_float = MapState(float, int)
    anything = ValueState(object, pickled=True)
    timed = ValueState(int, ttl=100)

    def __init__(self, how: str) -> None:
        self.how = how

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.lists.value.append(tup["number"])
        self.elements.append([tup["number"]])
        self.items[str(tup["number"] % 7)] = tup["number"]
        if tup["number"] == 35:
            self.write()

    def write(self) -> None:
        if self.how == "text":
            self.text.value = "\ud800"
        elif self.how == "plain":
            self.plain.value = 2**64
        elif self.how == "timed":
            self.timed.value = -(2**63) - 1
        elif self.how == "lists":
            self.lists.value.append("no number")
        elif self.how == "elements":
            self.elements.append(["no number"])
        elif self.how == "items":
            self.items["odd"] = 2**64
        elif self.how == "by_number":
            self.by_number["\ud800"] = {}
        elif self.how == "nan":
            self.by_float[float("nan")] = 1
        elif self.how == "anything":
            self.anything.value = Lock()
        elif self.how == "timer":
            self.timer_after(0.05, name="odd")
        elif self.how == "name":
            self.timer_after(5, name="\ud800")

    def on_timer(self, name: str, time: float) -> None:
        self.times.value += 1000
        self.plain.value = 2**64


def topology(bolt: Bolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("odd", bolt, parallelism=2).fields_grouping("numbers", "word")
    return builder.build()


def counts_of(cluster: LocalCluster) -> dict[str, Any]:
    return {word: cluster.state("words", "odd", word) for word in ("w0", "w1", "w2")}


def expected(without: int | None) -> dict[str, list[int]]:
    return {f"w{word}": [at for at in range(word, ROWS, 3) if at != without] for word in range(3)}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("text", "the value of state 'text', key 'w2', cannot be kept as str: '\\ud800'"),
        ("plain", "the value of state 'plain', key 'w2', cannot be kept as int: 18446744073709551616"),
        ("timed", "the value of state 'timed', key 'w2', cannot be kept as int"),
        ("lists", "the value of state 'lists', key 'w2', cannot be kept as list[int]"),
        ("elements", "the value of state 'elements', key 'w2', cannot be kept as list[int]: ['no number']"),
        ("items", "the value of state 'items', key 'w2', cannot be kept as int"),
        ("by_number", "the value of state 'by_number', key 'w2', cannot be kept as str: '\\ud800'"),
        (
            "nan",
            "the value of state 'by_float', key 'w2', cannot be kept as float: nan (float): it is equal to nothing",
        ),
        ("anything", "the value of state 'anything', key 'w2', cannot be kept as object"),
        ("name", "the name of a timer, '\\ud800' (str), cannot be kept"),
        ("timer", "the value of state 'plain', key 'w2', cannot be kept as int: 18446744073709551616"),
    ],
)
def test_the_call_that_writes_it_fails_and_all_others_count_once(tmp_path: Path, how: str, said: str) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Odd(how)), conf)
        cluster.advance(30)
        status = cluster.status("words")
        assert status.state == "ACTIVE"
        [letter] = cluster.dead_letters("words")
        assert letter.failure.error is not None
        assert said in letter.failure.error
        assert "component 'odd' (task " in letter.failure.error
        assert letter.values[:2] == (("w2", 35) if how != "timer" else ("w2", "odd"))
        assert status.epoch is not None
        assert status.epoch.rewinds == 1
        assert (
            said if how != "name" else "the name of a timer, cannot be kept"
        ) in status.epoch.rewind_reason
        before = counts_of(cluster)
    lost = None if how == "timer" else 35
    assert {word: held["lists"] for word, held in before.items()} == expected(lost)
    for held in before.values():
        assert held["times"] == len(held["lists"])
        assert held["elements"] == [[number] for number in held["lists"]]
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Odd(how)), conf)
        cluster.advance(1)
        assert counts_of(cluster) == before


class Rules(Odd):
    """Writes a broadcast state for all tasks."""

    rules = BroadcastState(str, default="")

    def execute(self, tup: Tuple) -> None:
        if tup.component == "rules":
            self.rules.value = tup["rule"]
        else:
            super().execute(tup)


class OneRule(Numbers):
    outputs = Fields("rule")

    def next_tuple(self) -> float:
        if self.at < 2:
            self.emit(("\ud800" if self.at else "fine",))
            self.at += 1
        return 0.3


def test_a_broadcast_state_that_cannot_be_kept_costs_its_tuple_in_each_task(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("numbers", Numbers())
    builder.set_spout("rules", OneRule())
    declarer = builder.set_bolt("odd", Rules("never"), parallelism=2)
    declarer.fields_grouping("numbers", "word").all_grouping("rules")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            builder.build(), {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
        )
        cluster.advance(30)
        letters = cluster.dead_letters("words")
        assert [letter.values for letter in letters] == [("'\\ud800'",)] * 2  # one of each task
        assert all(
            "the value of state 'rules', cannot be kept as str" in str(each.failure) for each in letters
        )
        assert {held["rules"] for held in counts_of(cluster).values()} == {"fine"}


def test_a_key_that_cannot_be_kept_costs_its_tuple(tmp_path: Path) -> None:
    class OddKey(Bolt):
        outputs = Fields("word", "number")

        def execute(self, tup: Tuple) -> None:
            word = WordWithLock("odd") if tup["number"] == 34 else tup["word"]
            self.emit((word, tup["number"]))

    builder = TopologyBuilder("words")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("key", OddKey()).shuffle_grouping("numbers")
    builder.set_bolt("odd", Odd("never"), parallelism=2).fields_grouping("key", "word")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(
            builder.build(), {"topology.state.path": f"file://{tmp_path}", "topology.epoch.secs": 0.2}
        )
        cluster.advance(30)
        assert cluster.status("words").state == "ACTIVE"
        letters = cluster.dead_letters("words")
        assert [letter.component for letter in letters] == ["odd"]
        assert "the key 'odd' (WordWithLock) cannot be kept: TypeError" in str(letters[0].failure.error)
        assert letters[0].why_no_values.endswith("TypeError: cannot pickle '_thread.lock' object")
        assert {word: held["lists"] for word, held in counts_of(cluster).items()} == expected(34)
