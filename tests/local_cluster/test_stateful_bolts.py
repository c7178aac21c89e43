"""Stateful bolts in the testing tools and in local clusters: each key has its own state, and a call is all or nothing."""

from __future__ import annotations

import copy
import time
from collections import Counter
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import TICK, Pause, ScriptedSpout, complete_topology, run_bolt
from topology_api import (
    BroadcastState,
    FailTuple,
    Fields,
    InvalidTopology,
    ListState,
    MapState,
    Spout,
    StateError,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

CAP = 60.0


class Count(StatefulBolt):
    """Counts each word, and says after a quiet minute how often it came."""

    key = "word"
    outputs = Fields("word", "count")
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.emit((tup["word"], self.times.value))
        if tup["word"] == "bad":
            raise ValueError("a bad word")
        self.timer_after(60, name="quiet")

    def on_timer(self, name: str, time: float) -> None:
        self.emit((f"{self.current_key} was {name}", self.times.value))


def test_each_key_has_its_own_state() -> None:
    run = run_bolt(Count(), [("a",), ("b",), ("a",)], source_fields="word")
    assert run.emitted() == [("a", 1), ("b", 1), ("a", 2)]
    assert (run.keys(), run.state("a"), run.state("b")) == (["a", "b"], {"times": 2}, {"times": 1})
    assert run.state("never seen") == {"times": 0}


def test_a_call_that_raises_has_changed_and_emitted_nothing() -> None:
    run = run_bolt(Count(), [("bad",), ("a",), ("bad",)], source_fields="word")
    assert run.emitted() == [("a", 1)]
    assert run.keys() == ["a"]
    assert [tup for tup, _ in run.failed()] == [("bad",), ("bad",)]


def test_a_bolt_continues_with_the_state_that_a_test_gives() -> None:
    run = run_bolt(Count(), [("a",)], source_fields="word", keys={"a": {"times": 41}})
    assert run.emitted() == [("a", 42)]
    with pytest.raises(StateError, match="there is no state 'time'; did you mean 'times'"):
        run_bolt(Count(), [], source_fields="word", keys={"a": {"time": 1}})
    with pytest.raises(StateError, match="state 'times', key 'a', cannot be kept as int: 'one'"):
        run_bolt(Count(), [], source_fields="word", keys={"a": {"times": "one"}})


def test_timers_fire_in_order_and_a_later_one_of_the_same_name_replaces_the_first() -> None:
    run = run_bolt(Count(), [("a",), Pause(30), ("b",), Pause(20), ("a",), Pause(100)], source_fields="word")
    assert run.emitted()[3:] == [("b was quiet", 1), ("a was quiet", 2)]


class Retry(StatefulBolt):
    """A timer that fails twice."""

    key = "word"
    outputs = Fields("tries", "time")
    tries = ValueState(int, default=0)
    failures = [True, True]

    def execute(self, tup: Tuple) -> None:
        self.timer_after(10)
        self.timer_after(5, name="not this one")
        assert self.cancel_timer(name="not this one")
        assert not self.cancel_timer(name="not this one")

    def on_timer(self, name: str, time: float) -> None:
        self.tries.value += 1
        self.emit((self.tries.value, time))
        if self.failures:
            self.failures.pop()
            raise OSError("the store is away")


def test_a_timer_that_raises_is_tried_again_and_has_changed_nothing() -> None:
    run = run_bolt(Retry(), [("a",), Pause(30)], source_fields="word")
    assert run.emitted() == [(1, 10.0)]
    assert [(error.call, error.times) for error in run.errors] == [("on_timer", 2)]
    assert "timer '' of key 'a'" in run.errors[0].render()


class Resets(Retry):
    """Sets the timer again after its call has raised."""

    failures = [True]

    def execute(self, tup: Tuple) -> None:
        self.timer_after(10)


def test_a_timer_that_is_set_again_after_an_error_has_its_new_time() -> None:
    run = run_bolt(Resets(), [("a",), Pause(10.5), ("a",), Pause(30)], source_fields="word")
    assert run.emitted() == [(1, 20.5)]


class Forgets(StatefulBolt):
    """Keeps a value, an element and an item of each key for a minute."""

    key = "word"
    value = ValueState(int, ttl=60)
    row = ListState(int, ttl=60)
    items = MapState(str, int, ttl=60)

    def execute(self, tup: Tuple) -> None:
        self.value.value = 1
        self.row.append(1)
        self.items["a"] = 1


class Restless(Count):
    """Sets its timer again, for now."""

    def on_timer(self, name: str, time: float) -> None:
        self.times.value += 100
        self.timer_after(0, name=name)


def test_a_timer_that_is_set_again_for_now_does_not_stop_the_clock() -> None:
    run = run_bolt(Restless(), [("a",), Pause(60.01)], source_fields="word")
    assert run.state("a")["times"] in (1 + 10 * 100, 1 + 11 * 100)  # one more if 60.01 - 60 is rounded up


def test_a_key_that_never_comes_again_does_not_stay_beyond_its_ttl() -> None:
    inputs = [*((f"w{number}",) for number in range(500)), Pause(61), ("last",), ("one more",)]
    assert run_bolt(Forgets(), inputs, source_fields="word").keys() == ["last", "one more"]


class Everything(StatefulBolt):
    key = ("a", "b")
    outputs = Fields("out")
    values = ValueState(list[int], default=[])
    row = ListState(str)
    items = MapState(str, float)

    def execute(self, tup: Tuple) -> None:
        self.values.value.append(tup["n"])
        self.row += [str(tup["n"])]  # type: ignore[operator] # assigns what is there
        self.items[str(tup["n"])] = tup["n"]
        if tup["n"] < 0:
            raise FailTuple("negative")
        self.emit((self.current_key,))


def test_values_lists_and_maps_of_a_key_of_two_fields() -> None:
    inputs = [
        {"a": 1, "b": "x", "n": 1},
        {"a": 1.0, "b": "x", "n": 2},
        {"a": 2, "b": "x", "n": 3},
        {"a": 1, "b": "x", "n": -1},
    ]
    run = run_bolt(Everything(), inputs)
    assert run.emitted() == [((1, "x"),), ((1.0, "x"),), ((2, "x"),)]
    assert run.state((1, "x")) == {"values": [1, 2], "row": ["1", "2"], "items": {"1": 1.0, "2": 2.0}}
    assert run.state((2, "x")) == {"values": [3], "row": ["3"], "items": {"3": 3.0}}


class Misuse(StatefulBolt):
    key = "what"
    number = ValueState(int, default=0)
    numbers = MapState(str, int)
    rules = BroadcastState(dict[str, int], default={})
    keys = ("int", "map", "broadcast")
    outputs = Fields("copy")

    def prepare(self, context: Any) -> None:
        with pytest.raises(StateError, match="no key is at hand"):
            _ = self.number.value

    def tick(self) -> None:
        for use in (lambda: self.timer_after(1), lambda: self.current_key, lambda: len(self.numbers)):
            with pytest.raises(StateError, match=r"component .bolt. .task 2.: .* no key is at hand"):
                use()

    def execute(self, tup: Tuple) -> None:
        if tup["what"] == "int":
            self.number.value = "1"
        elif tup["what"] == "map":
            self.numbers["a"] = 1.5
        elif tup["what"] == "broadcast":
            self.rules.value = {"a": 1}
        elif tup["what"] == "timer":
            self.timer_after(-1)
        elif tup["what"] == "name":
            self.timer_after(1, name=5)  # type: ignore[arg-type]
        elif tup["what"] == "copy":
            self.emit((copy.deepcopy(self.numbers),))
        elif tup["what"] == "add":
            self.number += 1  # type: ignore[operator,assignment]
        elif tup["what"] == "assign":
            self.number.value = 4
            self.number = 5  # type: ignore[assignment]
        else:
            del self.number


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("int", "state 'number' of key 'int' is declared as int, got '1' (str)"),
        ("map", "state 'numbers' of key 'map' is declared as int, got 1.5 (float)"),
        ("broadcast", "state 'rules' is a BroadcastState"),
        ("timer", "timer_after(seconds=-1): it is -1: give a number of seconds"),
        ("name", "the name of a timer is 5"),
        (
            "copy",
            "self.numbers is the state itself, and works only in calls of this task: emit, or keep, what it holds",
        ),
        ("add", "self.number is a state: write self.number.value += ..."),
        (
            "assign",
            "Misuse: self.number is a ValueState of the class, and cannot be replaced by 5 (int): write self.number.value = 5",
        ),
        (
            "delete",
            "Misuse: self.number is a ValueState of the class, and cannot be deleted: write self.number.clear()",
        ),
    ],
)
def test_misuse_fails_the_tuple_with_the_state_and_the_key(what: str, text: str) -> None:
    run = run_bolt(Misuse(), [TICK, (what,)], source_fields="what")
    assert [each for each, _ in run.failed()] == [(what,)]
    assert text in run.errors[0].render()
    assert run.keys() == []


