"""complete_topology: a topology run to its end on simulated time, and everything that can keep it from there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster.complete import Completed
from local_cluster.testing import Pause, ScriptedSpout, complete_topology
from topology_api import (
    BatchBolt,
    Bolt,
    CannotPack,
    Context,
    Failure,
    Fields,
    Grouping,
    InvalidConfig,
    InvalidTopology,
    Replay,
    Spout,
    SquallError,
    Stream,
    Topology,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)


class Lines(Spout):
    """Never ends by itself."""

    outputs = Fields("line")

    def next_tuple(self) -> None:
        self.emit(("never ending",), message_id=object)


class Idle(Spout):
    """Has nothing, and never says that it never will."""

    outputs = Fields("line")

    def next_tuple(self) -> float:
        return 1000.0


class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup: Tuple) -> None:
        for word in tup["line"].split():
            self.emit((word,))


class Count(Bolt):
    outputs = Fields("word", "count")

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = count = self.counts.get(word, 0) + 1
        self.emit((word, count))


def word_count(lines: Spout | None = None, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder("word-count")
    builder.set_spout("lines", lines or Lines(), parallelism=parallelism)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=3).fields_grouping("split", "word")
    return builder.build()


def one_bolt(bolt: Bolt, script: Sequence[Any], **of_spout: Any) -> Topology:
    """A script (field "x") into one bolt."""
    spout = ScriptedSpout("x", script)
    vars(spout).update(of_spout)
    builder = TopologyBuilder("one-bolt")
    builder.set_spout("script", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("script")
    return builder.build()


# Sources.


def test_a_source_is_replaced_by_fixed_values_whose_ids_are_their_positions() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a b",), ("c",), ["a"]]})
    assert done.emitted("lines") == [("a b",), ("c",), ("a",)]
    assert sorted(done.emitted("split")) == [("a",), ("a",), ("b",), ("c",)]
    assert sorted(done.emitted("count")) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert sorted(done.acked("lines")) == [0, 1, 2]
    assert done.failed("lines") == []
    assert done.errors == ()


def test_the_topology_itself_is_left_as_it_is() -> None:
    topology = word_count()
    first = complete_topology(topology, sources={"lines": [("a",)]})
    second = complete_topology(topology, sources={"lines": [("b",), ("c",)]})
    assert (first.acked("lines"), sorted(second.acked("lines"))) == ([0], [0, 1])


def test_a_replaced_source_keeps_its_tasks_and_emits_its_values_once() -> None:
    done = complete_topology(word_count(parallelism=4), sources={"lines": [("a b",), ("b",)]})
    assert done.status.components["lines"].tasks == 4
    assert sorted(done.emitted("count")) == [("a", 1), ("b", 1), ("b", 2)]


def test_no_values_at_all_complete_at_once() -> None:
    done = complete_topology(word_count(), sources={"lines": []})
    assert done.emitted("lines") == done.emitted("count") == done.acked("lines") == []
    assert done.status.state == "COMPLETED"


class Joined(Bolt):
    outputs = Fields("stream", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup.stream, tup[0]))


class TwoStreams(Spout):
    outputs = {"orders": Fields("order"), "payments": Fields("payment"), "told": Stream("x", direct=True)}
    replay = None

    def next_tuple(self) -> None:
        self.finish()


def two_streams() -> Topology:
    builder = TopologyBuilder("shop")
    builder.set_spout("shop", TwoStreams())
    declarer = builder.set_bolt("join", Joined())
    declarer.shuffle_grouping("shop", stream="orders").shuffle_grouping("shop", stream="payments")
    return builder.build()


def test_a_spout_of_several_streams_gets_values_for_each() -> None:
    done = complete_topology(two_streams(), sources={"shop": {"payments": [(1,), (2,)], "orders": [("a",)]}})
    assert done.emitted("shop", "payments") == [(1,), (2,)]
    assert done.emitted("shop", "orders") == [("a",)]
    assert sorted(done.emitted("join"), key=str) == [("orders", "a"), ("payments", 1), ("payments", 2)]
    assert sorted(done.acked("shop")) == [0, 1, 2]


def test_wrong_sources_are_refused_with_all_problems_and_the_nearest_names() -> None:
    sources: dict[str, Any] = {"lnes": [], "split": [], "lines": [("a", "b"), "c", ("fine",), 3]}
    with pytest.raises(InvalidTopology) as caught:
        complete_topology(word_count(), sources=sources)
    texts = caught.value.problems
    assert len(texts) == 5
    assert "did you mean 'lines'?" in texts[0]
    assert "is a bolt" in texts[1]
    assert "position 0 has 2 value(s)" in texts[2]
    assert "position 1 is 'c' (str)" in texts[3]
    assert "position 3 is 3 (int)" in texts[4]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([(1,)], "give a dict, {stream: values}"),
        ({"order": [(1,)]}, "did you mean 'orders'?"),
        ({"told": [(1,)]}, "is direct"),
        ({"orders": "abc"}, "give a list of value tuples"),
        ({"orders": 7}, "give a list of value tuples"),
    ],
)
def test_wrong_streams_of_a_source_are_refused(values: Any, text: str) -> None:
    with pytest.raises(InvalidTopology) as caught:
        complete_topology(two_streams(), sources={"shop": values})
    assert text in str(caught.value)


def test_values_that_could_not_be_shipped_are_refused_by_their_place() -> None:
    with pytest.raises(CannotPack, match="sources\\['lines'\\]"):
        complete_topology(word_count(), sources={"lines": [(threading.Lock(),)]})


def test_something_else_than_a_topology_is_refused() -> None:
    with pytest.raises(SquallError, match="takes a Topology"):
        complete_topology(TopologyBuilder("x"))  # type: ignore[arg-type]
    with pytest.raises(InvalidTopology, match="give a dict from spout ids"):
        complete_topology(word_count(), sources=[("a",)])  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "60"])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidConfig, match="timeout"):
        complete_topology(word_count(), sources={"lines": []}, timeout=timeout)


# Configuration.


class Shows(Bolt):
    outputs = Fields("value")

    def prepare(self, context: Context) -> None:
        self.conf = context.conf

    def execute(self, tup: Tuple) -> None:
        self.emit((self.conf[tup[0]],))


def test_conf_beats_the_topologys_own() -> None:
    done = complete_topology(one_bolt(Shows(), [("my.key",)]), conf={"my.key": "from the test"})
    assert done.emitted("bolt") == [("from the test",)]


def test_all_problems_of_conf_are_raised() -> None:
    with pytest.raises(InvalidConfig) as caught:
        complete_topology(
            word_count(), sources={"lines": []}, conf={"topology.wrokers": 2, "topology.debug": "yes"}
        )
    assert len(caught.value.problems) == 2


def test_several_workers_give_the_same_result_as_one() -> None:
    lines = [(f"{n % 7} {n % 3} x",) for n in range(60)]
    one = complete_topology(word_count(), sources={"lines": lines})
    three = complete_topology(word_count(), sources={"lines": lines}, conf={"topology.workers": 3})
    assert sorted(one.emitted("count")) == sorted(three.emitted("count"))
    assert sorted(one.acked("lines")) == sorted(three.acked("lines")) == list(range(60))


# Questions about what happened.


def test_questions_about_names_that_there_are_not_are_refused_with_the_nearest() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a",)]})
    with pytest.raises(SquallError, match="did you mean 'split'"):
        done.emitted("splt")
    with pytest.raises(SquallError, match="no output stream 'words'"):
        done.emitted("split", "words")
    with pytest.raises(SquallError, match="is a bolt"):
        done.acked("split")
    with pytest.raises(SquallError, match="did you mean 'lines'"):
        done.failed("linse")


def test_what_is_given_may_be_changed_without_changing_the_record() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a",)]})
    done.emitted("lines").clear()
    done.acked("lines").clear()
    assert (done.emitted("lines"), done.acked("lines")) == ([("a",)], [0])


def test_the_repr_tells_what_each_component_did_and_the_last_error() -> None:
    text = repr(complete_topology(one_bolt(Unlucky({1: 1}), [(1,), (2,)])))
    assert "script: 2 emitted, 2 acked, 0 failed, 1 replayed" in text
    assert "bolt: 3 emitted, 3 executed, 2 acked, 1 failed, 1 errors" in text
    assert "ValueError: unlucky 1" in text


# Failures, replays, dead letters.


class Unlucky(Bolt):
    """Emits the time of each try; raises for values in its table so many times."""

    outputs = Fields("x", "at")

    def __init__(self, tries: dict[int, int]) -> None:
        self.tries = tries

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute(self, tup: Tuple) -> None:
        x = tup["x"]
        self.emit((x, self.now()))
        if self.tries.get(x, 0) > 0:
            self.tries[x] -= 1
            raise ValueError(f"unlucky {x}")


def test_replays_come_after_their_doubling_delays_and_count_once_as_emissions() -> None:
    topology = one_bolt(Unlucky({1: 3}), [(1,), (2,)], replay=Replay(5, first_delay=2.0, max_delay=5.0))
    done = complete_topology(topology)
    assert [at for x, at in done.emitted("bolt") if x == 1] == pytest.approx([0, 2, 6, 11])
    assert done.emitted("script") == [(1,), (2,)]
    assert done.acked("script") == [1, 0]
    assert len(done.errors) >= 1


def test_after_the_last_attempt_the_failure_is_final() -> None:
    done = complete_topology(one_bolt(Unlucky({2: 9}), [(1,), (2,)]))
    assert done.acked("script") == [0]
    [(message_id, failure)] = done.failed("script")
    assert message_id == 1
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.component, failure.attempts) == ("failed", "bolt", 3)
    assert failure.error is not None
    assert "unlucky 2" in failure.error


class Bury(Bolt):
    outputs = Fields("message_id", "values", "stream", "reason")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["message_id"], tup["values"], tup["stream"], tup["failure"].reason))


def test_dead_letters_of_a_replaced_spout_are_delivered() -> None:
    class RefusesB(Bolt):
        def execute(self, tup: Tuple) -> None:
            if tup["line"] == "b":
                raise ValueError("no b")

    builder = TopologyBuilder("buried")
    builder.set_spout("lines", Lines())
    builder.set_bolt("refuses", RefusesB()).shuffle_grouping("lines")
    builder.set_bolt("bury", Bury()).dead_letters("lines")
    done = complete_topology(builder.build(), sources={"lines": [("a",), ("b",), ("c",)]})
    assert done.emitted("bury") == [(1, ("b",), "default", "failed")]
    assert done.acked("lines") == [0, 2]
    assert [message_id for message_id, _ in done.failed("lines")] == [1]


class Keeps(Bolt):
    """Acks nothing."""

    auto_ack = False

    def prepare(self, context: Context) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


def test_tuples_that_a_rich_bolt_keeps_time_out_on_simulated_time() -> None:
    began = time.monotonic()
    done = complete_topology(one_bolt(Keeps(), [(1,)], replay=None), timeout=30)
    assert [failure.reason for _, failure in done.failed("script")] == ["timeout"]
    assert 30 <= done.seconds <= 34
    assert time.monotonic() - began < 30  # of real time it took next to none


# Kinds of bolts.


class Batches(BatchBolt):
    outputs = Fields("batch", "at")
    batch_size = 2
    batch_interval = 3.0

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        self.emit((tuple(tup["x"] for tup in tups), self.now()))


def test_batches_go_when_full_after_their_interval_and_when_the_source_has_ended() -> None:
    script = [(1,), (2,), (3,), Pause(10), (4,)]
    done = complete_topology(one_bolt(Batches(), script))
    batches = [batch for batch, _ in done.emitted("bolt")]
    assert batches == [(1, 2), (3,), (4,)]
    assert done.emitted("bolt")[1][1] == pytest.approx(3.0)
    assert done.acked("script") == [0, 1, 2, 4]


class Rolling(Bolt):
    """Emits how many tuples came since the last tick."""

    outputs = Fields("count", "at")
    tick_interval = 10

    def prepare(self, context: Context) -> None:
        self.now = context.now
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1

    def tick(self) -> None:
        self.emit((self.count, self.now()))
        self.count = 0

    def end_of_input(self) -> None:
        self.emit((self.count, -1.0))


def test_ticks_come_on_simulated_time_and_end_of_input_after_them() -> None:
    script = [(1,), Pause(5), (2,), Pause(10), (3,), Pause(20), (4,)]
    done = complete_topology(one_bolt(Rolling(), script))
    assert done.emitted("bolt") == [(2, 10.0), (1, 20.0), (0, 30.0), (1, -1.0)]


class Sleepy(Bolt):
    outputs = Fields("x", "at")

    def prepare(self, context: Context) -> None:
        self.now = context.now

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(tup["x"])
        if tup["x"] == 13:
            raise ValueError("unlucky")
        self.emit((tup["x"], self.now()))


def test_an_async_bolt_sleeps_on_simulated_time_and_its_calls_overlap() -> None:
    done = complete_topology(one_bolt(Sleepy(), [(3,), (13,), (1,), (2,)], replay=None))
    assert [x for x, _ in done.emitted("bolt")] == [1, 2, 3]
    assert [at for _, at in done.emitted("bolt")] == pytest.approx([1, 2, 3])
    assert done.acked("script") == [2, 3, 0]
    assert [message_id for message_id, _ in done.failed("script")] == [1]


class ManySteps(Bolt):
    """Needs many turns of the asyncio loop, but no time."""

    outputs = Fields("x", "at")

    def prepare(self, context: Context) -> None:
        self.now = context.now

    async def execute(self, tup: Tuple) -> None:
        if tup["x"] == "slow":
            await asyncio.sleep(20)
        for _ in range(50):
            await asyncio.sleep(0)
        self.emit((tup["x"], self.now()))


def test_turns_of_the_asyncio_loop_take_no_time() -> None:
    done = complete_topology(one_bolt(ManySteps(), [("slow",), ("quick",)]))
    assert done.emitted("bolt") == [("quick", 0.0), ("slow", 20.0)]


class Blocking(Split):
    threaded = True


def test_threaded_tasks_run_inline() -> None:
    builder = TopologyBuilder("threaded")
    builder.set_spout("lines", ScriptedSpout("line", [("a b",), ("c",)]))
    builder.set_bolt("split", Blocking(), parallelism=3).shuffle_grouping("lines")
    done = complete_topology(builder.build())
    assert sorted(done.emitted("split")) == [("a",), ("b",), ("c",)]


# Groupings.


class Where(Bolt):
    outputs = Fields("x", "index")

    def prepare(self, context: Context) -> None:
        self.index = context.index

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0], self.index))


class Told(Bolt):
    """Sends each number to the task of that index."""

    outputs = {"told": Stream("x", direct=True)}

    def prepare(self, context: Context) -> None:
        self.tasks = context.tasks("where")

    def execute(self, tup: Tuple) -> None:
        self.emit_direct(self.tasks[tup["x"]], (tup["x"],), stream="told")


class EvenFirst(Grouping):
    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.tasks = list(target_tasks)

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return [self.tasks[0]] if values[0] % 2 == 0 else self.tasks[1:]


def test_direct_grouping_reaches_the_task_that_was_named() -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("script", ScriptedSpout("x", [(n % 3,) for n in range(9)]))
    builder.set_bolt("told", Told()).shuffle_grouping("script")
    builder.set_bolt("where", Where(), parallelism=3).direct_grouping("told", stream="told")
    done = complete_topology(builder.build())
    assert sorted(done.emitted("where")) == [(n, n) for n in range(3) for _ in range(3)]
    assert len(done.emitted("told", "told")) == 9
    assert len(done.acked("script")) == 9


def test_custom_grouping_chooses_the_tasks() -> None:
    builder = TopologyBuilder("custom")
    builder.set_spout("script", ScriptedSpout("x", [(n,) for n in range(4)]))
    builder.set_bolt("where", Where(), parallelism=3).custom_grouping("script", EvenFirst())
    done = complete_topology(builder.build())
    assert sorted(done.emitted("where")) == [(0, 0), (1, 1), (1, 2), (2, 0), (3, 1), (3, 2)]


def test_all_grouping_reaches_every_task_and_one_emission_counts_once() -> None:
    builder = TopologyBuilder("all")
    builder.set_spout("script", ScriptedSpout("x", [(1,)]))
    builder.set_bolt("where", Where(), parallelism=4).all_grouping("script")
    done = complete_topology(builder.build())
    assert done.emitted("script") == [(1,)]
    assert sorted(done.emitted("where")) == [(1, index) for index in range(4)]


# What keeps a topology from its end.


def test_an_endless_spout_that_is_not_replaced_times_out_by_name() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(word_count(), timeout=0.3)
    assert "topology 'word-count' is not completed within 0.3 s" in str(caught.value)
    assert "spout 'lines' [1] has not called finish()" in str(caught.value)
    assert "emitted so far" in str(caught.value)


def test_a_spout_that_is_idle_for_ever_times_out_and_says_why_it_is_idle() -> None:
    with pytest.raises(
        TimeoutError, match=r"has not called finish\(\), 0 emitted so far, idle: source empty"
    ):
        complete_topology(word_count(Idle()), timeout=0.3)


class Echoes(Bolt):
    """Sends itself what it gets, for ever."""

    outputs = Fields("x")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],))


def test_a_cycle_that_never_rests_times_out() -> None:
    builder = TopologyBuilder("cycle")
    builder.set_spout("script", ScriptedSpout("x", [(1,)]))
    builder.set_bolt("echo", Echoes()).shuffle_grouping("script").shuffle_grouping("echo")
    with pytest.raises(TimeoutError, match=r"spout 'script' \[1\] has 1 open tree"):
        complete_topology(builder.build(), timeout=0.3)


def test_when_nothing_can_happen_any_more_that_is_said_at_once() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(Keeps(), [(1,), (2,)]),
            conf={"topology.enable.message.timeouts": False},
            timeout=3600,
        )
    text = str(caught.value)
    assert "nothing can happen any more" in text
    assert "spout 'script' [1] has 2 open tree(s)" in text
    assert "bolt 'bolt' [2] has executed 2 tuple(s) that it neither acked nor failed" in text


class Forever(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("timeouts", [True, False])
def test_an_async_call_that_never_ends_is_named_at_once(timeouts: bool) -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(Forever(), [(1,)]),
            conf={"topology.enable.message.timeouts": timeouts},
            timeout=3600,
        )
    assert "nothing can happen any more" in str(caught.value)
    assert "call(s) of bolt 'bolt' [2] have not ended" in str(caught.value)


class KeepsAndRaises(Keeps):
    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup[0] == 2:
            raise ValueError("the last error")


def test_the_last_error_of_the_users_code_stands_in_the_timeout() -> None:
    with pytest.raises(TimeoutError) as caught:
        complete_topology(
            one_bolt(KeepsAndRaises(), [(1,), (2,)]),
            conf={"topology.enable.message.timeouts": False},
        )
    assert "the last error" in str(caught.value)
    assert "test_complete_topology.py" in str(caught.value)


class Unprepared(Bolt):
    def prepare(self, context: Context) -> None:
        raise OSError("no database here")

    def execute(self, tup: Tuple) -> None:
        """Never comes to it."""


def test_a_topology_that_fails_raises_with_the_line_at_fault() -> None:
    with pytest.raises(TopologyFailed, match=r"prepare\(\) raised OSError: no database here") as caught:
        complete_topology(one_bolt(Unprepared(), [(1,)]))
    assert "test_complete_topology.py" in str(caught.value)


def test_with_on_error_crash_the_first_error_fails_the_topology() -> None:
    with pytest.raises(TopologyFailed, match="unlucky 1"):
        complete_topology(one_bolt(Unlucky({1: 1}), [(1,)]), conf={"topology.on.error": "crash"})


class Closes(Bolt):
    calls: list[str] = []

    def execute(self, tup: Tuple) -> None:
        """Nothing."""

    def cleanup(self) -> None:
        self.calls.append("cleanup")


def test_components_are_cleaned_up_whether_it_is_completed_or_not() -> None:
    Closes.calls.clear()
    complete_topology(one_bolt(Closes(), [(1,)]))
    assert Closes.calls == ["cleanup"]
    builder = TopologyBuilder("endless")
    builder.set_spout("lines", Lines())
    builder.set_bolt("closes", Closes()).shuffle_grouping("lines")
    with pytest.raises(TimeoutError):
        complete_topology(builder.build(), timeout=0.2)
    assert Closes.calls == ["cleanup"] * 2


# The same seed, the same run.


class Dice(Bolt):
    outputs = Fields("x", "die", "at")

    def prepare(self, context: Context) -> None:
        self.random = context.random
        self.now = context.now

    def execute(self, tup: Tuple) -> None:
        die = self.random.randint(1, 6)
        self.emit((tup["x"], die, self.now()))
        if die == 6:
            raise ValueError("a six")


class SleepyDice(Bolt):
    outputs = Fields("x", "at")

    def prepare(self, context: Context) -> None:
        self.random = context.random
        self.now = context.now

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.random.random())
        self.emit((tup["x"], self.now()))


def dicing() -> Topology:
    builder = TopologyBuilder("dicing", {"topology.workers": 2})
    script = [entry for n in range(60) for entry in ((n,), Pause(0.01))]
    builder.set_spout("script", ScriptedSpout("x", script))
    builder.set_bolt("dice", Dice(), parallelism=3).shuffle_grouping("script")
    builder.set_bolt("sleepy", SleepyDice(), parallelism=2).fields_grouping("dice", "x")
    builder.set_bolt("batches", Batches(), parallelism=2).shuffle_grouping("sleepy")
    return builder.build()


def history(done: Completed) -> list[Any]:
    """Everything that happened, in order: each component's emissions, the verdicts, the totals, the errors."""
    components = ("script", "dice", "sleepy", "batches")
    return [
        *(done.emitted(component) for component in components),
        done.acked("script"),
        done.failed("script"),
        [vars(done.status.components[component]) for component in components],
        [report.render() for report in done.errors],
        done.seconds,
    ]


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first = history(complete_topology(dicing(), seed=7))
    assert first == history(complete_topology(dicing(), seed=7))
    assert first != history(complete_topology(dicing(), seed=8))
    assert len(first[4]) + len(first[5]) == 60
