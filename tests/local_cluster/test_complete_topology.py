"""complete_topology: a topology run to its end on simulated time, and queries about the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster.testing import Pause, ScriptedSpout, complete_topology
from tests.local_cluster.small_topologies import EventLog, Keeps, Lines, Split, Unlucky, one_bolt, word_count
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Failure,
    Fields,
    Grouping,
    InvalidConfig,
    Replay,
    SquallError,
    Stream,
    Topology,
    TopologyBuilder,
    Tuple,
)

# Configuration.


class Shows(Bolt):
    outputs = Fields("value")

    def prepare(self, context: Context) -> None:
        self.conf = context.conf

    def execute(self, tup: Tuple) -> None:
        self.emit((self.conf[tup[0]],))


def test_conf_overrides_the_topologys_own() -> None:
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


# Queries about the run.


def test_queries_about_unknown_names_are_refused_with_the_nearest_name() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a",)]})
    with pytest.raises(SquallError, match="did you mean 'split'"):
        done.emitted("splt")
    with pytest.raises(SquallError, match="no output stream 'words'"):
        done.emitted("split", "words")
    with pytest.raises(SquallError, match="is a bolt"):
        done.acked("split")
    with pytest.raises(SquallError, match="did you mean 'lines'"):
        done.failed("linse")


def test_returned_values_may_be_changed_without_changing_the_record() -> None:
    done = complete_topology(word_count(), sources={"lines": [("a",)]})
    done.emitted("lines").clear()
    done.acked("lines").clear()
    assert (done.emitted("lines"), done.acked("lines")) == ([("a",)], [0])


def test_the_repr_has_each_components_counts_and_the_last_error() -> None:
    text = repr(complete_topology(one_bolt(Unlucky({1: 1}), [(1,), (2,)])))
    assert "script: 2 emitted, 2 acked, 0 failed, 1 replayed" in text
    assert "bolt: 3 emitted, 3 executed, 2 acked, 1 failed, 1 errors" in text
    assert "ValueError: unlucky 1" in text


# Failures, replays, dead letters.


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


def test_tuples_that_a_rich_bolt_keeps_time_out_on_simulated_time() -> None:
    began = time.monotonic()
    done = complete_topology(one_bolt(Keeps(), [(1,)], replay=None), timeout=30)
    assert [failure.reason for _, failure in done.failed("script")] == ["timeout"]
    assert 30 <= done.seconds <= 34
    assert time.monotonic() - began < 30  # almost no real time


# Kinds of bolts.


class Batches(BatchBolt):
    outputs = Fields("batch", "at")
    batch_size = 2
    batch_interval = 3.0

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        self.emit((tuple(tup["x"] for tup in tups), self.now()))


def test_batches_run_when_full_after_their_interval_and_when_the_source_has_ended() -> None:
    script = [(1,), (2,), (3,), Pause(10), (4,)]
    done = complete_topology(one_bolt(Batches(), script))
    batches = [batch for batch, _ in done.emitted("bolt")]
    assert batches == [(1, 2), (3,), (4,)]
    assert done.emitted("bolt")[1][1] == pytest.approx(3.0)
    assert done.acked("script") == [0, 1, 2, 4]


class Rolling(Bolt):
    """Emits the number of tuples since the last tick."""

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


def test_ticks_follow_simulated_time_and_end_of_input_follows_them() -> None:
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


class Pointing(Bolt):
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


def test_direct_grouping_reaches_the_named_task() -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("script", ScriptedSpout("x", [(n % 3,) for n in range(9)]))
    builder.set_bolt("told", Pointing()).shuffle_grouping("script")
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


def history(seed: int) -> list[Any]:
    """All events of a run in order; then its acks and failures, totals and errors."""
    EventLog.events.clear()
    hook = f"{EventLog.__module__}:{EventLog.__name__}"
    done = complete_topology(dicing(), conf={"topology.auto.task.hooks": [hook]}, seed=seed)
    assert len(done.acked("script")) + len(done.failed("script")) == 60
    totals = [vars(totals) for totals in done.status.components.values()]
    errors = [report.render() for report in done.errors]
    return [*EventLog.events, done.acked("script"), done.failed("script"), totals, errors, done.seconds]


def test_the_same_seed_gives_the_same_events_and_another_seed_others() -> None:
    first = history(7)
    assert len(first) > 60 * 10
    assert history(7) == first
    assert history(8) != first