class Rules(StatefulBolt):
    """Multiplies each number by the newest factor, which all tasks get."""

    key = "n"
    outputs = Fields("product")
    factor = BroadcastState(int, default=1)
    seen = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        if tup.component == "factors":
            self.factor.value = tup["factor"]
            with pytest.raises(StateError, match="no key is at hand"):
                self.seen.value += 1
        else:
            self.seen.value += 1
            self.emit((tup["n"] * self.factor.value,))


class Numbers(Spout):
    outputs = Fields("n")

    def open(self, context: Any) -> None:
        self.left = list(range(10))

    def next_tuple(self) -> float | None:
        if not self.left:
            self.finish()
            return None
        self.emit((self.left[0],), message_id=self.left.pop(0))
        return 1.0


class Factors(Spout):
    outputs = Fields("factor")
    sent = False

    def next_tuple(self) -> float | None:
        if not self.sent:
            self.sent = True
            return 4.5
        self.emit((100,), message_id=1)
        self.finish()
        return None


def rules() -> Topology:
    builder = TopologyBuilder("rules")
    builder.set_spout("numbers", Numbers())
    builder.set_spout("factors", Factors())
    bolt = builder.set_bolt("rules", Rules(), parallelism=3)
    bolt.fields_grouping("numbers", "n").all_grouping("factors")
    return builder.build()


