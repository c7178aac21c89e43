"""run_bolt: one bolt without a topology, everything else as in a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster.testing import TICK, BoltRun, MutatedValue, Pause, run_bolt
from topology_api import (
    BatchBolt,
    Bolt,
    CannotPack,
    Context,
    FailTuple,
    Failure,
    Fields,
    InvalidConfig,
    InvalidTopology,
    SquallError,
    Stream,
    TopologyFailed,
    Tuple,
)


class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup: Tuple) -> None:
        for word in tup["line"].split():
            self.emit((word,))


class Second(Bolt):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[1],))


class Describe(Bolt):
    outputs = Fields("component", "stream", "fields", "values")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup.component, tup.stream, tuple(tup.fields), tup.values))


class Picky(Bolt):
    """Fails in each possible way."""

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "raise":
            raise ValueError("no raise here")
        if tup[0] == "fail":
            raise FailTuple("not wanted")


class Rich(Bolt):
    """Holds tuples; acks the last one when it gets "ack", fails the first one at the end, and ignores the rest."""

    outputs = Fields("value")
    auto_anchor = False
    auto_ack = False

    def prepare(self, context: Context) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "ack":
            last = self.held.pop()
            self.emit((last[0],), anchors=last)
            self.ack(last)
            self.ack(tup)
        else:
            self.held.append(tup)

    def end_of_input(self) -> None:
        if self.held:
            self.fail(self.held[0], "left over")


class Stages(Bolt):
    """Emits the name and time of each of its calls."""

    outputs = Fields("what", "at")

    def prepare(self, context: Context) -> None:
        self.now = context.now
        self.note("prepare")

    def note(self, what: str) -> None:
        self.emit((what, self.now()))

    def execute(self, tup: Tuple) -> None:
        self.note(tup[0])

    def tick(self) -> None:
        self.note("tick")

    def end_of_input(self) -> None:
        self.note("end")


class TickingStages(Stages):
    tick_interval = 10


class Batches(BatchBolt):
    outputs = Fields("batch", "at")
    batch_size = 3
    batch_interval = 2.0

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if any(tup[0] == "bad" for tup in tups):
            raise RuntimeError("a bad batch")
        self.emit((tuple(tup[0] for tup in tups), self.now()))


class Sleepy(Bolt):
    """Sleeps for the given time, then emits."""

    outputs = Fields("seconds", "at")

    def prepare(self, context: Context) -> None:
        self.now = context.now

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(tup[0])
        if tup[0] == 13:
            raise ValueError("unlucky")
        self.emit((tup[0], self.now()))


class OneAtATime(Sleepy):
    max_concurrency = 1


class InThread(Bolt):
    """Has another thread do the work, which fails for 13."""

    outputs = Fields("half")

    async def execute(self, tup: Tuple) -> None:
        self.emit((await asyncio.to_thread(self.half, tup[0]),))

    def half(self, number: int) -> int:
        if number == 13:
            raise ValueError("unlucky")
        return number // 2


class Forever(Bolt):
    async def execute(self, tup: Tuple) -> None:
        await asyncio.Event().wait()


class Blocking(Bolt):
    outputs = Fields("thread")
    threaded = True

    def execute(self, tup: Tuple) -> None:
        self.emit((threading.current_thread() is threading.main_thread(),))


class SeveralStreams(Bolt):
    outputs = {"even": Fields("n"), "odd": Fields("n"), "to": Stream("n", direct=True)}

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],), stream="odd" if tup[0] % 2 else "even")
        self.emit_direct(7, [tup[0]], stream="to")


class Greedy(Bolt):
    """Emits the wrong number of values."""

    outputs = Fields("a")

    def execute(self, tup: Tuple) -> None:
        self.emit((1, 2))


class Unprepared(Bolt):
    def prepare(self, context: Context) -> None:
        raise OSError("no database here")

    def execute(self, tup: Tuple) -> None:
        """Never returns."""


class Tidy(Bolt):
    cleaned: list[str] = []

    def execute(self, tup: Tuple) -> None:
        raise ValueError("untidy")

    def cleanup(self) -> None:
        self.cleaned.append("cleanup")


class Configured(Bolt):
    outputs = Fields("mine", "pending")

    def prepare(self, context: Context) -> None:
        self.conf = context.conf
        self.context = context

    def execute(self, tup: Tuple) -> None:
        (self.context.directory / "file").write_text("scratch")
        self.emit((self.conf["my.key"], self.conf["topology.max.spout.pending"]))


def failures(run: BoltRun) -> list[tuple[Any, str | None]]:
    return [(given, failure.error) for given, failure in run.failed()]


def test_values_go_in_and_values_come_out() -> None:
    run = run_bolt(Split(), [("a b",), ("c",)], source_fields=Fields("line"))
    assert run.emitted() == [("a",), ("b",), ("c",)]
    assert run.acked() == [("a b",), ("c",)]
    assert run.failed() == []
    assert run.pending() == []
    assert run.errors == ()


@pytest.mark.parametrize("fields", ["line", ["line"], ("line",), Fields("line")])
def test_source_fields_are_taken_in_every_form_of_fields(fields: Any) -> None:
    assert run_bolt(Split(), [["a b"]], source_fields=fields).emitted() == [("a",), ("b",)]


def test_without_source_fields_values_are_named_by_position() -> None:
    run = run_bolt(Describe(), [("x", 1)])
    assert run.emitted() == [("inputs", "default", ("0", "1"), ("x", 1))]


def test_dicts_name_their_own_fields_in_any_order() -> None:
    given: list[dict[str, Any]] = [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
    run = run_bolt(Describe(), given)
    assert [row[2:] for row in run.emitted()] == [(("a", "b"), (1, 2)), (("a", "b"), (3, 4))]
    assert run.acked() == given
    assert run_bolt(Second(), given, source_fields=("b", "a")).emitted() == [(1,), (3,)]


def test_inputs_are_returned_unchanged_though_equal_ones_have_different_outcomes() -> None:
    same = ("x",)
    run = run_bolt(Rich(), [same, same, ("ack",), same])
    assert run.emitted() == [("x",)]
    assert run.acked() == [same, ("ack",)]
    assert failures(run) == [(same, "left over")]
    assert run.pending() == [same]
    assert run.acked()[0] is same


def test_a_list_is_returned_as_the_same_list() -> None:
    given = ["a b"]
    assert run_bolt(Split(), [given], source_fields="line").acked()[0] is given


def test_errors_and_failures_come_with_component_reason_and_the_line_at_fault() -> None:
    run = run_bolt(Picky(), [("raise",), ("fine",), ("fail",)])
    assert run.acked() == [("fine",)]
    (first, error), (second, refusal) = run.failed()
    assert first == ("raise",)
    assert (error.reason, error.component, error.attempts) == ("failed", "bolt", 1)
    assert error.error is not None
    assert error.error.startswith("ValueError: no raise here")
    assert "test_run_bolt.py" in error.error
    assert (second, refusal) == (("fail",), Failure("failed", "bolt", refusal.task, "not wanted", 1))
    assert [report.call for report in run.errors] == ["execute"]
    assert "no raise here" in repr(run)
    assert "1 acked, 2 failed, 0 pending" in repr(run)


def test_a_wrong_emit_is_an_error_of_the_tuple() -> None:
    run = run_bolt(Greedy(), [(1,)])
    assert run.emitted() == []
    [(_, error)] = failures(run)
    assert error is not None
    assert "1 field(s)" in error


def test_the_stages_follow_in_order_and_time_does_not_pass() -> None:
    run = run_bolt(Stages(), [("a",), ("b",), TICK, ("c",)])
    assert run.emitted() == [(what, 0.0) for what in ("prepare", "a", "b", "tick", "c", "end")]
    assert run.acked() == [("a",), ("b",), ("c",)]


def test_tick_advances_to_the_bolts_interval_and_no_other_tick_comes() -> None:
    run = run_bolt(TickingStages(), [("a",), TICK, Pause(35), ("b",), TICK])
    assert run.emitted()[1:] == [("a", 0.0), ("tick", 10.0), ("b", 45.0), ("tick", 55.0), ("end", 55.0)]


def test_the_tick_interval_may_come_from_the_configuration() -> None:
    run = run_bolt(Stages(), [TICK], conf={"topology.tick.tuple.freq.secs": 5})
    assert run.emitted() == [("prepare", 0.0), ("tick", 5.0), ("end", 5.0)]


def test_a_bolt_without_inputs_is_prepared_ends_and_is_cleaned_up() -> None:
    Tidy.cleaned.clear()
    assert run_bolt(Stages(), []).emitted() == [("prepare", 0.0), ("end", 0.0)]
    assert run_bolt(Tidy(), []).acked() == []
    assert Tidy.cleaned == ["cleanup"]


def test_a_batch_runs_when_it_is_full_when_its_interval_has_passed_and_at_the_end() -> None:
    run = run_bolt(Batches(), [("a",), ("b",), ("c",), ("d",), Pause(5), ("e",)])
    assert run.emitted() == [(("a", "b", "c"), 0.0), (("d",), 2.0), (("e",), 5.0)]
    assert run.acked() == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_a_batch_that_raises_fails_all_its_tuples_and_no_others() -> None:
    run = run_bolt(Batches(), [("a",), ("bad",), ("b",), ("c",)])
    assert [given for given, _ in failures(run)] == [("a",), ("bad",), ("b",)]
    assert run.acked() == [("c",)]


def test_calls_of_an_async_bolt_overlap_on_simulated_time() -> None:
    run = run_bolt(Sleepy(), [(3,), (13,), (1,), (2,)])
    assert run.emitted() == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert run.acked() == [(1,), (2,), (3,)]
    assert [given for given, _ in failures(run)] == [(13,)]


def test_max_concurrency_bounds_the_calls_of_an_async_bolt() -> None:
    run = run_bolt(OneAtATime(), [(3,), (1,), (2,)])
    assert run.emitted() == [(3, 3.0), (1, 4.0), (2, 6.0)]


def test_thread_calls_of_an_async_bolt_are_done_at_once() -> None:
    run = run_bolt(InThread(), [(2,), (13,), (4,)])
    assert run.emitted() == [(1,), (2,)]
    assert run.acked() == [(2,), (4,)]
    [(given, error)] = failures(run)
    assert (given, error is not None and error.startswith("ValueError: unlucky")) == ((13,), True)


def test_calls_that_never_end_are_reported_at_once() -> None:
    with pytest.raises(TimeoutError, match=r"2 call\(s\) of bolt 'bolt'.* have not ended"):
        run_bolt(Forever(), [(1,), (2,)])


def test_a_threaded_bolt_runs_in_the_tests_own_thread() -> None:
    assert run_bolt(Blocking(), [(1,), (2,)]).emitted() == [(True,), (True,)]


def test_each_stream_is_queried_by_its_name() -> None:
    run = run_bolt(SeveralStreams(), [(1,), (2,), (3,)])
    assert run.emitted("even") == [(2,)]
    assert run.emitted("odd") == [(1,), (3,)]
    assert run.emitted("to") == [(1,), (2,), (3,)]
    with pytest.raises(SquallError, match="did you mean 'even'"):
        run.emitted("evn")
    with pytest.raises(SquallError, match="no output stream 'default'"):
        run.emitted()


def test_an_error_in_prepare_is_raised_with_the_line_at_fault() -> None:
    with pytest.raises(TopologyFailed, match=r"prepare\(\) raised OSError: no database here") as caught:
        run_bolt(Unprepared(), [(1,)])
    assert "test_run_bolt.py" in str(caught.value)


def test_with_on_error_crash_the_first_error_is_raised_and_the_bolt_cleaned_up() -> None:
    Tidy.cleaned.clear()
    with pytest.raises(TopologyFailed, match="untidy"):
        run_bolt(Tidy(), [(1,)], conf={"topology.on.error": "crash"})
    assert Tidy.cleaned == ["cleanup"]


def test_conf_reaches_the_bolt_and_its_scratch_directory_is_there() -> None:
    run = run_bolt(Configured(), [(1,)], conf={"my.key": [1], "topology.max.spout.pending": 5})
    assert run.emitted() == [([1], 5)]


def test_all_problems_of_the_configuration_are_raised() -> None:
    with pytest.raises(InvalidConfig) as caught:
        run_bolt(Split(), [], conf={"topology.wrokers": 2, "topology.message.timeout.secs": "5s"})
    assert len(caught.value.problems) == 2
    assert "topology.workers" in str(caught.value)


def test_a_bolt_that_could_not_be_shipped_or_is_no_bolt_is_refused() -> None:
    unpackable = Split()
    unpackable.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises((CannotPack, InvalidTopology), match="lock"):
        run_bolt(unpackable, [("a",)])
    with pytest.raises(InvalidTopology, match="give an instance"):
        run_bolt(Split, [("a",)])  # type: ignore[arg-type]


def test_the_given_bolt_is_not_the_instance_that_runs() -> None:
    bolt = Rich()
    run_bolt(bolt, [("x",)])
    assert not hasattr(bolt, "held")


def test_a_class_defined_in_the_test_is_accepted() -> None:
    class Double(Bolt):
        outputs = Fields("n")

        def execute(self, tup: Tuple) -> None:
            self.emit((2 * tup[0],))

    assert run_bolt(Double(), [(2,)]).emitted() == [(4,)]


def test_invalid_inputs_are_refused_with_all_problems() -> None:
    with pytest.raises(InvalidTopology) as caught:
        run_bolt(Split(), [("a",), "b", ("a", "b"), {"row": 1}, 5], source_fields="line")
    assert [problem.split(",")[1].strip() for problem in caught.value.problems] == [
        f"position {position}" for position in (1, 2, 3, 4)
    ]
    assert "one value is written (value,)" in str(caught.value)
    with pytest.raises(InvalidTopology, match="inputs is 'abc'"):
        run_bolt(Split(), "abc")


class Appends(Bolt):
    def execute(self, tup: Tuple) -> None:
        tup["items"].append(1)


def test_a_bolt_that_changes_its_input_is_an_error() -> None:
    with pytest.raises(MutatedValue, match=r"'bolt'.*'items'"):
        run_bolt(Appends(), [([],)], source_fields="items")


def test_many_inputs_are_executed_in_order() -> None:
    run = run_bolt(Second(), ((n, n * n) for n in range(1000)))
    assert run.emitted() == [(n * n,) for n in range(1000)]
    assert run.acked() == [(n, n * n) for n in range(1000)]
