"""Errors of user code as users see them: short reports with their own line, and a topology that lives on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster, TopologyStatus
from squall.reports.error_reports import ErrorReport
from tests.local_cluster.recording import JOURNAL, Journal, Numbers, Pass, chain, message_ids, run_to_the_end
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    Failure,
    Fields,
    Replay,
    Topology,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)

MOST_LINES = 15


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class OwnError(Exception):
    """An error of the user's."""


def blow(what: str) -> None:
    raise OwnError(f"{what} went wrong")  # raised here


class BadSpout(Numbers):
    """Numbers whose call named `bad` raises each time."""

    def __init__(self, count: int, bad: str, **options: Any) -> None:
        super().__init__(count, **options)
        self.bad = bad

    def may_blow(self, call: str) -> None:
        JOURNAL.note("call", call)
        if call == self.bad:
            blow(call)

    def open(self, context: Context) -> None:
        super().open(context)
        self.may_blow("open")

    def next_tuple(self) -> None:
        if self.next == 2 and self.bad == "next_tuple":
            self.next += 1
            self.may_blow("next_tuple")
        super().next_tuple()

    def ack(self, message_id: object) -> None:
        super().ack(message_id)
        self.may_blow("ack")

    def fail(self, message_id: object, failure: Failure) -> None:
        super().fail(message_id, failure)
        self.may_blow("fail")

    def activate(self) -> None:
        self.may_blow("activate")

    def deactivate(self) -> None:
        self.may_blow("deactivate")

    def close(self) -> None:
        self.may_blow("close")


class BadBolt(Bolt):
    """A bolt whose call named `bad` raises each time."""

    outputs = Fields("number")
    tick_interval = 1.0

    def __init__(self, bad: str) -> None:
        self.bad = bad

    def may_blow(self, call: str) -> None:
        JOURNAL.note("call", call)
        if call == self.bad:
            blow(call)

    def prepare(self, context: Context) -> None:
        self.may_blow("prepare")

    def execute(self, tup: Tuple) -> None:
        self.may_blow("execute")

    def tick(self) -> None:
        self.may_blow("tick")

    def end_of_input(self) -> None:
        self.may_blow("end_of_input")

    def cleanup(self) -> None:
        self.may_blow("cleanup")


class BadBatches(BatchBolt):
    """Every batch raises."""

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        blow("execute_batch")


class BadCoroutine(Bolt):
    """Every coroutine raises."""

    async def execute(self, tup: Tuple) -> None:
        blow("execute")


class BadThread(Bolt):
    """Every call in its thread raises."""

    threaded = True

    def execute(self, tup: Tuple) -> None:
        blow("execute")