def test_all_tasks_get_what_a_broadcast_state_is_written_for() -> None:
    done = complete_topology(rules())
    assert sorted(value for (value,) in done.emitted("rules")) == [0, 1, 2, 3, 4, 500, 600, 700, 800, 900]
    assert not done.errors


class Words(Spout):
    outputs = Fields("word")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Any) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < self.count:
            self.emit((f"w{self.number % 7}",), message_id=self.number)
            self.number += 1
        elif self.count == 100:
            self.finish()


class Sometimes(Count):
    """Raises at the first attempt of each third word."""

    failed = MapState(str, int)
    seen: set[tuple[str, int]] = set()

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.emit((tup["word"], self.times.value))
        if self.times.value % 3 == 0 and (tup["word"], self.times.value) not in self.seen:
            self.seen.add((tup["word"], self.times.value))
            raise ValueError("once")


def counts(bolt: StatefulBolt, count: int = 100) -> Topology:
    builder = TopologyBuilder("counts")
    builder.set_spout("words", Words(count))
    builder.set_bolt("count", bolt, parallelism=2).fields_grouping("words", "word")
    return builder.build()


EXPECTED = Counter(f"w{number % 7}" for number in range(100))


def test_a_replayed_word_counts_once_in_the_bolt_where_it_failed() -> None:
    Sometimes.seen.clear()
    done = complete_topology(counts(Sometimes()))
    assert {
        word: max(n for each, n in done.emitted("count") if each == word) for word in EXPECTED
    } == EXPECTED
    assert len(done.emitted("count")) == 100


