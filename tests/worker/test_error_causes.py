"""The part of a report about the causes of the raised error."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import ScriptedSpout
from squall.reports.error_reports import ErrorReport
from topology_api import Bolt, TopologyBuilder
from worker.errors import reports
from worker.errors.error_lines import ErrorLines
from worker.errors.reports import MOST_CAUSES, ErrorLog, make_report

PRICES: dict[str, int] = {}


def looked_up(table: dict[str, int], key: str) -> int:
    try:
        return table[key]
    except KeyError as error:
        raise ValueError(f"no price for {key}") from error


def report_of(error: BaseException) -> ErrorReport:
    return make_report("shop", "price", 3, "execute", error, "('tea',)", 0.0)


def lines_of(error: BaseException) -> list[str]:
    """The causes in a report."""
    return [
        line
        for line in report_of(error).frames
        if line.startswith(("caused by", "raised while handling", "it holds", "..."))
    ]


def raised(act: object) -> BaseException:
    try:
        act()  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_causes_of_an_error_are_named_with_their_places_down_to_the_first() -> None:
    def sell() -> None:
        try:
            looked_up({}, "tea")
        except ValueError as error:
            raise RuntimeError("not sold") from error

    report = report_of(raised(sell))
    assert report.text == "RuntimeError: not sold"
    nearest, first = lines_of(raised(sell))
    assert nearest.startswith("caused by ValueError: no price for tea (") and nearest.endswith(
        "in looked_up)"
    )
    assert first.startswith(f"caused by KeyError: 'tea' ({__file__}:") and first.endswith("in looked_up)")
    *_, frame, code, _, last = report.render().splitlines()
    assert frame.startswith(f'  File "{__file__}", line ') and frame.endswith("in sell")
    assert code == '    raise RuntimeError("not sold") from error' and last == f"  {first}"


def test_an_error_that_was_being_handled_is_named_as_such() -> None:
    def sell() -> None:
        try:
            PRICES["tea"]
        except KeyError:
            raise RuntimeError("not sold")  # noqa: B904 - that is the case

    [line] = lines_of(raised(sell))
    assert line.startswith("raised while handling KeyError: 'tea' (")


def test_a_suppressed_context_stays_suppressed() -> None:
    def sell() -> None:
        try:
            PRICES["tea"]
        except KeyError:
            raise RuntimeError("not sold") from None

    assert lines_of(raised(sell)) == []


def test_errors_that_cause_each_other_in_a_circle_are_named_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert lines_of(first) == ["caused by ValueError: second"]


def test_a_report_of_many_causes_keeps_its_length_its_ends_and_its_place() -> None:
    def deep(left: int) -> None:
        try:
            if left:
                deep(left - 1)
            raise KeyError("the first")
        except KeyError as error:
            raise KeyError(f"at {left}") from error

    error = raised(lambda: deep(200))
    lines = lines_of(error)
    assert len(lines) == MOST_CAUSES
    assert lines[0].startswith("caused by KeyError: 'at 199'")
    assert lines[-2] == f"... {reports.MOST_VISITED - MOST_CAUSES + 1} more ..."
    text = report_of(error).render().splitlines()
    assert len(text) <= 14, "a repeated one is another"
    assert any(line.startswith(f'  File "{__file__}", line ') for line in text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 is the first with groups of errors")
def test_the_errors_in_a_group_are_named_with_their_causes() -> None:
    def sell() -> None:
        group = ExceptionGroup("two of them", [raised(lambda: looked_up({}, "tea")), OSError("no shop")])  # type: ignore[name-defined, unused-ignore] # noqa: F821
        raise group from TypeError("no till")

    lines = [line.partition(" (/")[0] for line in lines_of(raised(sell))]
    assert lines == [
        "it holds ValueError: no price for tea",
        "caused by KeyError: 'tea'",
        "it holds OSError: no shop",
        "caused by TypeError: no till",
    ]


def test_errors_that_squall_caught_are_no_causes() -> None:
    text = "def give(call):\n try:\n  {}['inside']\n except KeyError:\n  call()\n"
    names: dict[str, object] = {}
    exec(compile(text, reports.__file__, "exec"), names)

    def sell() -> None:
        raise RuntimeError("not sold")

    error = raised(lambda: names["give"](sell))  # type: ignore[operator]
    assert isinstance(error.__context__, KeyError)
    assert lines_of(error) == []


def test_a_report_with_causes_survives_json_and_is_in_the_workers_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = report_of(raised(lambda: looked_up({}, "tea")))
    assert ErrorReport.from_dict(json.loads(json.dumps(report.as_dict()))) == report
    log = ErrorLog()
    log.add(report)
    with caplog.at_level(logging.INFO):
        ErrorLines().write_new({"price": log}, 0.0)
    assert "caused by KeyError: 'tea'" in caplog.text


class Price(Bolt):
    def execute(self, tup: object) -> None:
        looked_up({}, "tea")


def test_a_local_cluster_reports_causes_too() -> None:
    builder = TopologyBuilder("shop", conf={"topology.on.error": "fail"})
    builder.set_spout("orders", ScriptedSpout("name", [("tea",)]))
    builder.set_bolt("price", Price()).shuffle_grouping("orders")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("shop", timeout=30)
        [report] = [each for each in cluster.status("shop").errors if each.call]
    assert "  caused by KeyError: 'tea' (" in report.render()