class BrokenStr(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no words")


class BrokenRepr:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no picture")


class ManyLines:
    """A value that is shown over many lines, as arrays and data frames are."""

    def __repr__(self) -> str:
        return "\n".join(f"row {number}" for number in range(1000))


class EmitsValue(Numbers):
    """Emits one value, made by `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__(1)
        self.kind = kind

    def next_tuple(self) -> None:
        value: Any = {"huge": "x" * 10_000_000, "broken": BrokenRepr(), "lines": ManyLines()}[self.kind]
        self.emit((value,), message_id=0)
        self.finish()


class RaisesKind(Bolt):
    """Raises the given kind of error, from the numbers `first` on."""

    def __init__(self, kind: str, only: int | None = None) -> None:
        self.kind = kind
        self.only = only

    def execute(self, tup: Tuple) -> None:
        if self.only is not None and tup["number"] != self.only:
            return
        getattr(self, self.kind)()

    def broken_str(self) -> None:
        raise BrokenStr

    def system_exit(self) -> None:
        raise SystemExit(3)

    def keyboard_interrupt(self) -> None:
        raise KeyboardInterrupt

    def recursion(self) -> None:
        self.recursion()

    def long_message(self) -> None:
        raise ValueError("many words\n" * 100_000)

    def in_a_library(self) -> None:
        json.loads("{")

    def by_emit(self) -> None:
        self.emit((1, 2, 3))

    def chained(self) -> None:
        try:
            blow("the cause")
        except OwnError as error:
            raise RuntimeError("the effect") from error


def line_of(text: str) -> int:
    """The number of the line of code in this file that contains `text`."""
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


def reports_of(status: TopologyStatus, component: str) -> list[ErrorReport]:
    return [report for report in status.errors if report.component == component]


def check_report(report: ErrorReport, where: str, call: str, line: int | None = None) -> str:
    """Check the promises of a report's text; return the text."""
    text = report.render()
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES, text
    assert all(len(line) <= 400 for line in lines), text
    for part in (where, repr("errors"), f"{call}()"):
        assert part in lines[0], text
    own = rf'File "{re.escape(__file__)}", line ' + (r"\d+" if line is None else f"{line}") + ", in "
    assert re.search(own, text) or (line is None and f"at {__file__}:" in text), text
    return text


def blown(*bolts: Bolt, spout: Numbers | None = None, **conf: object) -> Topology:
    options = {key.replace("_", "."): value for key, value in conf.items()}
    return chain("errors", spout or Numbers(5), *bolts, conf=options)


# Every user call.


@pytest.mark.parametrize("call", ["execute", "tick", "end_of_input", "cleanup"])
def test_errors_of_a_bolts_calls_are_reported_and_the_topology_completes(
    cluster: LocalCluster, call: str
) -> None:
    spout = BadSpout(5, "nothing", finishes=False)
    cluster.submit(blown(BadBolt(call), spout=spout))
    cluster.advance(1.5)
    spouts = cluster._host.workers("errors")[0].spouts
    spouts[0].finished = True  # the source has ended after the first tick
    status = run_to_the_end(cluster, "errors")
    assert status.state == "COMPLETED"
    reports = reports_of(status, "bolt1")
    text = check_report(reports[0], "bolt1[2]", call, line_of("raise OwnError"))
    assert f"OwnError: {call} went wrong" in text
    assert status.components["bolt1"].errors == (5 if call == "execute" else 1)
    assert len(JOURNAL.of("ack")) == (0 if call == "execute" else 5)


@pytest.mark.parametrize("call", ["next_tuple", "ack", "close"])
def test_errors_of_a_spouts_calls_are_reported_and_the_topology_completes(
    cluster: LocalCluster, call: str
) -> None:
    cluster.submit(blown(Pass(), spout=BadSpout(5, call)))
    status = run_to_the_end(cluster, "errors")
    assert status.state == "COMPLETED"
    text = check_report(reports_of(status, "numbers")[0], "numbers[1]", call, line_of("raise OwnError"))
    assert f"OwnError: {call} went wrong" in text
    expected = [0, 1, 3, 4] if call == "next_tuple" else [0, 1, 2, 3, 4]
    assert message_ids(JOURNAL.of("ack")) == expected
    assert status.components["numbers"].errors == (5 if call == "ack" else 1)
    if call == "ack":
        assert "message id " in text


def test_a_fail_that_raises_is_reported_and_is_still_the_final_call(cluster: LocalCluster) -> None:
    cluster.submit(blown(BadBolt("execute"), spout=BadSpout(3, "fail")))
    status = run_to_the_end(cluster, "errors")
    reports = reports_of(status, "numbers")
    assert "message id " in check_report(reports[0], "numbers[1]", "fail")
    assert message_ids(JOURNAL.of("fail")) == [0, 1, 2]
    assert status.components["numbers"].failed == 3


def test_activate_and_deactivate_that_raise_are_reported_and_take_effect(cluster: LocalCluster) -> None:
    for call in ("deactivate", "activate"):
        JOURNAL.clear()
        cluster.submit(blown(Pass(), spout=BadSpout(10**6, call)), conf={"topology.acking": False})
        cluster.advance(0.01)
        cluster.deactivate("errors")
        emitted = cluster.status("errors").components["numbers"].emitted
        cluster.advance(1.0)
        assert cluster.status("errors").components["numbers"].emitted == emitted
        cluster.activate("errors")
        cluster.advance(0.01)
        status = cluster.status("errors")
        assert status.components["numbers"].emitted > emitted
        check_report(reports_of(status, "numbers")[0], "numbers[1]", call)
        cluster.kill("errors", wait_secs=0)
        cluster.advance(1.0)


@pytest.mark.parametrize("kind", ["spout", "bolt"])
def test_an_open_or_prepare_that_raises_fails_the_topology_with_that_error(
    cluster: LocalCluster, kind: str
) -> None:
    topology = (
        blown(Pass(), spout=BadSpout(5, "open")) if kind == "spout" else blown(Pass(), BadBolt("prepare"))
    )
    cluster.submit(topology)
    cluster.advance(1.0)
    status = cluster.status("errors")
    assert status.state == "FAILED"
    component, call = ("numbers[1]", "open") if kind == "spout" else ("bolt2[3]", "prepare")
    check_report(status.errors[-1], component, call, line_of("raise OwnError"))
    with pytest.raises(TopologyFailed, match=f"{call} went wrong") as caught:
        cluster.wait("errors")
    assert "errors" in str(caught.value)
    assert JOURNAL.of("emit") == []
    if kind == "spout":  # bolts are prepared first, and prepared ones are cleaned up
        assert JOURNAL.kinds().count("cleanup") == 1


@pytest.mark.parametrize(
    ("bolt", "call"),
    [(BadBatches(), "execute_batch"), (BadCoroutine(), "execute"), (BadThread(), "execute")],
    ids=["batch", "async", "threaded"],
)
@pytest.mark.parametrize("simulated", [True, False])
def test_batches_coroutines_and_threads_report_as_well(bolt: Bolt, call: str, simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(blown(bolt))
        if simulated:
            run_to_the_end(cluster, "errors")
        cluster.wait("errors", timeout=30)
        status = cluster.status("errors")
    text = check_report(reports_of(status, "bolt1")[0], "bolt1[2]", call, line_of("raise OwnError"))
    assert "number=" in text
    assert message_ids(JOURNAL.of("fail")) == [0, 1, 2, 3, 4]
    assert all(
        f"{__file__}:{line_of('raise OwnError')}" in failure.error for _, _, failure in JOURNAL.of("fail")
    )


# topology.on.error: crash.


@pytest.mark.parametrize("workers", [1, 2])
def test_on_error_crash_stops_the_topology_with_that_error(cluster: LocalCluster, workers: int) -> None:
    topology = blown(
        Pass(), BadBolt("execute"), spout=Numbers(1000), topology_on_error="crash", topology_workers=workers
    )
    cluster.submit(topology)
    cluster.advance(5.0)
    status = cluster.status("errors")
    assert status.state == "FAILED"
    assert status.error is not None
    assert "OwnError: execute went wrong" in status.error
    assert f'File "{__file__}", line {line_of("raise OwnError")}, in ' in status.error
    with pytest.raises(TopologyFailed, match="execute went wrong"):
        cluster.wait("errors")
    assert len([entry for entry in JOURNAL.of("call") if entry == ("execute",)]) == 1
    assert ("cleanup",) in JOURNAL.of("call")
    emitted, acked, failed = (message_ids(JOURNAL.of(kind)) for kind in ("emit", "ack", "fail"))
    assert sorted(acked + failed) == emitted  # each has its final call


def test_the_record_of_a_crashed_topology_stays_until_kill(cluster: LocalCluster) -> None:
    cluster.submit(blown(BadBolt("tick"), spout=Numbers(3, finishes=False), topology_on_error="crash"))
    cluster.advance(100.0)
    assert cluster.status("errors").state == "FAILED"
    assert cluster.topologies() == ["errors"]
    cluster.kill("errors")
    cluster.advance(1.0)
    assert cluster.topologies() == []


def test_on_error_crash_of_one_component_leaves_the_errors_of_others_alone(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("errors")
    spout = builder.set_spout("numbers", Numbers(5))
    builder.set_bolt("bad", BadBolt("execute")).shuffle_grouping(spout)
    builder.set_bolt("strict", Pass(), conf={"topology.on.error": "crash"}).shuffle_grouping(spout)
    cluster.submit(builder.build())
    status = run_to_the_end(cluster, "errors")
    assert status.state == "COMPLETED"
    assert status.components["bad"].errors == 5


def test_a_failure_after_the_last_replay_is_no_crash(cluster: LocalCluster) -> None:
    spout = Numbers(3, Replay(max_attempts=1))
    conf = {"topology.message.timeout.secs": 5}
    cluster.submit(chain("errors", spout, Refuses(), conf={**conf, "topology.on.error": "crash"}))
    assert run_to_the_end(cluster, "errors").state == "COMPLETED"
    assert len(JOURNAL.of("fail")) == 3


class Refuses(Bolt):
    """Fails every tuple, which is not an error."""

    def execute(self, tup: Tuple) -> None:
        self.fail(tup, "not wanted")


# Odd errors and odd values.


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("broken_str", "BrokenStr: (its str() raises ValueError)"),
        ("system_exit", "SystemExit: 3"),
        ("recursion", "RecursionError"),
        ("long_message", "ValueError: many words many words"),
        ("in_a_library", "JSONDecodeError"),
        ("by_emit", "EmitError"),
        ("chained", "RuntimeError: the effect"),
    ],
)
def test_odd_errors_have_short_reports_and_harm_one_tuple_only(
    cluster: LocalCluster, kind: str, text: str
) -> None:
    cluster.submit(blown(RaisesKind(kind, only=2)))
    status = run_to_the_end(cluster, "errors")
    (report,) = reports_of(status, "bolt1")
    rendered = check_report(report, "bolt1[2]", "execute")
    assert text in rendered
    assert "number=2" in rendered
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 3, 4]
    ((_, _, failure),) = JOURNAL.of("fail")
    assert f"{__file__}:" in failure.error
    assert len(failure.error) < 1000


