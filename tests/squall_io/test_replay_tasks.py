"""Replays: how a component's task processes its input, from `prepare` to `cleanup`, without Spark."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from local_cluster.testing import complete_topology
from squall_io.spark.replay.plan import plan_replay
from squall_io.spark.replay.records import Checked, arrived
from squall_io.spark.replay.sources import route_rows
from squall_io.spark.replay.tasks import TaskRun
from tests.squall_io.replay_in_memory import Replayed, replay, rows_of
from tests.squall_io.replay_topologies import (
    Batches,
    ByRemainder,
    Keeping,
    Numbers,
    OfPoint,
    Pairs,
    Picky,
    Points,
    Rejects,
    Slow,
    Tagged,
    Ticking,
    Totals,
    ToTask,
    one_bolt,
    word_count,
)
from topology_api import Bolt, Context, EmitError, Fields, TopologyBuilder, Tuple
from worker.tasks.async_bolt import AsyncBoltTask
from worker.tasks.bolt import BoltTask

LINES = [("the quick brown fox",), ("jumps over the lazy dog",), ("the end",), ("",)]


def numbers(bolt: Bolt, count: int, parallelism: int = 1, max_errors: int | None = None) -> Replayed:
    """Run one bolt over 0, 1, ..., in two partitions."""
    rows = [(n,) for n in range(count)]
    half = count // 2
    return replay(one_bolt(bolt, parallelism), {"numbers": [rows[:half], rows[half:]]}, ["it"], max_errors)


# The same results as in a stream.


def test_a_word_count_equals_that_of_the_stream() -> None:
    stream = complete_topology(word_count(), sources={"lines": LINES}).emitted("count")
    assert Counter(replay(word_count(), {"lines": [LINES[:2], LINES[2:]]}, ["count"]).output) == Counter(
        stream
    )


def test_equal_keys_meet_in_the_same_task_as_in_the_stream() -> None:
    lines = [(f"{n % 13} {n % 7}",) for n in range(200)]
    stream = complete_topology(word_count(counter=Totals), sources={"lines": lines}).emitted("count")
    batch = replay(word_count(counter=Totals), {"lines": [lines[::2], lines[1::2]]}, ["count"])
    assert sorted(batch.output) == sorted(stream)
    assert len({index for _, _, index in batch.output}) == 3


def test_a_task_without_input_is_prepared_and_ended_too() -> None:
    batch = replay(one_bolt(Ticking(), 3), {"numbers": [[]]}, ["it"])
    assert batch.output == [("prepare",), ("tick",), ("end",)] * 3


def test_a_tick_comes_after_all_input_and_before_its_end() -> None:
    batch = replay(one_bolt(Ticking()), {"numbers": [[(1,), (2,)]]}, ["it"])
    assert [what for (what,) in batch.output] == ["prepare", "execute 1", "execute 2", "tick", "end"]


def test_a_bolt_without_a_tick_interval_is_not_ticked() -> None:
    class Silent(Ticking):
        tick_interval = None

    batch = replay(one_bolt(Silent()), {"numbers": [[]]}, ["it"])
    assert [what for (what,) in batch.output] == ["prepare", "end"]


def test_batches_have_their_size_and_the_last_one_has_the_rest() -> None:
    batch = numbers(Batches(), 10)
    assert batch.output == [(4, 0 + 1 + 2 + 3), (4, 4 + 5 + 6 + 7), (2, 8 + 9)]


def test_a_batch_that_raises_fails_each_of_its_tuples() -> None:
    rows = [(1,), (2,), (-3,), (4,), (5,)]
    batch = replay(one_bolt(Batches()), {"numbers": [rows]}, ["it"])
    assert batch.output == [(1, 5)]
    assert [note.values for note in batch.errors] == ["(1,)", "(2,)", "(-3,)", "(4,)"]
    assert {note.call for note in batch.errors} == {"execute_batch"}
    assert {note.error for note in batch.errors} == {"ValueError: a negative number"}


def test_coroutines_give_their_tuples_in_the_order_of_their_input() -> None:
    batch = numbers(Slow(), 40)
    assert [n for (n,) in batch.output] == [n for n in range(40) if n % 10 != 9]
    assert [note.values for note in batch.errors] == ["(9,)", "(19,)", "(29,)", "(39,)"]


def test_a_coroutine_that_ends_early_waits_for_the_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Early(Bolt):
        outputs = Fields("n")

        async def execute(self, tup: Tuple) -> None:
            await asyncio.sleep(0 if tup["n"] % 3 else 0.2)
            self.emit((tup["n"],))

    def collect_late(run: TaskRun, task: BoltTask, everything: bool = False) -> None:
        while isinstance(task, AsyncBoltTask) and task.in_flight and not task.over:
            time.sleep(0.001)
        collect(run, task, everything)

    collect = TaskRun.collect
    monkeypatch.setattr(TaskRun, "collect", collect_late)
    assert numbers(Early(), 6).output == [(n,) for n in range(6)]


def test_time_does_not_advance() -> None:
    class Clock(Bolt):
        outputs = Fields("now")

        def prepare(self, context: Context) -> None:
            self.context = context

        def execute(self, tup: Tuple) -> None:
            self.emit((self.context.now(),))

    assert set(numbers(Clock(), 5).output) == {(1_000_000.0,)}


def test_a_bolt_knows_its_place_and_has_a_temporary_directory() -> None:
    class Place(Bolt):
        outputs = Fields("component", "task", "index", "tasks", "there", "path", "id")

        def prepare(self, context: Context) -> None:
            self.context = context

        def execute(self, tup: Tuple) -> None:
            at = self.context
            folder = at.directory
            self.emit(
                (
                    at.component,
                    at.task,
                    at.index,
                    at.tasks("it"),
                    folder.is_dir(),
                    str(folder),
                    at.topology_id,
                )
            )

    first, second = sorted(numbers(Place(), 2, parallelism=2).output)
    assert first[:5] == ("it", 2, 0, [2, 3], True)
    assert second[:5] == ("it", 3, 1, [2, 3], True)
    assert first[6] == "replay-1"
    assert not Path(first[5]).exists() and first[5] != second[5]


# Groupings.


def test_a_custom_grouping_chooses_as_in_the_stream() -> None:
    builder = TopologyBuilder("custom")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("it", Tagged(), parallelism=3).custom_grouping("numbers", ByRemainder())
    rows = [(n,) for n in range(20)]
    batch = replay(builder.build(), {"numbers": [rows]}, ["it"])
    assert sorted(batch.output) == [(n, n % 3) for n in range(1, 20)]


def test_a_custom_grouping_that_raises_fails_the_row() -> None:
    builder = TopologyBuilder("custom")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("it", Tagged(), parallelism=3).custom_grouping("numbers", ByRemainder())
    batch = replay(builder.build(), {"numbers": [[(1,)], [(5,), (-2,)]]}, ["it"])
    (note,) = batch.errors
    assert (note.component, note.call, note.values) == ("numbers", "choose", "(-2,)")
    assert "choose() raised ValueError: negative" in (note.error or "")
    assert note.sources == ((0, 1, 1),)
    assert len(batch.output) == 2


def test_direct_tuples_reach_the_named_task_and_components_that_do_not_run_get_none() -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("to", ToTask()).shuffle_grouping("numbers")
    builder.set_bolt("even", Tagged(), parallelism=2).direct_grouping("to", stream="chosen")
    builder.set_bolt("odd", Tagged(), parallelism=2).direct_grouping("to", stream="chosen")
    batch = replay(builder.build(), {"numbers": [[(n,) for n in range(10)]]}, ["even"])
    assert batch.output == [(0, 0), (2, 0), (4, 0), (6, 0), (8, 0)]
    assert not batch.errors and not batch.of("odd")


@pytest.mark.parametrize("kind", ["all", "global", "none", "local_or_shuffle", "shuffle"])
def test_tuples_go_to_as_many_tasks_as_the_grouping_selects(kind: str) -> None:
    builder = TopologyBuilder("kinds")
    builder.set_spout("numbers", Numbers())
    getattr(builder.set_bolt("it", Tagged(), parallelism=3), f"{kind}_grouping")("numbers")
    batch = replay(builder.build(), {"numbers": [[(n,) for n in range(30)]]}, ["it"])
    of_task = Counter(index for _, index in batch.output)
    expected = {"all": {0: 30, 1: 30, 2: 30}, "global": {0: 30}}
    assert of_task == expected.get(kind, {0: 10, 1: 10, 2: 10})


def test_a_partial_key_has_two_tasks_at_most() -> None:
    builder = TopologyBuilder("partial")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("it", Tagged(), parallelism=4).partial_key_grouping("numbers", "n")
    batch = replay(builder.build(), {"numbers": [[(n % 5,) for n in range(100)]]}, ["it"])
    assert len(batch.output) == 100
    tasks = {n: {index for m, index in batch.output if m == n} for n in range(5)}
    assert all(1 <= len(found) <= 2 for found in tasks.values())


def test_an_output_may_be_read_by_another_component_as_well() -> None:
    batch = replay(word_count(sink=True), {"lines": [LINES]}, ["split", "count"])
    words = [word for (line,) in LINES for word in line.split()]
    assert Counter(word for (word,) in batch.outputs["split"]) == Counter(words)
    assert Counter(word for word, _ in batch.outputs["count"]) == Counter(words)


# Errors.


def test_an_error_names_the_call_the_values_the_line_and_the_source_row() -> None:
    batch = numbers(Picky(), 12, parallelism=2)
    by_values = {note.values: note for note in batch.errors}
    assert set(by_values) == {"(0,)", "(5,)", "(10,)", "(7,)"}
    ten = by_values["(10,)"]
    assert (ten.component, ten.call, ten.stream) == ("it", "execute", "numbers")
    assert ten.error == "ValueError: 10 is a multiple of 5"
    assert "replay_topologies.py" in ten.traceback
    assert ten.sources == ((0, 1, 4),)  # the source, its second partition, the fifth row
    seven = by_values["(7,)"]
    assert (seven.error, seven.traceback) == ("a multiple of 7", "")
    assert sorted(n for (n,) in batch.output) == [1, 2, 3, 4, 6, 8, 9, 11]
    assert sum(totals.errors for totals in batch.of("it")) == 4
    assert sum(totals.failed for totals in batch.of("it")) == 4


def test_tuples_that_a_rich_bolt_never_acks_or_fails_are_counted() -> None:
    batch = numbers(Keeping(), 20)
    (totals,) = batch.of("it")
    assert (totals.executed, totals.failed) == (20, 3)  # 3, 9, 15
    assert totals.unsettled == 7
    assert {note.error for note in batch.errors} == {"odd, and a multiple of 3"}


def test_an_error_below_a_join_names_all_rows_that_were_joined() -> None:
    builder = TopologyBuilder("pairs")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("pairs", Pairs()).global_grouping("numbers")
    builder.set_bolt("it", Rejects()).shuffle_grouping("pairs")
    batch = replay(builder.build(), {"numbers": [[(10,)], [(20,), (30,)]]}, ["it"])
    (note,) = batch.errors
    assert note.values == "(10, 20)"
    assert note.sources == ((0, 0, 0), (0, 1, 0))
    assert [totals.unsettled for totals in batch.of("pairs")] == [1]


def test_an_error_of_tick_or_of_cleanup_belongs_to_no_tuple() -> None:
    class Breaks(Ticking):
        def tick(self) -> None:
            raise OSError("no tick")

        def cleanup(self) -> None:
            raise OSError("no cleanup")

    batch = replay(one_bolt(Breaks()), {"numbers": [[(1,)]]}, ["it"])
    assert [(note.call, note.values, note.sources) for note in batch.errors] == [
        ("tick", None, ()),
        ("cleanup", None, ()),
    ]


def test_a_tuple_acked_before_its_error_is_named_once() -> None:
    class Acks(Keeping):
        def execute(self, tup: Tuple) -> None:
            self.ack(tup)
            raise KeyError("too late")

    batch = numbers(Acks(), 2)
    assert [(note.call, note.error) for note in batch.errors] == [("execute", "KeyError: 'too late'")] * 2
    assert all("n=" in (note.values or "") for note in batch.errors)
    assert batch.of("it")[0].unsettled == 0


def test_a_task_stops_once_it_alone_has_more_errors_than_allowed() -> None:
    batch = numbers(Rejects(), 50_000, max_errors=10)
    (totals,) = batch.of("it")
    assert 10 < totals.errors < 2_000
    assert totals.fatal is None
    assert len(totals.first) == 3 and totals.first[0].startswith(
        "it[2] execute of (0,): RuntimeError: rejected"
    )


def test_a_prepare_that_raises_is_fatal_and_names_the_place() -> None:
    class Unprepared(Rejects):
        def prepare(self, context: Context) -> None:
            raise ConnectionError("no database")

    batch = numbers(Unprepared(), 3, parallelism=2)
    assert not batch.output and not batch.errors
    for totals in batch.of("it"):
        assert "no database" in (totals.fatal or "") and "test_replay_tasks.py" in (totals.fatal or "")


def test_crash_on_error_is_fatal_at_the_first_error() -> None:
    topology = one_bolt(Picky(), topology__on__error="crash")
    (totals,) = replay(topology, {"numbers": [[(1,), (5,), (2,), (10,)]]}, ["it"]).of("it")
    assert "multiple of 5" in (totals.fatal or "")


def test_a_forbidden_emission_fails_its_tuple() -> None:
    class Wrong(Bolt):
        outputs = Fields("one")

        def execute(self, tup: Tuple) -> None:
            self.emit((1, 2))

    (note,) = numbers(Wrong(), 1).errors
    assert note.error is not None and note.error.startswith(EmitError.__name__)


def test_values_of_a_users_own_class_travel_and_unpicklable_ones_are_an_error_of_their_emitter() -> None:
    builder = TopologyBuilder("points")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("points", Points()).shuffle_grouping("numbers")
    builder.set_bolt("it", OfPoint(), parallelism=2).shuffle_grouping("points")
    batch = replay(builder.build(), {"numbers": [[(n,) for n in range(6)]]}, ["it"])
    assert sorted(batch.output) == [(0,), (1,), (2,), (4,), (5,)]
    (note,) = batch.errors
    assert (note.component, note.call, note.sources) == ("points", "emit", ((0, 0, 3),))
    assert "field 'point'" in (note.error or "") and "generator" in (note.error or "")


def test_a_value_that_does_not_fit_its_output_is_its_emitters_error_and_names_its_source_rows() -> None:
    class Texts(Pairs):
        outputs = Fields("n")

        def emit(self, values: Any, **more: Any) -> None:
            first, _ = values
            super().emit((str(first) if first in (2, 300) else first,), **more)

    rows = [(n,) for n in range(400)]
    batch = replay(one_bolt(Texts()), {"numbers": [rows]}, ["it"], schemas={"it": "n bigint"})
    assert batch.output == [(n,) for n in range(0, 400, 2) if n not in (2, 300)]
    assert [(note.call, note.values, note.sources) for note in batch.errors] == [
        ("emit", "('2',)", ((0, 0, 2), (0, 0, 3))),
        ("emit", "('300',)", ((0, 0, 300), (0, 0, 301))),
    ]
    assert "field 'n': '300' (str) is not a valid bigint" in (batch.errors[1].error or "")


# Retries.


def test_a_task_that_is_run_again_gives_the_same_records() -> None:
    lines = [(f"{n % 50} {n % 7}",) for n in range(5000)]
    runs = [replay(word_count(), {"lines": [lines[::2], lines[1::2]]}, ["split", "count"]) for _ in range(2)]
    assert runs[0].records == runs[1].records
    assert sum(record.stream >= 0 for record in runs[0].records) > 5


def test_large_values_travel_in_small_records() -> None:
    plan = plan_replay(word_count(), ["lines"], ["count"], None, 0.0)
    lines = [(str(number) * 300_000,) for number in range(40)]
    blobs = [
        arrived(record)
        for record in route_rows(plan, plan.sources[0], 0, lambda first, _: rows_of(lines, first))
    ]
    assert max(map(len, blobs)) < 2 << 20
    assert sum(map(len, blobs)) > sum(len(line) for (line,) in lines)


def test_an_output_of_large_values_collects_only_a_few_of_them() -> None:
    class Large(Bolt):
        outputs = Fields("text")

        def execute(self, tup: Tuple) -> None:
            self.emit((str(tup[0]) * 100_000,))

    batch = numbers(Large(), 1000)
    assert len(batch.output) == 1000
    sizes = [
        len(record.blob.columns.values[0]) for record in batch.records if isinstance(record.blob, Checked)
    ]
    assert max(sizes[1:]) < 10