def test_a_cluster_in_this_process_tells_the_state_of_a_key() -> None:
    with LocalCluster() as cluster:
        cluster.submit(counts(Count(), 99))
        end = time.monotonic() + CAP
        while cluster.status("counts").components["count"].executed < 99:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert cluster.state("counts", "count", "w0") == {"times": 15}
        assert cluster.state("counts", "count", "nothing") == {"times": 0}
        with pytest.raises(StateError, match="'words' of topology 'counts' is no StatefulBolt"):
            cluster.state("counts", "words", "w0")


def test_worker_processes_run_stateful_bolts() -> None:
    with LocalCluster(processes=True) as cluster:
        cluster.submit(counts(Count()), {"topology.workers": 2})
        cluster.wait("counts", CAP)
        status = cluster.status("counts")
        assert (status.components["count"].executed, status.components["words"].acked) == (100, 100)


class Keeps(StatefulBolt):
    """Keeps a list outside of its state."""

    key = "word"
    numbers = ValueState(list[int], default=[])
    rows = MapState(str, list[int])
    anything = ValueState(dict[str, Any], default={})

    def execute(self, tup: Tuple) -> None:
        if tup["word"] == "read":
            self.kept = self.numbers.value
        elif tup["word"] == "change":
            self.kept.append(1)
        elif tup["word"] == "kept":
            self.row = self.rows.setdefault("a", [1])
        elif tup["word"] == "change it":
            self.row.append(2)
        elif tup["word"] == "odd":
            self.anything.value["x"] = object()


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (("read", "change"), "state 'numbers', key 'read'"),
        (("kept", "change it"), "state 'rows', key 'kept'"),
    ],
)
def test_a_value_that_is_changed_behind_its_state_is_found(words: tuple[str, ...], state: str) -> None:
    with pytest.raises(
        StateError, match=rf"component 'bolt' .task 2.: execute\(\) changed the value of {state}, in place"
    ):
        run_bolt(Keeps(), [(word,) for word in words], source_fields="word")
    assert run_bolt(Keeps(), [("read",), ("read",), ("kept",), ("kept",)], source_fields="word").state("kept")


def test_a_topology_in_a_test_finds_a_value_that_is_changed_behind_its_state() -> None:
    builder = TopologyBuilder("keeps")
    builder.set_spout("words", ScriptedSpout("word", [("read",), ("change",)]))
    builder.set_bolt("keeps", Keeps()).fields_grouping("words", "word")
    with pytest.raises(
        StateError, match=r"component 'keeps' .*execute\(\) changed the value of state 'numbers'"
    ):
        complete_topology(builder.build())


def test_a_value_that_cannot_be_kept_fails_the_call_that_made_it() -> None:
    run = run_bolt(Keeps(), [("odd",)], source_fields="word")
    assert [tup for tup, _ in run.failed()] == [("odd",)]
    assert (
        "the value of state 'anything', key 'odd', cannot be kept as dict[str, typing.Any]"
        in run.errors[0].render()
    )
    assert run.keys() == []


class Blocking(Count):
    threaded = True


class Rich(Count):
    """Acks its tuples itself, before it raises: then the ack has not happened."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.ack(tup)
        if tup["word"] == "bad":
            raise ValueError("after the ack")


def test_a_threaded_task_has_state_too() -> None:
    done = complete_topology(counts(Blocking()))
    assert max(n for word, n in done.emitted("count") if word == "w0") == EXPECTED["w0"]
    with LocalCluster() as cluster:
        cluster.submit(counts(Blocking()))
        cluster.wait("counts", CAP)
        assert cluster.status("counts").components["count"].emitted >= 100


def test_an_ack_before_an_error_has_not_happened() -> None:
    run = run_bolt(Rich(), [("a",), ("bad",)], source_fields="word")
    assert run.acked() == [("a",)]
    assert [tup for tup, _ in run.failed()] == [("bad",)]


def test_keys_are_for_stateful_bolts_only() -> None:
    from topology_api import Bolt

    class Plain(Bolt):
        def execute(self, tup: Tuple) -> None:
            pass

    with pytest.raises(InvalidTopology, match="keys is given, but Plain is no StatefulBolt"):
        run_bolt(Plain(), [("a",)], keys={"a": {}})