@pytest.mark.parametrize("kind", ["system_exit", "keyboard_interrupt"])
@pytest.mark.parametrize("threaded", [False, True])
def test_an_exit_in_user_code_ends_no_worker(kind: str, threaded: bool) -> None:
    bolt = RaisesKind(kind, only=2)
    bolt.threaded = threaded
    with LocalCluster() as cluster:
        cluster.submit(blown(bolt))
        cluster.wait("errors", timeout=30)
        status = cluster.status("errors")
    (report,) = reports_of(status, "bolt1")
    check_report(report, "bolt1[2]", "execute")
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 3, 4]


def test_ctrl_c_in_simulated_time_reaches_the_caller_who_can_still_shut_down() -> None:
    with LocalCluster(simulated_time=True) as cluster:
        with pytest.raises(KeyboardInterrupt):
            cluster.submit(blown(Pass(), RaisesKind("keyboard_interrupt", only=2)))
            cluster.advance(1.0)
        cluster.shutdown()
    assert "cleanup" in JOURNAL.kinds()
    emitted, acked, failed = (message_ids(JOURNAL.of(kind)) for kind in ("emit", "ack", "fail"))
    assert sorted(acked + failed) == emitted


@pytest.mark.parametrize("kind", ["huge", "broken", "lines"])
def test_no_kind_of_value_makes_a_long_report(cluster: LocalCluster, kind: str) -> None:
    cluster.submit(blown(BadBolt("execute"), spout=EmitsValue(kind)))
    status = run_to_the_end(cluster, "errors")
    (report,) = reports_of(status, "bolt1")
    text = check_report(report, "bolt1[2]", "execute")
    assert len(text) < 3000
    assert "Tuple" in text


def test_no_kind_of_dropped_tuple_makes_a_long_report(cluster: LocalCluster) -> None:
    spout = EmitsValue("lines")
    spout.replay = Replay(max_attempts=1)
    cluster.submit(blown(BadBolt("execute"), spout=spout))
    status = run_to_the_end(cluster, "errors")
    (report,) = reports_of(status, "numbers")
    assert len(report.render().splitlines()) <= MOST_LINES
    assert len(report.render()) < 3000
